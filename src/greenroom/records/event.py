"""Events: the entries of a session's log, with their side effects on the session.

Source of names and shapes: ADK's HTTP surface. `id`, `invocationId`, `author`, `timestamp` and
`actions` with its four maps are always written, because ADK's clients refuse an event without them.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, cast

import msgspec

from greenroom.records.base import JsonObject, JsonValue, Record, empty_map
from greenroom.records.content import Content, UserContent
from greenroom.records.identifiers import new_event_id
from greenroom.records.model_exchange import LlmResponse

RESERVED = ("greenroom:", "greenroom_")
"""Prefixes of keys in the custom metadata of events that clients can't set."""

RETRY = "greenroom:retry"
"""Key in the custom metadata of the event with which the retry of a run begins."""


def without_reserved(metadata: JsonObject | None) -> JsonObject | None:
    """A client's metadata without reserved keys."""
    if not metadata or not any(key.startswith(RESERVED) for key in metadata):
        return metadata
    return {key: value for key, value in metadata.items() if not key.startswith(RESERVED)} or None


class EventCompaction(Record, kw_only=True):
    """A summary that replaces all events between the two times (Unix seconds, both included)."""

    start_timestamp: float
    """Time of the first event that is replaced, Unix seconds."""
    end_timestamp: float
    """Time of the last event that is replaced, Unix seconds."""
    compacted_content: Content
    """The summary."""


class ToolConfirmation(Record, kw_only=True):
    """An approval of a tool call: the request or its answer."""

    hint: str = msgspec.field(default_factory=str)
    """The question for the user."""
    confirmed: bool = msgspec.field(default_factory=bool)
    """Whether the user approved."""
    payload: JsonValue = None
    """Data that the tool requests from the user, or the user's answer."""


class UiWidget(Record, kw_only=True, omit_defaults=False):
    """A part of a user interface, rendered by its provider."""

    id: str
    provider: str
    payload: JsonObject = msgspec.field(default_factory=empty_map)
    """In the provider's own form."""


class NodeInfo(Record, kw_only=True):
    """Position in a workflow that an event comes from."""

    path: str = msgspec.field(default_factory=str)
    """`wf@1/node@2`; empty in apps without a workflow."""
    output_for: list[str] | None = None
    """Paths of the nodes whose output it is."""
    message_as_output: bool | None = None
    """Whether the output is the content's text."""


class EventActions(Record, kw_only=True):
    """Side effects of an event."""

    state_delta: JsonObject = msgspec.field(default_factory=empty_map)
    """Changes of the state by key; `__ADK_SENTINEL_REMOVED__` removes the key."""
    artifact_delta: dict[str, int] = msgspec.field(default_factory=empty_map)
    """New versions of artifacts by file name."""
    requested_auth_configs: JsonObject = msgspec.field(default_factory=empty_map)
    """Requested logins by the id of the function call."""
    requested_tool_confirmations: dict[str, ToolConfirmation] = msgspec.field(default_factory=empty_map)
    """Requested approvals by the id of the function call."""
    skip_summarization: bool | None = None
    """Whether the function response is the answer, without another model call."""
    transfer_to_agent: str | None = None
    """The agent that continues."""
    transfer_reason: str | None = None
    """The reason for the transfer."""
    escalate: bool | None = None
    """Whether an enclosing loop ends."""
    end_of_agent: bool | None = None
    """Whether the agent has finished in this run."""
    agent_state: JsonObject | None = None
    """Checkpoint of a workflow agent."""
    compaction: EventCompaction | None = None
    """The summary that replaces older events."""
    rewind_before_invocation_id: str | None = None
    """The run before which the session is reset."""
    route: JsonValue = None
    """The value that selects the next edges of a workflow."""
    render_ui_widgets: list[JsonObject] | None = None
    """User interface parts to render."""
    set_model_response: JsonValue = None
    """The final structured response of the agent."""
    deleted_artifact_ids: list[str] = []  # noqa: RUF012 - msgspec makes a new one each time
    """Written only when it is set: ADK for Java has it, and ADK's Python client refuses it."""
    end_invocation: bool | None = None
    """Written only when it is set: ADK for Java has it, and ADK's Python client refuses it."""

    def merge(self, other: EventActions) -> None:
        """Adds the actions of a parallel call. Maps are merged recursively; on a conflict the other's value wins."""
        _merge_maps(self.state_delta, other.state_delta)
        for field in _MAPS[1:]:
            getattr(self, field).update(getattr(other, field))
        for field in _LATER_WINS:
            value = getattr(other, field)
            if value is not None:
                setattr(self, field, value)

        for field in _LISTS:
            if more := getattr(other, field):
                setattr(self, field, [*(getattr(self, field) or ()), *more])


_MAPS = ("state_delta", "artifact_delta", "requested_auth_configs", "requested_tool_confirmations")
_LISTS = ("deleted_artifact_ids", "render_ui_widgets")
_LATER_WINS = [name for name in EventActions.__struct_fields__ if name not in (*_MAPS, *_LISTS)]


def _merge_maps(target: JsonObject, source: JsonObject) -> None:
    for key, value in source.items():
        current: Any = target.get(key)
        if isinstance(current, dict) and isinstance(value, dict):
            _merge_maps(cast("JsonObject", current), cast("JsonObject", value))
        else:
            target[key] = value


class Event(LlmResponse, kw_only=True):
    """A complete event is stored and immutable; a partial one is only streamed."""

    id: str = msgspec.field(default_factory=new_event_id)
    """The event's id, unique in its session."""
    invocation_id: str = msgspec.field(default_factory=str)
    """The id of the run that wrote it."""
    if TYPE_CHECKING:
        author: str = ""
    else:
        author: str
        """"user" or the name of an agent."""
    timestamp: float = msgspec.field(default_factory=time.time)
    """Unix seconds."""
    actions: EventActions = msgspec.field(default_factory=EventActions)
    """Side effects of the event."""
    branch: str | None = None
    """Dotted path of agents, where parallel agents have separate histories."""
    long_running_tool_ids: list[str] | None = None
    """Calls of this event whose answer comes in a later message."""
    node_info: NodeInfo | None = None
    """The workflow node that wrote the event."""
    output: JsonValue = None
    """The output of a workflow node or a task."""
    isolation_scope: str | None = None
    """The scope outside of which the event is not part of a prompt."""

    if TYPE_CHECKING:  # type checkers take them for arguments of the constructor; see `from_shorthands`
        message: Content | str | None = None
        state: JsonObject | None = None
        route: JsonValue = None
        node_path: str = ""
    else:

        @property
        def message(self) -> Content | None:
            return self.content

        @property
        def node_path(self) -> str:
            return self.node_info.path if self.node_info is not None else ""

    @classmethod
    def from_shorthands(cls, /, *args: Any, **arguments: Any) -> dict[str, Any]:
        """ADK's: `message` is the content, `state` and `route` go to the actions, `node_path` to the node."""
        message = arguments.pop("message", None)
        state = arguments.pop("state", None)
        route = arguments.pop("route", None)
        node_path = arguments.pop("node_path", None)
        if message is not None:
            if arguments.get("content") is not None:
                raise ValueError("Event() takes either message or content")
            arguments["content"] = message if isinstance(message, Content) else UserContent(message)

        if state is not None or route is not None:
            given: Any = arguments.get("actions") or EventActions()
            actions = given if isinstance(given, EventActions) else EventActions.model_validate(given)
            actions.state_delta.update(state or {})
            actions.route = route if route is not None else actions.route
            arguments["actions"] = actions

        if node_path is not None:
            given = arguments.get("node_info")
            info = given if isinstance(given, NodeInfo) else NodeInfo.model_validate(given or {})
            arguments["node_info"] = msgspec.structs.replace(info, path=node_path)

        return super().from_shorthands(*args, **{"author": "", **arguments})

    @staticmethod
    def new_id() -> str:
        return new_event_id()

    def has_trailing_code_execution_result(self) -> bool:
        parts = self.content.parts if self.content else None
        return bool(parts) and parts[-1].code_execution_result is not None

    @property
    def is_cut_off(self) -> bool:
        """Whether it holds the part of a message that was received before the run ended, or before
        the user interrupted a live run."""
        return bool(self.interrupted) and self.error_code is None

    def is_final_response(self) -> bool:
        """Whether this is an agent's answer to the user in this turn, or a request that it waits for.

        Source: ADK's Event.is_final_response. A state-only event counts; one run can hold several
        finals. The answer of an agent that runs as a tool is for the calling agent. Checkpoints of
        workflow agents never count.
        """
        if self.is_internal():
            return False
        return not self._is_workflow_step() and self.ends_turn()

    def is_internal(self) -> bool:
        """Whether ADK has no such event: a checkpoint of a workflow agent, the beginning of a retry, or a step of an
        agent that runs as a tool.

        ADK's clients are not sent these; the log has them. A step that asks a person is sent, to be answered.
        """
        if self.isolation_scope is not None:
            return not (self.long_running_tool_ids or self.author == "user" or self.is_of_task())
        return self.content is None and (self.is_checkpoint() or self.is_retry())

    def is_retry(self) -> bool:
        """Whether the retry of a run begins with it."""
        return self.custom_metadata is not None and RETRY in self.custom_metadata

    def is_of_task(self) -> bool:
        """Whether an agent in mode `task` wrote it. Its scope is the path of its node, or the call that delegates."""
        scope = self.isolation_scope
        return scope is not None and (self.node_path == scope or self.node_path.endswith(f"@{scope}"))

    def waits_for_message(self) -> bool:
        """Whether a task halts with it until the user's next message."""
        if not self.is_of_task() or self.output is not None or self.long_running_tool_ids:
            return False
        return (self.content is not None or self.error_code is not None) and self.ends_turn()

    def is_checkpoint(self) -> bool:
        """Whether it only records the progress of a workflow agent, without content or changes of the state."""
        return self._is_workflow_step() and not self.actions.state_delta

    def _is_workflow_step(self) -> bool:
        if self.content is not None or self.error_code is not None:
            return False
        return self.actions.agent_state is not None or bool(self.actions.end_of_agent)

    def ends_turn(self) -> bool:
        """Whether this is the author's last event in this turn, in whatever scope it runs."""
        if self.actions.skip_summarization or self.long_running_tool_ids:
            return True
        if self.partial:
            return False

        for part in (self.content.parts if self.content else None) or ():
            if part.function_call is not None:
                return False
            if part.function_response is not None and self.error_code is None:
                return False

        return self.error_code is not None or not self.has_trailing_code_execution_result()
