"""The contract of a tool."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Self, cast

from greenroom.errors import ToolError
from greenroom.invocation.user_context import ToolContext
from greenroom.records.approval_policy import ApprovalPolicy
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.model_exchange import LlmRequest
from greenroom.records.tool_declaration import FunctionDeclaration
from greenroom.records.wake_up import WakeUp

OnInterrupt = Literal["report", "retry"]
"""Policy for a call that a crash interrupted, whose effect is therefore unknown: the model gets an
error that says so, or the call is repeated with the same idempotency key.
"""


class BaseTool:
    """Something that an agent's model can call, or that edits the agent's requests to the model.

    is_long_running: the result comes in a later message; the return value of `run_async` is a preliminary response.
    behavior: in live runs, `NON_BLOCKING` lets the model continue while the tool runs; the default for streaming tools
        and those with response_scheduling.
    response_scheduling: a live model's reaction to a response: `SILENT`, `WHEN_IDLE` or `INTERRUPT`.
    shows_result: with `skip_summarization` the result is also sent as text.
    handles_rejection: the tool is also called when a person rejected the call.
    sends_events: `run_async` may send events of its own, like an agent that runs as a tool.
    runs_nodes: the tool is a node of a workflow, or runs such nodes.
    """

    name: str = ""
    description: str = ""
    is_long_running: bool = False
    on_interrupt: OnInterrupt = "report"
    behavior: str | None = None
    response_scheduling: str | None = None
    shows_result: ClassVar[bool] = False
    handles_rejection: ClassVar[bool] = False
    sends_events: bool = True
    runs_nodes: ClassVar[bool] = False
    _custom_metadata: Mapping[str, JsonValue] = MappingProxyType({})

    def __init__(
        self,
        *,
        name: str,
        description: str,
        is_long_running: bool = False,
        on_interrupt: OnInterrupt = "report",
        custom_metadata: JsonObject | None = None,
        behavior: str | None = None,
        response_scheduling: str | None = None,
    ) -> None:
        self.name = name
        self.description = description
        self.is_long_running = is_long_running
        self.on_interrupt = on_interrupt
        self.behavior = behavior
        self.response_scheduling = response_scheduling
        self._custom_metadata = cast("Mapping[str, JsonValue]", _read_only(custom_metadata or {}))

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        copied = copy.copy(self)
        memo[id(self)] = copied
        for name, value in vars(self).items():
            if name != "_custom_metadata":  # read-only views can be shared, and can't be copied
                setattr(copied, name, copy.deepcopy(value, memo))
        return copied

    @classmethod
    def from_config(cls, config: Any, config_abs_path: str) -> Self:
        """Creates the tool from a YAML file: config holds the entry's `args`, by attribute or by
        key.

        Override it to read them in another way; without that, YAML converts them to the types of
        the constructor.
        """
        return cls(**config)

    @property
    def custom_metadata(self) -> Mapping[str, JsonValue]:
        """JSON for programs that list tools. Read-only, nested values included."""
        return self._custom_metadata

    def _get_declaration(self) -> FunctionDeclaration | None:
        """The declaration for the model; None for a tool that only edits requests. Raises
        ToolDeclarationError.
        """
        return None

    async def run_async(self, *, args: JsonObject, tool_context: ToolContext) -> JsonValue:
        """Executes one call. A result that is no JSON object is wrapped as `{"result": value}`.

        A long-running tool that returns None leaves its call open. Tools without a declaration need
        not override this.
        """
        raise ToolError(f"Tool {self.name!r} can't be called: {type(self).__name__} has no run_async")

    def wake_up(self, args: JsonObject, *, now: float) -> WakeUp | None:
        """The time or signal that continues the run while a call of this long-running tool is open; None if only a
        client's response does.

        now: Unix seconds. Raises ToolError for arguments that the tool answers with an error, so that nothing is open.
        """
        return None

    async def check_require_confirmation(self, args: JsonObject, tool_context: ToolContext) -> bool | ApprovalPolicy:
        """Whether a person must approve a call with these arguments. Functions and MCP tools ask;
        override it there.
        """
        return False

    async def process_llm_request(
        self,
        *,
        tool_context: ToolContext,
        llm_request: LlmRequest,
    ) -> None:
        """Adds the tool's declaration to a request. Override it to edit the request in other ways."""
        llm_request.append_tools([self])


class ClientTool(BaseTool):
    """A function that the client of the run executes: its calls stay open until the client sends
    the responses.
    """

    sends_events = False

    def __init__(self, declaration: FunctionDeclaration) -> None:
        super().__init__(
            name=declaration.name or "",
            description=declaration.description or "",
            is_long_running=True,
            on_interrupt="retry",
        )
        self._declaration = declaration

    def _get_declaration(self) -> FunctionDeclaration:
        return self._declaration

    async def run_async(self, *, args: JsonObject, tool_context: ToolContext) -> None:
        """Leaves the call open."""


def newest_responses(tool_name: str, llm_request: LlmRequest) -> list[JsonObject]:
    """The tool's responses in the newest content of a request."""
    if llm_request.contents:
        parts = llm_request.contents[-1].parts
    else:
        parts = None
    responses = [part.function_response for part in parts or () if part.function_response is not None]
    return [response.response or {} for response in responses if response.name == tool_name]


def _read_only(value: JsonValue) -> JsonValue:
    if isinstance(value, dict):
        return MappingProxyType({key: _read_only(item) for key, item in cast("JsonObject", value).items()})
    if isinstance(value, list):
        return tuple(_read_only(item) for item in cast("list[JsonValue]", value))
    return value
