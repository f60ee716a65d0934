"""Python files of ADK apps with greenroom's imports in place of ADK's.

Only import statements, and dotted names that begin with a module of ADK, are replaced, each at its place in the text:
comments and layout stay. Example:

    from google.adk.agents import LlmAgent, NoSuchAgent    from google.adk.agents import NoSuchAgent
                                                           from greenroom import LlmAgent
    from google.genai import types                         from greenroom import types
    from google.adk import tools                           import greenroom as tools
    import google.adk.agents                               import greenroom
    google.adk.agents.LlmAgent(…)                          greenroom.LlmAgent(…)

`NoSuchAgent` stays, since ADK has no such name. A module stays if the file uses one of its names that stays. A name of
ADK that greenroom lacks is imported from greenroom, too: it raises an error that says so, but only when it is used.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import greenroom
from greenroom import types
from greenroom.adk_names import adk_modules, find_adk_name
from greenroom.cli.app_check.names import ADK, GENAI_TYPES, known_name
from greenroom.cli.app_check.source import PythonFile

_GENAI = "google.genai"
_HERE = "greenroom"
_TYPES_HERE = "greenroom.types"


class _Edit(NamedTuple):
    """start, end: offsets in the file's bytes."""

    start: int
    end: int
    text: str


def rewritten(source: PythonFile) -> bytes:
    """Returns the file's content with greenroom's imports, or as it is if there is nothing to replace."""
    return _Rewriter(source).content()


class _Rewriter:
    def __init__(self, source: PythonFile) -> None:
        content = source.path.read_bytes()
        self._source = source
        self._encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
        # As `ast` counts, in UTF-8. The mark at the beginning of a file is not part of its first line.
        self._old = content.decode(self._encoding).encode()
        self._line_starts = [0]
        for line in self._old.splitlines(keepends=True):
            self._line_starts.append(self._line_starts[-1] + len(line))

    def content(self) -> bytes:
        edits = sorted(set(self._edits()), reverse=True)
        if not edits:
            return self._source.path.read_bytes()
        new = self._old
        for edit in edits:
            new = new[: edit.start] + edit.text.encode() + new[edit.end :]
        return new.decode().encode(self._encoding)

    def _edits(self) -> Iterator[_Edit]:
        for node in ast.walk(self._source.tree):
            if isinstance(node, ast.ImportFrom) and not node.level:
                yield from self._edit_from(node)
            elif isinstance(node, ast.Import):
                yield from self._edit_import(node)
        for node in self._source.attributes():
            yield from self._edit_attribute(node)

    def _edit_from(self, node: ast.ImportFrom) -> Iterator[_Edit]:
        """Replaces the module; or the whole statement, if its names come from several modules from now on."""
        module = node.module or ""
        homes = [(alias, self._home(module, alias)) for alias in node.names]
        modules = {home for _, home in homes}
        if modules == {module}:
            return

        start, end = self._span(node)
        if len(modules) == 1 and "" not in modules:
            at = self._old.index(module.encode(), start, end)
            yield _Edit(at, at + len(module), modules.pop())
            return

        lines = [
            _statement(home, [alias for alias, one in homes if one == home])
            for home in sorted(modules, key=lambda home: (home != module, home))
            if home
        ]
        lines += [f"import {_HERE} as {alias.asname or alias.name}" for alias, home in homes if not home]
        yield _Edit(start, end, self._separator(start, node).join(lines))

    def _home(self, module: str, alias: ast.alias) -> str:
        """Returns the module that has a name from now on: the same one for a name that stays, and "" for a module of
        ADK in whose place greenroom itself is imported.
        """
        origin = f"{module}.{alias.name}"
        if origin == GENAI_TYPES:
            return _HERE
        if module == GENAI_TYPES and hasattr(types, alias.name):
            return _TYPES_HERE
        if not f"{module}.".startswith(f"{ADK}."):
            return module
        if alias.name in adk_modules() or _is_known(origin):
            return _HERE
        if known_name(origin) is None and alias.name != "*" and self._is_movable(alias.asname or alias.name):
            return ""
        return module

    def _edit_import(self, node: ast.Import) -> Iterator[_Edit]:
        for alias in node.names:
            bound_as = alias.asname or alias.name.partition(".")[0]
            start, _ = self._span(alias)
            if alias.name == GENAI_TYPES and alias.asname is not None:
                yield _Edit(start, start + len(alias.name), _TYPES_HERE)
            elif f"{alias.name}.".startswith(f"{ADK}.") and self._is_movable(bound_as):
                yield _Edit(start, start + len(alias.name), _HERE)

    def _edit_attribute(self, node: ast.Attribute) -> Iterator[_Edit]:
        """Replaces `google.adk.agents.LlmAgent` and, of an imported module, `agents.llm_agent.LlmAgent`."""
        origin = self._source.resolve(node)
        if origin is None or not origin.startswith(f"{ADK}."):
            return
        root = _root(node)
        known = known_name(origin)
        if known is None or origin != f"{known.module}.{known.name}" or root not in self._adk_modules:
            return
        if self._is_movable(root):
            start, end = self._span(node)
            yield _Edit(start, end, f"{_HERE if root == 'google' else root}.{known.name}")

    @cached_property
    def _adk_modules(self) -> dict[str, bool]:
        """The names of the file that are bound to modules of ADK, and whether all that is used of them is known."""
        bound: dict[str, bool] = {}
        for one in self._source.imports:
            origin = f"{one.module}.{one.name}" if one.name else one.module
            is_module = f"{origin}.".startswith(f"{ADK}.") and known_name(origin) is None
            if is_module and one.bound_as and one.name not in adk_modules():
                bound[one.bound_as] = True
        for use in self._source.references():
            if use.root in bound and f"{use.origin}.".startswith(f"{ADK}."):
                bound[use.root] = bound[use.root] and _is_known(use.origin)
        return bound

    def _is_movable(self, name: str) -> bool:
        return self._adk_modules.get(name, False)

    def _separator(self, start: int, node: ast.stmt) -> str:
        """The text between statements in place of one: a line's end, unless others stand before it on its line."""
        before = self._old[self._line_starts[node.lineno - 1] : start].decode()
        if before.strip():
            return "; "
        line_end = "\r\n" if b"\r\n" in self._old else "\n"
        return line_end + before

    def _span(self, node: ast.stmt | ast.expr | ast.alias) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = self._line_starts[node.lineno - 1] + node.col_offset
        return start, self._line_starts[node.end_lineno - 1] + node.end_col_offset


def _is_known(origin: str) -> bool:
    """Whether a name can be imported from greenroom: the real one, or one that says why it is missing."""
    known = known_name(origin)
    if known is None:
        return False
    return known.name in greenroom.__all__ or find_adk_name(known.module, known.name) is not None


def _statement(module: str, aliases: list[ast.alias]) -> str:
    names = [alias.name if alias.asname is None else f"{alias.name} as {alias.asname}" for alias in aliases]
    return f"from {module} import {', '.join(names)}"


def _root(node: ast.Attribute) -> str:
    value: ast.expr = node
    while isinstance(value, ast.Attribute):
        value = value.value
    return value.id if isinstance(value, ast.Name) else ""
