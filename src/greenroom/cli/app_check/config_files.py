"""Names in agents' YAML files: classes, tools, callbacks and models."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

import greenroom
from greenroom.adk_names import adk_names
from greenroom.apps.component_registry import ComponentRegistry
from greenroom.apps.isolation import PrivatePackage
from greenroom.apps.load_yaml import SETTINGS_FILE
from greenroom.apps.yaml_config.agents import AgentBuilder
from greenroom.apps.yaml_config.document import ConfigFile, ConfigFileError, ConfigNode, read_document
from greenroom.apps.yaml_config.guardrails import check_nodes, read_guardrails
from greenroom.apps.yaml_config.keys import name_and_args
from greenroom.apps.yaml_config.references import References
from greenroom.cli.app_check.finding import Finding
from greenroom.cli.app_check.models import model_fault
from greenroom.cli.app_check.names import known_name
from greenroom.errors import MissingExtra

_PREFIX = "google.adk."
_CALLBACKS = frozenset(
    f"{when}_{what}_callback{plural}"
    for when in ("before", "after")
    for what in ("agent", "model", "tool")
    for plural in ("", "s")
)
_NAMED = _CALLBACKS | {"tools", "checks"}
"""Keys of lists of `name: …`."""


def find_in_config(file: Path, *, registers: bool) -> tuple[list[Finding], int]:
    """The findings, and how many names of ADK there are. Other YAML files, without agents, have none."""
    try:
        root = yaml.compose(file.read_text("utf-8", errors="replace"), Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark: Any = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark is not None else 1
        return [Finding(file, line, f"this is not valid YAML: {getattr(error, 'problem', None) or error}")], 0

    findings = _wrong_guardrails(file, registers=registers) if file.name == SETTINGS_FILE else []
    count = 0
    for kind, name, line in _names_in(root):
        if kind == "model":
            fault = model_fault(name, registers=registers)
            problem = fault
        else:
            count += 1
            problem = _missing(name)
        if problem is not None:
            findings.append(Finding(file, line, problem))
    return findings, count


def _wrong_guardrails(file: Path, *, registers: bool) -> list[Finding]:
    """The first mistake in the guardrails of an app's settings, and faults of the models of judges. Checks in the app's
    own code aren't looked at.
    """
    findings: list[Finding] = []
    config = ConfigFile(file, file.name)
    try:
        node = read_document(config).entries.get("guardrails")
        if node is not None:
            named = list(check_nodes(node))
            checks = [check for check in named if not _names_own_code(check)]
            listed = ConfigNode(checks, node.line, f"{node.key}.checks", config)
            references = References(PrivatePackage(file.parent.parent), file.parent)
            for check in checks:
                findings += _faults_of_model(check, registers=registers)
            if checks or not named:
                read_guardrails(
                    node.with_entries({**node.entries, "checks": listed}), AgentBuilder(file.parent, references)
                )
    except ConfigFileError as error:
        findings.append(Finding(file, error.line or 1, f"{error.key}: {error.problem}"))
    return findings


def _faults_of_model(check: ConfigNode, *, registers: bool) -> Iterator[Finding]:
    _, args = name_and_args(check)
    model = args.entries.get("model") if args is not None else None
    if model is not None and name_and_args(check)[0].text == "JudgeCheck":
        fault = model_fault(model.text, registers=registers)
        if fault is not None:
            yield Finding(check.file.path, model.line, fault)


def _names_own_code(check: ConfigNode) -> bool:
    name, args = name_and_args(check)
    return "." in name.text or (args is not None and "is_valid" in args.entries)


def models_in_config(file: Path) -> set[str]:
    """Returns the names of models in a YAML file of an agent; none if it is not valid YAML."""
    try:
        root = yaml.compose(file.read_text("utf-8", errors="replace"), Loader=yaml.SafeLoader)
    except yaml.YAMLError:
        return set()
    return {name for kind, name, _ in _names_in(root) if kind == "model"}


def _names_in(node: yaml.Node | None, key: str = "") -> Iterator[tuple[str, str, int]]:
    """Yields the names of classes and models below a node, with their keys and lines.

    key: the key that holds the node.
    """
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _names_in(item, key)
    elif isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            own_key = str(name.value)
            is_text = isinstance(value, yaml.ScalarNode)
            if is_text and own_key in ("agent_class", "model"):
                if value.value:
                    yield own_key, value.value, value.start_mark.line + 1
            elif is_text and own_key == "name" and key in _NAMED:
                yield key, value.value, value.start_mark.line + 1
            elif not is_text and own_key != "args":
                yield from _names_in(value, own_key)


def _missing(name: str) -> str | None:
    """The reason why a class, tool or function of this name is missing. Code of the app itself isn't looked for."""
    if "." in name and not name.startswith(_PREFIX):
        return None
    last = name.rpartition(".")[2]
    adk_name = known_name(name) if name.startswith(_PREFIX) else None
    row = adk_names().get(adk_name.name if adk_name is not None else last)
    if row is not None and row.missing_because is not None:
        return row.missing_because
    try:
        component = ComponentRegistry.get_instance().get(name)
    except (MissingExtra, ImportError, AttributeError):  # an extra is reported by its package
        return None
    if component is None and last not in greenroom.__all__:
        return f"greenroom has no component {name!r}"
    return None
