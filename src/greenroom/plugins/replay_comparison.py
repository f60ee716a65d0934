"""Compares recorded and replayed requests, events and state."""

from __future__ import annotations

import ast
import difflib
import json
import re
from collections.abc import Iterable
from itertools import groupby
from typing import Any, cast

from greenroom.plugins.recording_schema import one_spelling
from greenroom.plugins.recordings_file import RECORDINGS_CONFIG, REPLAY_CONFIG, dump, to_snake
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.event import Event
from greenroom.records.model_exchange import LlmRequest
from greenroom.records.prompt_marks import FROM_OTHER_AGENTS
from greenroom.records.tool_declaration import FunctionDeclaration

_SHOWN_LINES = 60
_TRANSFER_TOOL = "transfer_to_agent"

_RELAYED = (
    re.compile(
        r"\[(?P<who>[^\]]+)\] called (?:the )?tool `(?P<tool>[^`]+)` with (?:parameters: )?(?P<data>.*)", re.DOTALL
    ),
    re.compile(r"\[(?P<who>[^\]]+)\] got from `(?P<tool>[^`]+)`: (?P<data>.*)", re.DOTALL),
    re.compile(r"\[(?P<who>[^\]]+)\] `(?P<tool>[^`]+)` tool returned result: (?P<data>.*)", re.DOTALL),
)
"""How ADK and we tell an agent what another one did with a tool; the first is a call, the others are results."""

_WHO = re.compile(r"\[([^\]]+)\]")

_CHANGES_EACH_TIME = ("id", "timestamp", "invocation_id", "long_running_tool_ids", "node_info")
_REQUESTS = ("requested_auth_configs", "requested_tool_confirmations")


def comparable_request(request: LlmRequest) -> JsonObject:
    """A request without what may differ: transport, labels, and how tools and other agents' turns are described."""
    plain = cast("JsonObject", to_snake(request))
    plain.pop("live_connect_config", None)
    config: JsonObject = plain.setdefault("config", {})
    config.pop("labels", None)
    entries: list[JsonObject] = config.pop("tools", [])
    others = [{k: v for k, v in entry.items() if k != "function_declarations"} for entry in entries]
    declared = sorted((_declaration(d) for d in request.function_declarations()), key=lambda d: d["name"] or "")
    config["tools"] = [*declared, *(entry for entry in others if entry)]
    contents: list[JsonObject] = plain.get("contents", [])
    for content in contents:
        for part in _parts(content):
            if isinstance(part.get("text"), str):
                part["text"] = _relayed(part["text"])
    plain["contents"] = _in_order_of_agents(contents)
    return plain


def _in_order_of_agents(contents: list[JsonObject]) -> list[JsonObject]:
    """What several agents did in a row is told agent by agent: side by side, they take turns as it happens."""
    ordered: list[JsonObject] = []
    for is_relayed, row in groupby(contents, lambda content: _relayed_agent(content) is not None):
        in_a_row = list(row)
        if is_relayed:
            in_a_row.sort(key=lambda content: _relayed_agent(content) or "")
        ordered += in_a_row
    return ordered


def _relayed_agent(content: JsonObject) -> str | None:
    parts = _parts(content)
    if len(parts) < 2 or parts[0].get("text") != FROM_OTHER_AGENTS:
        return None
    said: JsonValue = parts[1].get("text")
    if isinstance(said, dict):
        return str(cast("JsonObject", said)["agent"])
    found = _WHO.match(said or "")
    return found[1] if found is not None else ""


def comparable_events(events: Iterable[Event]) -> list[JsonObject]:
    """Those of branches side by side are laid branch by branch; those of agents that run as tools are left out, since a
    replay takes only their answers."""
    ordered: list[JsonObject] = []
    outer = (event for event in events if event.isolation_scope is None)
    for in_branch, row in groupby(outer, lambda event: event.branch is not None):
        in_a_row = list(row)
        if in_branch:
            in_a_row.sort(key=lambda event: event.branch or "")
        ordered += [comparable_event(event) for event in in_a_row]
    return ordered


def comparable_event(event: Event) -> JsonObject:
    """An event without what is made anew in every run."""
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
    lines = list(difflib.unified_diff(_lines(recorded), _lines(replayed), "recorded", "replayed", lineterm="", n=2))
    if len(lines) > _SHOWN_LINES:
        lines = [*lines[:_SHOWN_LINES], f"… {len(lines) - _SHOWN_LINES} more lines"]
    return "\n".join(lines)


def _lines(value: JsonValue) -> list[str]:
    return dump(value).splitlines()


def _parts(content: JsonObject) -> list[JsonObject]:
    return content.get("parts", [])


def _declaration(declaration: FunctionDeclaration) -> JsonObject:
    schema = declaration.json_schema()
    if declaration.name == _TRANSFER_TOOL:  # each framework describes it in its own words, and not all of them return
        properties = {name: about for name, about in schema.get("properties", {}).items() if name != "return"}
        schema = {**schema, "properties": properties} if properties else schema
        return {"name": declaration.name, "description": None, "parameters": one_spelling(schema)}
    return {
        "name": declaration.name,
        "description": declaration.description,
        "parameters": one_spelling(schema),
    }


def _relayed(text: str) -> JsonValue:
    for index, pattern in enumerate(_RELAYED):
        found = pattern.fullmatch(text)
        if found is not None:
            data = _data(found["data"])
            if data is not None:
                return {"agent": found["who"], "call" if index == 0 else "result": found["tool"], "data": data}
    return text


def _data(text: str) -> Any:
    """JSON, or a map as Python prints it."""
    try:
        return json.loads(text)
    except ValueError:
        pass
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return None
