"""Tools that need a person's approval, and the answers a person gives."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from greenroom.invocation.user_context import ToolContext
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.content import Content, FunctionCall, FunctionResponse, Part
from greenroom.records.event import Event
from greenroom.records.human_requests import REQUEST_CONFIRMATION, requests_in
from greenroom.records.tool_declaration import FunctionDeclaration
from greenroom.tools.tool import BaseTool

WAITS = {"error": "pay has not run yet: the call needs approval or rejection by a person first."}
REFUSED = {"error": "A person refused this call; it was not made."}


class Till:
    """The payments that were made."""

    def __init__(self) -> None:
        self.paid: list[int] = []

    def pay(self, amount: int) -> dict[str, int]:
        """Pays an amount."""
        self.paid.append(amount)
        return {"paid": amount}


class Asking(BaseTool):
    """A tool of a class of its own that asks in its body, so many times, and keeps what it was given."""

    def __init__(self, name: str = "ask", *, times: int = 1, payload: JsonValue = None) -> None:
        super().__init__(name=name, description="Asks first.", on_interrupt="retry")
        self.times = times
        self.payload = payload
        self.seen: list[tuple[JsonObject, JsonValue]] = []

    def _get_declaration(self) -> FunctionDeclaration:
        return FunctionDeclaration(name=self.name, description=self.description)

    async def run_async(self, *, args: JsonObject, tool_context: ToolContext) -> JsonValue:
        answer = tool_context.tool_confirmation
        self.seen.append((args, answer.payload if answer is not None else None))
        if len(self.seen) <= self.times:
            tool_context.request_confirmation(hint=f"Question {len(self.seen)}", payload=self.payload)
            return {"status": "asked"}
        return {"status": "done"}


def requests(events: Iterable[Event]) -> list[FunctionCall]:
    """Requests to a person, in the order of the log."""
    return [request for event in events for request in requests_in(event)]


def request_ids(events: Iterable[Event]) -> list[str]:
    return [request.id or "" for request in requests(events)]


def decide(*request_id: str, confirmed: bool = True, wrapped: bool = False, **more: Any) -> Content:
    """A person's answer to these requests."""
    answer: JsonObject = {"confirmed": confirmed, **more}
    response: JsonObject = {"response": json.dumps(answer)} if wrapped else answer
    return Content(
        role="user",
        parts=[
            Part(function_response=FunctionResponse(id=one, name=REQUEST_CONFIRMATION, response=response))
            for one in request_id
        ],
    )


def together(*messages: Content) -> Content:
    return Content(role="user", parts=[part for message in messages for part in message.parts or ()])
