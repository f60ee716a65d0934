"""`greenroom check`: what apps lack, of ADK's names and for their models, without running them."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from greenroom.cli.terminal import note, print_line
from greenroom.errors import InvalidRequest


class _Use(NamedTuple):
    line: int
    name: str
    """Of ADK, or with `types.` before it, of google.genai.types."""


def check(directory: Path, /) -> None:
    """Say which names of ADK an app imports that greenroom does not have, and what its models need.

    Reads all Python files and YAML agents below the folder and runs none. Each name stands with its file and line, and
    with why it is missing; so does each model's name in an agent whose package, key or file is missing, with the
    command or variable that mends it; `.env` files count. The exit code is 1 if there are any. Names that are offered
    but behave differently are listed, too.

        greenroom check path/to/agents

    Parameters
    ----------
    directory
        A folder of Python files, or one file. Hidden folders and `node_modules` are passed over.
    """
    from greenroom.apps.env_file import load_env_file
    from greenroom.models.by_name import LLMRegistry

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
                print_line(f"{file}:{use.line}: {problem or difference}")
    lacking = 0
    for file, line, model in _models(directory, files):
        load_env_file(file.parent)
        fault = LLMRegistry.fault(model)
        if fault is not None:
            lacking += 1
            print_line(f"{file}:{line}: {fault}")
    note(f"{names - missing} of {names} names of ADK are offered; files: {len(files)}")
    if missing or lacking:
        sys.exit(1)


def _models(directory: Path, files: list[Path]) -> Iterator[tuple[Path, int, str]]:
    """Files, lines and the models' names of agents. Names that an app registers by itself aren't known here."""
    from greenroom.models.by_name import LLMRegistry

    registers = any(b"LLMRegistry" in file.read_bytes() for file in files)
    found = [(file, *one) for file in files for one in _models_of(ast.parse(file.read_bytes()))]
    for file in sorted(directory.rglob("*.yaml")) if directory.is_dir() else ():
        for number, line in enumerate(file.read_text(errors="replace").splitlines(), 1):
            if match := re.match(r"""model:\s+["']?([^"'#\s]+)""", line):
                found.append((file, number, match[1]))
    return (one for one in found if not registers or LLMRegistry.knows(one[2]))


def _models_of(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """From `model=` in the calls of classes whose names end with Agent, and from what wraps models: names or lists."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        is_wrapper = called in ("FallbackModel", "RetryingLlm")
        given = [one.value for one in node.keywords if one.arg == "model" or (is_wrapper and one.arg == "models")]
        for models in [*node.args[:1], *given] if is_wrapper else given if called.endswith("Agent") else ():
            for value in models.elts if isinstance(models, ast.List | ast.Tuple) else [models]:
                if isinstance(value, ast.Constant) and isinstance(value.value, str) and value.value:
                    yield value.lineno, value.value


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
    """Returns why a name is missing, and how it differs."""
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
