"""Compares two versions of an app: what a model sees of its agents, and their files."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence

from greenroom.records.app_version import (
    AgentChange,
    AgentDescription,
    Change,
    FieldChange,
    FileChange,
    ToolChange,
)
from greenroom.records.base import JsonValue
from greenroom.records.tool_declaration import FunctionDeclaration

MAX_DIFF_LINES = 4000
"""Of one text in a diff; longer ones are only said to differ."""
MAX_DIFF_CHARS = 1_000_000
"""Of the diffs of all files together; further ones are only said to differ."""

_FIELDS = ("kind", "description", "instruction", "global_instruction", "model", "sub_agents")


def compare_agents(before: Sequence[AgentDescription], after: Sequence[AgentDescription]) -> list[AgentChange]:
    """The agents that differ, by name."""
    first = {agent.name: agent for agent in before}
    second = {agent.name: agent for agent in after}
    changes: list[AgentChange] = []
    for name in sorted({*first, *second}):
        old = first.get(name)
        new = second.get(name)
        fields = list(_field_changes(old, new))
        tools = _tool_changes(old.tools if old is not None else (), new.tools if new is not None else ())
        if fields or tools or old is None or new is None:
            changes.append(AgentChange(name=name, change=_change(old, new), fields=fields, tools=tools))
    return changes


def compare_files(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> list[FileChange]:
    """The files that differ, by path."""
    changes: list[FileChange] = []
    left = MAX_DIFF_CHARS
    for path in sorted({*before, *after}):
        old = before.get(path)
        new = after.get(path)
        if old == new:
            continue
        diff = _diff_of_files(old, new) if left > 0 else None
        left -= len(diff or "")
        changes.append(FileChange(path=path, change=_change(old, new), diff=diff))
    return changes


def diff_of(before: str, after: str) -> str | None:
    """A unified diff without file names; None for texts that are too long."""
    first = before.splitlines()
    second = after.splitlines()
    if max(len(first), len(second)) > MAX_DIFF_LINES:
        return None
    return "\n".join(list(difflib.unified_diff(first, second, lineterm=""))[2:])


def _change(before: object | None, after: object | None) -> Change:
    if before is None:
        return "added"
    return "removed" if after is None else "changed"


def _field_changes(before: AgentDescription | None, after: AgentDescription | None) -> Iterator[FieldChange]:
    old = _values_of(before)
    new = _values_of(after)
    for field in dict.fromkeys([*old, *new]):
        first = old.get(field)
        second = new.get(field)
        if first != second:
            yield FieldChange(field=field, before=first, after=second, diff=_diff_of_values(first, second))


def _values_of(agent: AgentDescription | None) -> dict[str, JsonValue]:
    if agent is None:
        return {}
    values = {field: getattr(agent, field) or None for field in _FIELDS}
    return {**values, **{f"settings.{name}": value for name, value in agent.settings.items()}}


def _diff_of_values(before: JsonValue, after: JsonValue) -> str | None:
    """None unless they are texts, one of them with several lines."""
    texts = [value or "" for value in (before, after)]
    if not all(isinstance(text, str) for text in texts) or not any("\n" in text for text in texts):
        return None
    return diff_of(*texts)


def _tool_changes(before: Sequence[FunctionDeclaration], after: Sequence[FunctionDeclaration]) -> list[ToolChange]:
    first = {tool.name or "": tool for tool in before}
    second = {tool.name or "": tool for tool in after}
    changes: list[ToolChange] = []
    for name in sorted({*first, *second}):
        old = first.get(name)
        new = second.get(name)
        if old != new:
            changes.append(ToolChange(name=name, change=_change(old, new), before=old, after=new))
    return changes


def _diff_of_files(before: bytes | None, after: bytes | None) -> str | None:
    try:
        return diff_of((before or b"").decode(), (after or b"").decode())
    except UnicodeDecodeError:
        return None
