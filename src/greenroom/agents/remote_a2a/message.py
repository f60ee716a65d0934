"""Builds the message for a remote agent from the log, and finds where a resumed run stands with that agent. Small logs,
and the decision:

1  user  "Book it."
2  desk  task t-1 working                     follow t-1
3  desk  call c-1 "Which day?", t-1 paused    nothing: the run waits
4  user  response c-1 "Monday"                send it alone, to task t-1
5  desk  "Booked."                            nothing: the agent is done

1  user  "Book it."                           send it, with what others said since this agent's last
response
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, cast

from a2a.types import TaskState

from greenroom.a2a.part_metadata import AggregationMode
from greenroom.agents.remote_a2a.task import PAUSED
from greenroom.agents.turn.prompt import prompt_contents
from greenroom.invocation.context import InvocationContext
from greenroom.log.calls import is_within
from greenroom.log.state import events_of_run, log_state_of
from greenroom.records import wire
from greenroom.records.base import JsonObject
from greenroom.records.content import QUOTED_IS_DATA, FunctionResponse, Part
from greenroom.records.event import Event
from greenroom.records.human_requests import REQUESTS

TASK_ID = "a2a:task_id"
CONTEXT_ID = "a2a:context_id"
REQUEST = "a2a:request"
RESPONSE = "a2a:response"
ERROR = "a2a:error"
STATUS_CODE = "a2a:status_code"
CALLS = "a2a:calls"
"""Keys of events' custom metadata; all but the last are ADK's. CALLS: the remote's ids and names of
long-running calls, by ours; without an entry, a call was made up from the remote's question.
"""

INPUT_CALL = "mock_function_call_for_required_user_input"
AUTH_CALL = "mock_function_call_for_required_user_auth"

ForwardSession = bool | Literal["namespaced"]


class OutgoingMessage(NamedTuple):
    """A message to a remote agent, before it is encoded."""

    parts: list[tuple[Part, bool]]
    """Each with whether the user wrote it."""

    context_id: str
    task_id: str
    message_id: str
    """The same when a resumed run sends the message again."""


class RemoteProgress(NamedTuple):
    """The known part of the remote agent's answer to a message."""

    is_done: bool = False
    """Also when it waits."""

    to_follow: JsonObject | None = None
    """The ids of an unfinished task."""


def progress(agent: str, ctx: InvocationContext) -> RemoteProgress:
    """Returns how far the agent got in a run that is resumed."""
    asked_at = _newest_request(agent, ctx)
    for index, event in ctx.own_events(agent):
        if index < asked_at:
            break
        if event.is_cut_off:
            continue

        metadata = event.custom_metadata or {}
        if TASK_ID in metadata and not state_in(metadata) and event.content is None and ERROR not in metadata:
            return RemoteProgress(to_follow=metadata)
        if event.content is not None or RESPONSE in metadata or event.error_code is not None:
            return RemoteProgress(is_done=True)

    return RemoteProgress()


def state_in(metadata: Mapping[str, Any]) -> int:
    """The state of the task when the event was written: 0 while it is unfinished; completed for a
    plain message.
    """
    response: Any = metadata.get(RESPONSE)
    status: Any
    if isinstance(response, dict):
        status = cast("JsonObject", response).get("status")
    else:
        status = None

    name = str(status.get("state", "")) if isinstance(status, dict) else "TASK_STATE_COMPLETED"  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]

    state = TaskState.Value(name) if name in TaskState.keys() else 0  # noqa: SIM118 - an enum wrapper of protobuf
    if state in (TaskState.TASK_STATE_SUBMITTED, TaskState.TASK_STATE_WORKING):
        return 0

    return state


def outgoing(
    agent: str,
    ctx: InvocationContext,
    *,
    stateless_history: bool,
    forward_session: ForwardSession,
    mode: AggregationMode | None,
) -> OutgoingMessage:
    """The message that the remote agent is sent next.

    mode: see `A2aRemoteAgentConfig`.
    """
    answer = _answer(agent, ctx)
    if answer is not None:
        return answer

    events = ctx.session.events

    begins_at = 0
    last = None
    for index, event in _own_responses(agent, ctx):
        last = event.custom_metadata or {}
        begins_at = index + 1
        break

    context_id = str((last or {}).get(CONTEXT_ID) or "")
    if stateless_history and not context_id:
        begins_at = 0

    scope = ctx.isolation_scope
    if scope is not None:
        shown = events_of_run(events, ctx.invocation_id, since=max(ctx.scope_start, begins_at))
    elif begins_at:
        rewound = log_state_of(events).rewound
        shown = [events[index] for index in range(begins_at, len(events)) if index not in rewound]
    else:
        shown = events

    if mode is None:
        parts = _quoted_parts(agent, ctx, shown)
    else:
        parts = _parts_in_mode(ctx, shown, mode)

    if last is not None and state_in(last) in PAUSED:
        task_id = str((last or {}).get(TASK_ID) or "")
    else:
        task_id = ""

    return OutgoingMessage(
        parts, context_id or _new_context_id(ctx, forward_session), task_id, _message_id(agent, ctx, begins_at)
    )


def _quoted_parts(
    agent: str,
    ctx: InvocationContext,
    shown: Sequence[Event],
) -> list[tuple[Part, bool]]:
    """Texts of other agents are quoted with their names, calls are left out, and responses become text."""
    scope = ctx.isolation_scope

    contents = prompt_contents(
        shown,
        agent=agent,
        branch=ctx.branch,
        include="default",
        scope=scope,
        request=ctx.user_content if scope is not None else None,
    )
    parts: list[tuple[Part, bool]] = []
    for content in contents:
        all_parts = content.parts or []
        is_users = content.role == "user" and not (all_parts and all_parts[0].text == QUOTED_IS_DATA)
        for part in all_parts:
            if part.function_response is not None:
                response = wire.encode(part.function_response.response or {}).decode()
                parts.append((Part(text=f"Tool {part.function_response.name} returned: {response}"), is_users))
            elif part.function_call is None and not part.thought:
                parts.append((part, is_users))

    return parts


def _parts_in_mode(
    ctx: InvocationContext,
    shown: Sequence[Event],
    mode: AggregationMode,
) -> list[tuple[Part, bool]]:
    """The parts of the events themselves, without the framework's requests to people and the
    answers to them.
    """
    parts: list[tuple[Part, bool]] = []
    for event in shown:
        if event.isolation_scope != ctx.isolation_scope or not is_within(ctx.branch, event.branch):
            continue

        for part in (event.content.parts if event.content is not None else None) or ():
            called = part.function_call or part.function_response
            if called is not None and called.name in REQUESTS:
                continue
            converted = mode.apply(part)
            if converted is not None:
                parts.append((converted, event.author == "user"))

    return parts


def _answer(agent: str, ctx: InvocationContext) -> OutgoingMessage | None:
    """Returns the answers to the agent's calls in the user's newest message; nothing else is sent
    with them.
    """
    run = log_state_of(ctx.session.events).run(ctx.invocation_id)
    if not run.messages:
        return None

    parts: list[tuple[Part, bool]] = []
    metadata: JsonObject = {}
    for part in _parts_at(ctx, run.messages[-1]):
        response = part.function_response
        if response is not None:
            record = run.call(response.id, agent, ctx.branch)
        else:
            record = None

        if response is None or record is None or record.event is None or not record.event.custom_metadata:
            continue

        metadata = record.event.custom_metadata
        parts.append((_answered(response, metadata.get(CALLS)), True))

    if not parts or CONTEXT_ID not in metadata:
        return None

    ids = str(metadata[CONTEXT_ID]), str(metadata.get(TASK_ID) or "")

    return OutgoingMessage(parts, *ids, _message_id(agent, ctx, run.messages[-1]))


def _answered(response: FunctionResponse, calls: object) -> Part:
    """A response under the remote's id and name; text where the call was made up."""
    remote: Any
    if isinstance(calls, dict):
        remote = cast("JsonObject", calls).get(response.id or "")
    else:
        remote = None

    answer = response.response or {}
    if remote is not None:
        renamed = FunctionResponse(id=remote["id"], name=remote["name"], response=answer)
        return Part(function_response=renamed)

    if len(answer) == 1 and (key := next(iter(answer))) in ("result", "response"):
        value = answer[key]
        return Part(text=value if isinstance(value, str) else wire.encode(value).decode())

    return Part(text=wire.encode(answer).decode())


def _own_responses(agent: str, ctx: InvocationContext) -> Iterator[tuple[int, Event]]:
    """Yields the remote agent's responses in this conversation, newest first; of a delegated
    request, those in its scope.
    """
    events = ctx.session.events
    rewound = log_state_of(ctx.session.events).rewound
    since = ctx.scope_start if ctx.isolation_scope is not None else 0
    for index in range(len(events) - 1, since - 1, -1):
        event = events[index]
        if event.author != agent or index in rewound or event.isolation_scope != ctx.isolation_scope:
            continue
        if RESPONSE in (event.custom_metadata or {}) and is_within(ctx.branch, event.branch):
            yield index, event


def _newest_request(agent: str, ctx: InvocationContext) -> int:
    """Returns the index of the user's newest message to this agent; answers to calls of others
    don't count.
    """
    run = log_state_of(ctx.session.events).run(ctx.invocation_id)
    for index in reversed(run.messages):
        responses = [part.function_response for part in _parts_at(ctx, index) if part.function_response is not None]
        if not responses or any(run.call(response.id, agent, ctx.branch) is not None for response in responses):
            return index
    return 0


def _parts_at(ctx: InvocationContext, index: int) -> list[Part]:
    content = ctx.session.events[index].content
    return (content.parts if content is not None else None) or []


def _message_id(agent: str, ctx: InvocationContext, index: int) -> str:
    return str(
        uuid.uuid5(uuid.NAMESPACE_OID, f"{ctx.invocation_id}/{ctx.branch}/{ctx.isolation_scope}/{agent}/{index}")
    )


def _new_context_id(ctx: InvocationContext, forward_session: ForwardSession) -> str:
    if forward_session == "namespaced":
        return hashlib.sha256(wire.encode([ctx.app_name, ctx.user_id, ctx.session.id])).hexdigest()
    return ctx.session.id if forward_session else ""
