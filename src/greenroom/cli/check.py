"""`greenroom check`: what an app that was written for ADK would miss, without running it."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from greenroom.cli.terminal import note, output
from greenroom.errors import InvalidRequest


class _Use(NamedTuple):
    line: int
    name: str
    """Of ADK, or with `types.` before it, of google.genai.types."""


def check(directory: Path, /) -> None:
    """Say which names of ADK an app imports that greenroom does not have.

    Reads the imports of all Python files below the folder and runs none. Each name stands with its file and line, and
    with why it is missing; the exit code is 1 if there are any. Names that are offered but behave differently are
    listed, too.

        greenroom check path/to/agents

    Parameters
    ----------
    directory
        A folder of Python files, or one file. Hidden folders and `node_modules` are passed over.
    """
    files = [directory] if directory.is_file() else sorted(_python_files(directory))
    if not files:
        raise InvalidRequest(f"There are no Python files in {directory}")
    names, missing = 0, 0
    for file in files:
        try:
            uses = sorted(set(_adk_uses(ast.parse(file.read_bytes(), str(file)))))
        except (SyntaxError, ValueError) as error:
            raise InvalidRequest(f"{file} is not valid Python: {error}") from error
        for use in uses:
            names += 1
            problem, difference = _judged(use.name)
            missing += problem is not None
            if problem or difference:
                output.print(f"{file}:{use.line}: {problem or difference}", markup=False)
    note(f"{names - missing} of {names} names of ADK are offered; files: {len(files)}")
    if missing:
        sys.exit(1)


def _python_files(directory: Path) -> Iterator[Path]:
    for file in directory.rglob("*.py"):
        folders = file.relative_to(directory).parts[:-1]
        if not any(folder.startswith(".") or folder == "node_modules" for folder in folders):
            yield file


def _adk_uses(tree: ast.AST) -> Iterator[_Use]:
    """Names imported from `google.adk…`, `greenroom` and `google.genai.types`, and attributes of the last one."""
    modules: set[str] = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or node.level:
            continue
        package = node.module or ""
        for alias in node.names:
            if alias.name == "types" and package in ("google.genai", "greenroom"):
                modules.add(alias.asname or "types")
            elif package in ("google.genai.types", "greenroom.types"):
                yield _Use(node.lineno, f"types.{alias.name}")
            elif package == "greenroom" or package == "google.adk" or package.startswith("google.adk."):
                yield _Use(node.lineno, alias.name)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            yield _Use(node.lineno, f"types.{node.attr}")


def _judged(name: str) -> tuple[str | None, str | None]:
    """Why a name is missing, and how it differs."""
    import greenroom
    from greenroom import types
    from greenroom.adk_names import adk_names

    if name.startswith("types."):
        missing = not hasattr(types, name.removeprefix("types."))
        return (f"greenroom has no {name} of google.genai" if missing else None), None
    adk_name = adk_names().get(name)
    if adk_name is not None:
        return adk_name.missing_because, f"{name} differs: {adk_name.words}" if adk_name.status == "differs" else None
    return (None if name in greenroom.__all__ else f"greenroom has no {name}; import what you use by its name"), None
