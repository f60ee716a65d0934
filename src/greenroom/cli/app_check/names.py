"""Names of ADK and of google.genai.types that greenroom lacks, or that behave differently."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from importlib.util import find_spec
from typing import NamedTuple

import greenroom
from greenroom import types
from greenroom.adk_names import adk_modules, adk_names, find_adk_name
from greenroom.cli.app_check.finding import Finding
from greenroom.cli.app_check.source import PythonFile

ADK = "google.adk"
GENAI_TYPES = "google.genai.types"


class KnownName(NamedTuple):
    """A name of ADK, of greenroom or of google.genai.types in a dotted origin."""

    module: str
    name: str


def known_name(origin: str) -> KnownName | None:
    """Parses an origin. None for modules, and for other packages."""
    if origin.startswith((f"{GENAI_TYPES}.", "greenroom.types.")):
        module = GENAI_TYPES if origin.startswith(GENAI_TYPES) else "greenroom.types"
        return KnownName(module, origin.removeprefix(f"{module}.").partition(".")[0])
    if origin.startswith(f"{ADK}."):
        return _name_of_adk(origin.split("."))
    if origin.startswith("greenroom."):
        _, name, *rest = origin.split(".")
        if name in adk_modules() and name not in greenroom.__all__:  # `from greenroom import agent_tool` works
            return KnownName("greenroom", rest[0]) if rest else None
        return KnownName("greenroom", name) if not _is_module_of_greenroom(name) else None
    return None


def _name_of_adk(parts: list[str]) -> KnownName | None:
    for at in range(2, len(parts)):
        part = parts[at]
        is_last = at == len(parts) - 1
        is_name = part in adk_names() or part in greenroom.__all__ or not part[0].islower()
        if is_name and (is_last or not _names_the_module(part, parts[at + 1])):
            return KnownName(".".join(parts[:at]), part)
    return None


def _names_the_module(part: str, following: str) -> bool:
    """Tools like `load_memory_tool` have the name of their module."""
    return part.islower() and following in adk_names()


def _is_module_of_greenroom(name: str) -> bool:
    return name not in greenroom.__all__ and find_spec(f"greenroom.{name}") is not None


def offered_object(origin: str) -> object | None:
    """The object of greenroom in place of a dotted origin; None if it has nothing, or only a stand-in."""
    adk_name = known_name(origin)
    if adk_name is None or not origin.endswith(f".{adk_name.name}"):
        return None
    if adk_name.module.endswith(".types"):
        return getattr(types, adk_name.name, None)
    row = find_adk_name(adk_name.module, adk_name.name) if adk_name.module != "greenroom" else None
    if adk_name.name not in greenroom.__all__ or (row is not None and row.missing_because is not None):
        return None
    return getattr(greenroom, adk_name.name)


def find_names(source: PythonFile, reexported: Collection[str] = ()) -> tuple[list[Finding], int]:
    """Returns the findings, and the number of ADK's names. reexported: names that other files import from this file."""
    lines: dict[KnownName, int] = {}
    used: dict[KnownName, int] = {}
    for line, origin, is_use, is_optional in _occurrences(source):
        adk_name = known_name(origin)
        if adk_name is None or is_optional:
            continue
        lines.setdefault(adk_name, line)
        if is_use or adk_name.name in reexported:
            used.setdefault(adk_name, line)

    findings = [
        finding for adk_name, line in lines.items() for finding in _judge(source, adk_name, line, adk_name in used)
    ]
    return [*findings, *_modules_to_rewrite(source)], len(lines)


def _occurrences(source: PythonFile) -> Iterator[tuple[int, str, bool, bool]]:
    """Line, origin, whether it is more than an import or a mention, and whether the code does without."""
    for one in source.imports:
        if one.name and not one.module.startswith("."):
            yield one.line, f"{one.module}.{one.name}", one.name == "*", one.is_optional
    for reference in source.references():
        yield reference.line, reference.origin, not reference.is_mention, reference.is_optional


def _judge(source: PythonFile, known: KnownName, line: int, is_used: bool) -> Iterator[Finding]:
    problem, difference = _words(known)
    if problem is not None:
        text = problem if is_used else f"{problem} (the app only mentions it, which does no harm)"
        yield Finding(source.path, line, text, is_missing=is_used)
    elif difference is not None:
        yield Finding(source.path, line, difference, is_missing=False)


def _words(name_in_adk: KnownName) -> tuple[str | None, str | None]:
    """The reason why a name is missing, and its difference."""
    module, name = name_in_adk
    if name == "*":
        return None, None
    if module.endswith(".types"):
        is_missing = not hasattr(types, name)
        return (f"greenroom has no types.{name} of google.genai" if is_missing else None), None

    row = find_adk_name(module, name)
    if row is None:
        is_missing = name not in greenroom.__all__
        return (f"greenroom has no {name}, and ADK 2.13 has none either" if is_missing else None), None
    difference = f"{name} differs: {row.words}" if row.status == "differs" else None
    return row.missing_because, difference


def _modules_to_rewrite(source: PythonFile) -> Iterator[Finding]:
    """Modules of ADK that can't be imported from greenroom by changing the module's path."""
    uses = list(source.references())
    for statement in source.imports:
        origin = f"{statement.module}.{statement.name}" if statement.name else statement.module
        if statement.is_optional or not f"{origin}.".startswith(f"{ADK}.") or known_name(origin) is not None:
            continue
        last = origin.rpartition(".")[2]
        if statement.name and (last in adk_modules() or statement.name == "*"):
            continue
        adk_names = [known_name(use.origin) for use in uses if use.root == statement.bound_as]
        names = sorted(
            {adk_name.name for adk_name in adk_names if adk_name is not None and adk_name.name in greenroom.__all__}
        )
        written = f"from {statement.module} import {statement.name}" if statement.name else f"import {statement.module}"
        instead = f"from greenroom import {', '.join(names)}" if names else "from greenroom import …"
        yield Finding(source.path, statement.line, f"`{written}`: greenroom has ADK's names in one module: `{instead}`")
