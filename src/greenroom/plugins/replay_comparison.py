"""Compares recorded and replayed requests, events and state."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from itertools import groupby
from typing import cast

from greenroom.plugins.recordings_file import RECORDINGS_CONFIG, REPLAY_CONFIG, dump, to_snake
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.event import Event
from greenroom.records.model_exchange import LlmRequest
from greenroom.records.prompt_marks import FROM_OTHER_AGENTS

_SHOWN_LINES = 60
_WHO = re.compile(r"\[([^\]]+)\]")

_CHANGES_EACH_TIME = ("id", "timestamp", "invocation_id", "long_running_tool_ids", "node_info")
_REQUESTS = ("requested_auth_configs", "requested_tool_confirmations")


def comparable_request(request: LlmRequest) -> JsonObject:
    """A request without transport options and labels; the order of tools and of concurrent agents doesn't matter."""
    plain = cast("JsonObject", to_snake(request))
    plain.pop("live_connect_config", None)
    config: JsonObject = plain.setdefault("config", {})
    config.pop("labels", None)
    entries: list[JsonObject] = config.pop("tools", [])
    declarations = [declared for entry in entries for declared in entry.pop("function_declarations", [])]
    config["tools"] = [*sorted(declarations, key=lambda one: one.get("name") or ""), *filter(None, entries)]
    contents: list[JsonObject] = plain.get("contents", [])
    plain["contents"] = []
    for _, group in groupby(contents, lambda content: _quoted_agent(content) is not None):
        plain["contents"] += sorted(group, key=lambda content: _quoted_agent(content) or "")
    return plain


def _quoted_agent(content: JsonObject) -> str | None:
    """The agent that is quoted in another one's prompt; empty when its name is not in the text."""
    parts = _parts(content)
    if len(parts) < 2 or parts[0].get("text") != FROM_OTHER_AGENTS:
        return None
    found = _WHO.match(parts[1].get("text") or "")
    return found[1] if found is not None else ""


def comparable_events(events: Iterable[Event]) -> list[JsonObject]:
    """Orders the events of concurrent branches by branch. Leaves out those of agents that run as tools, since a replay
    uses only their results."""
    ordered: list[JsonObject] = []
    outer = (event for event in events if event.isolation_scope is None)
    for _, group in groupby(outer, lambda event: event.branch is not None):
        ordered += map(comparable_event, sorted(group, key=lambda event: event.branch or ""))
    return ordered


def comparable_event(event: Event) -> JsonObject:
    """An event without ids, times and what else differs between runs."""
    plain = cast("JsonObject", to_snake(event))
    for name in _CHANGES_EACH_TIME:
        plain.pop(name, None)
    actions: JsonObject = plain.get("actions", {})
    for name in _REQUESTS:
        actions.pop(name, None)
    actions["state_delta"] = comparable_state(actions.get("state_delta") or {})
    plain["actions"] = {name: value for name, value in actions.items() if value not in (None, {})}
    for part in _parts(plain.get("content", {})):
        part.pop("thought_signature", None)
        for name in ("function_call", "function_response"):
            if name in part:
                part[name].pop("id", None)
    return plain


def comparable_state(state: JsonObject) -> JsonObject:
    return {key: value for key, value in state.items() if key not in (RECORDINGS_CONFIG, REPLAY_CONFIG)}


def difference(recorded: JsonValue, replayed: JsonValue) -> str:
    """A unified diff in YAML; empty when there is none."""
    if recorded == replayed:
        return ""
    texts = dump(recorded).splitlines(), dump(replayed).splitlines()
    lines = list(difflib.unified_diff(*texts, "recorded", "replayed", lineterm="", n=2))
    if len(lines) > _SHOWN_LINES:
        lines = [*lines[:_SHOWN_LINES], f"… {len(lines) - _SHOWN_LINES} more lines"]
    return "\n".join(lines)


def _parts(content: JsonObject) -> list[JsonObject]:
    return content.get("parts", [])
