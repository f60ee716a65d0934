"""The contract of a check."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar, Literal, TypeAlias, get_args

from greenroom.errors import AgentConfigError
from greenroom.invocation.context import InvocationContext
from greenroom.records.base import JsonObject
from greenroom.records.model_exchange import LlmResponse
from greenroom.redaction.findings import Finding
from greenroom.tools.tool import BaseTool

Where: TypeAlias = Literal["user_message", "model_output", "tool_arguments", "tool_results"]
Action: TypeAlias = Literal["block", "redact", "ask"]

EVERYWHERE: tuple[Where, ...] = get_args(Where)


class GuardrailCheck:
    """A check of text, of tool calls, or both: override `find`, `refuse_call`, or both.

    name: named in events, traces and errors. where: what it looks at. on_violation: in place of the plugin's.
    """

    places: ClassVar[tuple[Where, ...]] = EVERYWHERE
    """The places that a check of this class can look at, and does by default."""

    reads_text: ClassVar[bool] = True
    """False for a check of tool calls only, which keeps no streamed text back."""
    judges_whole: ClassVar[bool] = False
    """True for a check that finds whole texts, not places in them: it gets JSON as one text."""

    def __init__(self, name: str, *, where: Iterable[Where] | None = None, on_violation: Action | None = None) -> None:
        self.name = name
        self.where: frozenset[Where] = frozenset(self.places if where is None else where)
        self.on_violation: Action | None = on_violation

        wrong = self.where.difference(self.places)
        if wrong or not self.where:
            given = ", ".join(sorted(wrong)) or "nothing"
            raise AgentConfigError(f"The check {name!r} can look at {', '.join(self.places)}, not at {given}")

    async def find(self, text: str, *, where: Where, ctx: InvocationContext, start: int = 0) -> Sequence[Finding]:
        """The violations in a text, in order and without overlaps. start: of the part that is not checked yet."""
        return ()

    def keep_back_from(self, text: str, start: int) -> int:
        """The index from which streamed text is kept back, as a violation may begin there whose end is still to come.

        text: of the message so far. start: index of the first character that was not sent yet, the default result: the
        text is kept back until its message is complete.
        """
        return start

    def refuse_call(self, tool: BaseTool, args: JsonObject) -> str | None:
        """The label of the violation by a tool call, without the text of its arguments; None for an allowed call."""
        return None

    def take_replies(self, ctx: InvocationContext) -> Sequence[LlmResponse]:
        """The replies of models that the check has called in this run since it was asked last: their usage counts."""
        return ()

    async def close(self) -> None:
        """Called when the runner closes."""


def pieces(text: str, most_characters: int) -> Iterator[str]:
    """A long text in pieces, each of which begins with the end of the one before."""
    overlap = most_characters // 20
    start = 0
    while start < len(text):
        yield text[start : start + most_characters]
        if start + most_characters >= len(text):
            return
        start += most_characters - overlap
