"""Interrupts of a graph as requests to a person, and their answers.

An interrupt is a request for input that shows its value. The interrupts of LangChain's middleware for approvals are
requests for approvals, one for each call; a breakpoint is a request without a value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from langgraph.types import Command, Interrupt

from greenroom.agents.frameworks.hosted import HostedTurn
from greenroom.agents.frameworks.langgraph.graph_io import shown
from greenroom.agents.workflow.requests import CONFIRMATION_SCHEMA, read_decision
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.event import Event
from greenroom.records.human_requests import NODE_CONFIRMATION

_BREAKPOINT = "breakpoint"


def requests_for(turn: HostedTurn, interrupt: Interrupt, *, number: int) -> list[Event]:
    """The events that ask a person. Interrupts of one task share an id: number is how many of them were answered."""
    request_id = f"{interrupt.id}-{number}"
    actions = _actions(interrupt.value)
    if not actions:
        return [turn.request_input(request_id, payload=shown(interrupt.value))]

    return [
        turn.request_input(
            f"{NODE_CONFIRMATION}{request_id}:{index}",
            payload={"tool_name": action.get("name"), "args": action.get("args") or action.get("arguments") or {}},
            message=action.get("description") or f"May {action.get('name')} be called with these arguments?",
            response_schema=CONFIRMATION_SCHEMA,
        )
        for index, action in enumerate(actions)
    ]


def breakpoint_request(turn: HostedTurn, checkpoint_id: str, nodes: tuple[str, ...]) -> Event:
    message = f"The graph halts before {', '.join(nodes)}. Any answer lets it continue."
    return turn.request_input(f"{_BREAKPOINT}-{checkpoint_id}", payload={"next": list(nodes)}, message=message)


def command_for(inputs: Mapping[str, JsonValue]) -> Command[Any] | None:
    """The command that answers the graph's interrupts; None for a breakpoint."""
    resume: dict[str, Any] = {}
    decisions: dict[str, dict[int, JsonObject]] = {}
    for request_id, answer in inputs.items():
        name, _, index = request_id.removeprefix(NODE_CONFIRMATION).partition(":")
        interrupt_id = name.partition("-")[0]
        if request_id.startswith(NODE_CONFIRMATION):
            decisions.setdefault(interrupt_id, {})[int(index)] = _decision(answer)
        elif interrupt_id != _BREAKPOINT:
            resume[interrupt_id] = answer

    for interrupt_id, by_index in decisions.items():
        resume[interrupt_id] = {"decisions": [by_index[index] for index in sorted(by_index)]}
    return Command(resume=resume) if resume else None


def _actions(value: Any) -> list[JsonObject]:
    """The calls that LangChain's middleware asks about."""
    if not isinstance(value, dict) or "action_requests" not in value or "review_configs" not in value:
        return []
    return cast("list[JsonObject]", value["action_requests"])


def _decision(answer: JsonValue) -> JsonObject:
    decision = read_decision(answer)
    if not decision.confirmed:
        return {"type": "reject", "message": decision.hint or "A person refused this call."}
    edited: Any = decision.payload
    if isinstance(edited, dict) and "name" in edited and "args" in edited:
        return {"type": "edit", "edited_action": edited}
    return {"type": "approve"}
