"""The progress of an agent of Pydantic AI, as the states in the log hold it.

A state has one of:

    {"messages": [...]}                     messages that have been added to the history
    {"messages": [...], "replaces": true}   the whole history, after one of its processors has shortened it
    {"results": {"c-1": {"returned": 5}}}   what a tool has returned, before the history has it
    {"decided": {"c-2": {...}}}             answers of people and clients, by the id of the call

Results and answers belong to the calls of the newest response; the next messages contain what became of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelResponse, repair_messages

from greenroom.records.base import JsonObject


class Progress:
    """The history, and what has been done about the calls of its newest response."""

    def __init__(self, states: Iterable[JsonObject]) -> None:
        stored: list[JsonObject] = []
        self.results: dict[str, JsonObject] = {}
        """Results of tools, as `dump_result` has it, by the id of the call."""

        self.decided: dict[str, JsonObject] = {}
        """Answers: `{"confirmed": bool, "args": {...}}`, or `{"response": {...}}`."""

        for state in states:
            if "messages" in state:
                stored = [*([] if state.get("replaces") else stored), *cast("list[JsonObject]", state["messages"])]
                self.results = {}
                self.decided = {}
            self.results.update(cast("dict[str, JsonObject]", state.get("results", {})))
            self.decided.update(cast("dict[str, JsonObject]", state.get("decided", {})))

        self.messages: list[ModelMessage] = ModelMessagesTypeAdapter.validate_python(stored)
        self._known = 0

    def history(self, *, has_prompt: bool) -> list[ModelMessage]:
        """The history that a run of the agent begins with.

        has_prompt: the user says something new, so that calls which were never made are closed.
        """
        history = repair_messages(self.messages, repair_last_response=has_prompt)
        self._known = len(history)
        return history

    @property
    def is_halted_at_calls(self) -> bool:
        """Whether the history ends with calls."""
        last = self.messages[-1] if self.messages else None
        return isinstance(last, ModelResponse) and bool(last.tool_calls)

    def add(self, messages: Sequence[ModelMessage], *, at_least: int) -> JsonObject:
        """The state for the history as it is now.

        at_least: how many of the last messages are new. If there are fewer before them than were known, the history
        was replaced.
        """
        is_replaced = len(messages) - at_least < self._known
        added = messages if is_replaced else messages[self._known :]
        self._known = len(messages)
        self.results = {}
        self.decided = {}

        state: JsonObject = {"messages": ModelMessagesTypeAdapter.dump_python(list(added), mode="json")}
        if is_replaced:
            state["replaces"] = True
        return state
