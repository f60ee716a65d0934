"""The progress of an agent of the OpenAI Agents SDK, as the states in the log hold it.

A state has one or several of:

    {"input": [...]}                        a turn begins with these items of the user
    {"response": [...], "agent": "Billing"} the items of a model's response, and the agent whose model was called
    {"results": {"c-1": "paid"}}            what a tool has returned, by the id of the call
    {"outputs": [...]}                      the items of other answers to calls: of hand-offs and refused calls
    {"handoffs": {"c-2": "Billing"}}        the agent that a call has handed the conversation to
    {"decided": {"c-3": {...}}}             what people have decided about calls
    {"blocked": true}                       a guardrail has refused the turn's input, which the history leaves out

A turn that was cut off is run again from its beginning, with the responses and results that it has recorded: the SDK
then takes the same way through hand-offs, filters and guardrails, up to the first call that isn't recorded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, NamedTuple, cast

import msgspec
from agents.items import ItemHelpers, ModelResponse, TResponseInputItem, TResponseOutputItem
from agents.usage import Usage
from openai.types.responses import ResponseFunctionToolCall
from pydantic import TypeAdapter
from pydantic_core import to_jsonable_python

from greenroom.records.base import JsonObject

_NEVER_MADE = "This call was never made: the run that it belongs to has ended before."


@cache
def _output_items() -> TypeAdapter[list[TResponseOutputItem]]:
    """Built on first use, which takes time."""
    return TypeAdapter(list[TResponseOutputItem])


class RecordedResponse(NamedTuple):
    """A response of a model in the turn."""

    agent: str
    output: list[JsonObject]

    def to_response(self) -> ModelResponse:
        """The response as the model gave it, without its usage, which has been counted."""
        return ModelResponse(_output_items().validate_python(self.output), Usage(), response_id=None)


class Progress:
    """The history, and what has been recorded of the turn."""

    def __init__(self, states: Iterable[JsonObject], *, is_continued: bool) -> None:
        self.history: list[JsonObject] = []
        """The items of the turns before."""

        self.first_agent: str | None = None
        """The name of the agent that the turn begins with. None: the hosted one."""

        self.agent: str | None = None
        """The name of the agent that has the conversation now."""

        self._begin([])
        for state in states:
            self._add(state)

        self.is_begun = is_continued
        """Whether the turn's input is stored."""
        if not is_continued:
            self._end()

    def _begin(self, items: list[JsonObject]) -> None:
        self.input = items
        """The user's items that the turn began with."""

        self.responses: deque[RecordedResponse] = deque()
        self.results: dict[str, Any] = {}
        """Results of tools, by the id of the call."""

        self.outputs: dict[str, JsonObject] = {}
        """Other answers to calls, by the id of the call."""

        self.handoffs: dict[str, str] = {}
        """Names of agents, by the id of the call that has handed over to them."""

        self.decided: dict[str, JsonObject] = {}
        """Decisions about calls: `{"confirmed": bool, "args": {...}}`."""

        self.first_agent = self.agent

    def _end(self) -> None:
        """Adds the items of the turn to the history."""
        self.history += self._items()
        self._begin([])

    def _add(self, state: JsonObject) -> None:
        if "input" in state:
            self._end()
            self._begin(cast("list[JsonObject]", state["input"]))
        if "response" in state:
            self.agent = str(state["agent"])
            self.responses.append(RecordedResponse(self.agent, cast("list[JsonObject]", state["response"])))
        for call_id, name in cast("dict[str, str]", state.get("handoffs", {})).items():
            self.handoffs[call_id] = name
            self.agent = name
        for item in cast("list[JsonObject]", state.get("outputs", [])):
            self.outputs[call_of(item) or ""] = item
        self.results.update(cast("JsonObject", state.get("results", {})))
        self.decided.update(cast("dict[str, JsonObject]", state.get("decided", {})))
        if state.get("blocked"):
            self.agent = self.first_agent
            self._begin([])

    def begin(self, items: list[JsonObject]) -> None:
        """Begins a turn with the user's items."""
        self._begin(items)

    def _items(self) -> Iterator[JsonObject]:
        """The items of the turn, in which each call has its answer."""
        yield from self.input
        for response in self.responses:
            answers: list[JsonObject] = []
            for item in response.output:
                if not awaits_output(item):
                    yield item
                elif (answer := self._answer(item)) is not None:
                    yield item
                    answers.append(answer)
            yield from answers

    def _answer(self, call: JsonObject) -> JsonObject | None:
        """The answer to a call. None for calls of other kinds than functions that were never made."""
        call_id = str(call_of(call))
        if call_id in self.outputs:
            return self.outputs[call_id]
        if call["type"] != "function_call":
            return None
        return output_item(call_id, self.results.get(call_id, _NEVER_MADE))


def call_of(item: JsonObject) -> str | None:
    """The id of the call that an item is, or answers."""
    if item.get("type") == "mcp_approval_request":
        return item.get("id")
    return item.get("call_id") or item.get("approval_request_id")


def awaits_output(item: JsonObject) -> bool:
    """Whether an item is a call that the SDK or an app answers. The service itself answers other calls."""
    kind = str(item.get("type", ""))
    return kind == "mcp_approval_request" or (kind.endswith("_call") and item.get("call_id") is not None)


def is_output(item: JsonObject) -> bool:
    """Whether an item answers a call."""
    kind = str(item.get("type", ""))
    return kind == "mcp_approval_response" or (kind.endswith("_output") and item.get("call_id") is not None)


def output_item(call_id: str, value: object) -> JsonObject:
    """The item for what a function has returned, as the SDK makes it."""
    call = ResponseFunctionToolCall(call_id=call_id, name="", arguments="", type="function_call")
    return cast("JsonObject", ItemHelpers.tool_call_output_item(call, value))


def to_state(agent: str, response: ModelResponse) -> JsonObject:
    """The state for a model's response."""
    return {"response": to_jsonable_python(response.to_input_items()), "agent": agent}


def input_items(items: Iterable[JsonObject]) -> list[TResponseInputItem]:
    """The items for a run of the SDK: a copy, which the app's filters may change."""
    return msgspec.json.decode(msgspec.json.encode(list(items)))
