"""Starts a run for a gate, also in a session that is created with the client's earlier messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from greenroom.errors import GreenroomError, InvalidRequest
from greenroom.gates.chat_messages import no_such_call, response_object
from greenroom.log.state import log_state_of
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.content import Content, FunctionResponse, Part
from greenroom.records.event import Event
from greenroom.records.identifiers import new_invocation_id
from greenroom.records.login_secrets import redact
from greenroom.records.run import AgentRunRequest, Run
from greenroom.records.session import Session, SessionKey
from greenroom.records.tool_declaration import FunctionDeclaration
from greenroom.runs.engine import Attachment
from greenroom.server.request_context import RequestContext


class NewSession(NamedTuple):
    """A session to create."""

    history: Sequence[Content] = ()
    """The conversation so far, as the client states it."""
    state: JsonObject | None = None


async def start(
    context: RequestContext,
    request: AgentRunRequest,
    *,
    new_session: NewSession | None = None,
    attach: bool = True,
    idempotency_key: str | None = None,
) -> tuple[Run, Attachment | None]:
    """Starts a run, in a session that is created first if `new_session` is given."""
    if new_session is None:
        traceparent = context.headers.get("traceparent")
        return await context.engine.start(
            request, traceparent=traceparent, attach=attach, idempotency_key=idempotency_key
        )

    app = await context.apps.load(request.app_name)
    events = _imported(new_session.history, request.client_tools, agent=app.root_agent.name)
    key = SessionKey(request.app_name, request.user_id, request.session_id)
    await context.sessions.create_session(**key._asdict(), state=new_session.state, events=events)

    try:
        return await start(context, request, attach=attach, idempotency_key=idempotency_key)
    except GreenroomError:
        await context.engine.delete_session(key)
        raise


def _imported(
    history: Iterable[Content], client_tools: Sequence[FunctionDeclaration] | None, *, agent: str
) -> list[Event]:
    """Converts earlier messages to events. The messages after a user's message, up to the next one, are one run."""
    names = {tool.name for tool in client_tools or ()}
    events: list[Event] = []
    invocation_id = new_invocation_id()

    for content in history:
        is_user = content.role == "user"
        event = Event(author="user" if is_user else agent, content=content)
        if is_user and not event.get_function_responses():
            invocation_id = new_invocation_id()
        event.invocation_id = invocation_id
        called = (call for call in event.get_function_calls() if call.name in names)
        event.long_running_tool_ids = [call.id for call in called if call.id] or None
        redact(event)
        events.append(event)

    return events


def seconds(given: JsonObject, name: str, *, location: tuple[str, ...]) -> float | None:
    """A time of a run in a protocol's metadata, which has numbers or, if it holds texts only, their text.

    Raises InvalidRequest. location: of the metadata.
    """
    value = given.get(name)
    if value is None:
        return None
    try:
        if isinstance(value, bool):
            raise ValueError
        return float(value)
    except (TypeError, ValueError):
        raise InvalidRequest(f"{name} must be a number", location=(*location, name)) from None


async def find_session(context: RequestContext, key: SessionKey) -> Session | None:
    return await context.sessions.get_session(**key._asdict())


def response_part(session: Session | None, call_id: str, output: JsonValue) -> Part:
    """The client's response to an open call. output: see `response_object`. Raises InvalidRequest
    for calls that nobody made or that their tools answer."""
    if session is None:
        raise no_such_call(call_id)
    answer = FunctionResponse(id=call_id, response=response_object(output))
    event = log_state_of(session.events).call_to_answer(answer, location=("body",))
    answer.name = next(call.name for call in event.get_function_calls() if call.id == call_id)
    return Part(function_response=answer)
