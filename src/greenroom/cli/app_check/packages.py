"""Finds missing packages: those that an app imports, and those that its parts of greenroom need."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution, requires
from importlib.util import find_spec
from pathlib import Path

import greenroom
from greenroom.cli.app_check.app_files import AppFiles
from greenroom.cli.app_check.config_files import models_in_config
from greenroom.cli.app_check.finding import Finding
from greenroom.cli.app_check.models import models_in
from greenroom.cli.app_check.names import ADK, GENAI_TYPES, known_name
from greenroom.cli.app_check.source import Import, PythonFile
from greenroom.models.by_name import LLMRegistry

_EXTRAS = {
    "greenroom.a2a.": "a2a",
    "greenroom.agents.frameworks.langgraph.": "langgraph",
    "greenroom.agents.remote_a2a.": "a2a",
    "greenroom.gates.a2a.": "a2a",
    "greenroom.gates.mcp.": "mcp",
    "greenroom.memory.firestore": "firestore",
    "greenroom.memory.postgres": "postgres",
    "greenroom.memory.vertex": "google",
    "greenroom.models.anthropic.": "anthropic",
    "greenroom.models.apigee": "gemini",
    "greenroom.models.gemini.": "gemini",
    "greenroom.models.langchain": "langchain",
    "greenroom.models.lite_llm": "litellm",
    "greenroom.models.openai.": "openai",
    "greenroom.sessions.firestore": "firestore",
    "greenroom.sessions.postgres": "postgres",
    "greenroom.sessions.vertex": "google",
    "greenroom.tools.application_integration.": "google",
    "greenroom.tools.mcp.": "mcp",
    "greenroom.tools.openapi.": "openapi",
    "greenroom.tools.retrieval.vertex": "google",
}
"""Modules of greenroom whose public names need an extra when they are used."""

_NEEDS_NOTHING = frozenset({"AGENT_CARD_WELL_KNOWN_PATH"})


def find_missing_packages(source: PythonFile, files: AppFiles) -> Iterator[Finding]:
    """Yields one finding for each missing package, at its first import."""
    seen: set[str] = set()
    for statement in source.imports:
        if statement.is_optional or statement.module == "__future__" or files.is_local(source.path, statement):
            continue
        module = _third_party_module(statement)
        if module is None or module in seen or is_importable(module):
            continue
        seen.add(module)
        requirement = _requirement_of(module)
        text = f"the package of the module {module} is not installed"
        if _comes_with_adk(module):
            text += "; google-adk brings it along"
        if statement.is_at_load:
            yield Finding(source.path, statement.line, text, requirement=requirement)
        else:
            yield Finding(source.path, statement.line, f"{text}; it is imported when it is used", is_missing=False)


def find_missing_extras(source: PythonFile) -> Iterator[Finding]:
    seen: set[str] = set()
    for call in source.calls():
        adk_name = known_name(call.origin)
        if adk_name is None or call.is_optional or adk_name.name in _NEEDS_NOTHING:
            continue
        extra = _extra_of(adk_name.name)
        if extra is not None and extra not in seen and not _is_extra_installed(extra):
            seen.add(extra)
            requirement = f"greenroom[{extra}]"
            yield Finding(
                source.path, call.node.lineno, f"{adk_name.name} needs {requirement!r}", requirement=requirement
            )


def requirements_of(files: AppFiles) -> tuple[set[str], set[str]]:
    """Returns the extras of greenroom that the apps use, and the other distributions that they import.

    Installed ones are included. Of models, only those whose names are in the files are known.
    """
    extras: set[str] = set()
    distributions: set[str] = set()
    for source in files.sources.values():
        for call in source.calls():
            adk_name = known_name(call.origin)
            extra = None if adk_name is None or adk_name.name in _NEEDS_NOTHING else _extra_of(adk_name.name)
            if extra is not None:
                extras.add(extra)

        for statement in source.imports:
            if statement.is_optional or statement.module == "__future__" or files.is_local(source.path, statement):
                continue
            module = _third_party_module(statement)
            if module is None:
                continue
            requirement = _requirement_of(module)
            if requirement.startswith("greenroom["):
                extras.add(requirement.removeprefix("greenroom[").removesuffix("]"))
            else:
                distributions.add(requirement)

    extras.update(extra for name in models_named_in(files) if (extra := LLMRegistry.extra_of(name)) is not None)
    return extras, distributions


def models_named_in(files: AppFiles) -> set[str]:
    """Returns the names of models that are in the files of the apps."""
    models = {name for source in files.sources.values() for name in models_in(source, files)}
    models.update(name for file in files.configs for name in models_in_config(file))
    return models


def _third_party_module(statement: Import) -> str | None:
    """Returns the longest part of the dotted name that names a package of others; None if there is none."""
    full = f"{statement.module}.{statement.name}" if statement.name else statement.module
    if f"{full}.".startswith((f"{ADK}.", f"{GENAI_TYPES}.", "greenroom.")):
        return None
    top = statement.module.partition(".")[0]
    if top in sys.stdlib_module_names:
        return None
    longest = max((module for module in _modules() if f"{full}.".startswith(f"{module}.")), key=len, default=None)
    return longest or (_longest_namespace(statement) if top == "google" else top)


def _longest_namespace(statement: Import) -> str:
    """Extends `google` and `google.cloud`, which are shared by several of Google's packages, by the next part of the
    name.
    """
    parts = statement.module.split(".")
    if len(parts) == 1 and statement.name:
        parts.append(statement.name)
    return ".".join(parts[: 3 if parts[1:2] == ["cloud"] else 2])


def is_importable(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # the package above it is missing
        return False


@cache
def requirements_of_adk() -> dict[str, dict[str, str]]:
    """The modules of the distributions that google-adk requires, and of those that its extras require."""
    return tomllib.loads(Path(__file__).with_name("packages.toml").read_text("utf-8"))


@cache
def _modules() -> dict[str, str]:
    """Distributions by the modules in them."""
    packages: dict[str, str] = {}
    for group in requirements_of_adk().values():
        for name, modules in group.items():
            packages.update(dict.fromkeys(modules.split(), name))
    return packages


def _comes_with_adk(module: str) -> bool:
    return _modules().get(module) in requirements_of_adk()["google-adk"]


def _requirement_of(module: str) -> str:
    """Returns the extra of greenroom that installs exactly this distribution, else the distribution."""
    name = _modules().get(module) or module.partition(".")[0].replace("_", "-")
    for extra, names in _extras().items():
        if names[0] == name and name != "httpx":
            return f"greenroom[{extra}]"
    return name


def _extra_of(name: str) -> str | None:
    home = f"{greenroom._HOME_OF.get(name, '')}."
    fitting = [prefix for prefix in _EXTRAS if home.startswith(prefix)]
    return _EXTRAS[max(fitting, key=len)] if fitting else None


def _is_extra_installed(extra: str) -> bool:
    for name in _extras().get(extra, []):
        try:
            distribution(name)
        except PackageNotFoundError:
            return False
    return True


@cache
def _extras() -> dict[str, list[str]]:
    """The distributions of each extra of greenroom."""
    packages: dict[str, list[str]] = {}
    for requirement in requires("greenroom") or ():
        extra = re.search(r"extra == [\"']([\w-]+)[\"']", requirement)
        name = re.match(r"[\w.-]+", requirement)
        if extra is not None and name is not None:
            packages.setdefault(extra[1], []).append(name[0].lower())
    return packages
