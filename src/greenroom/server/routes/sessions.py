"""Handlers of sessions: create, read, list, patch, delete, add to memory."""

from __future__ import annotations

from greenroom.errors import CallerError, InvalidRequest
from greenroom.records.base import JsonObject, Record
from greenroom.records.copy_on_write import CopyOnWriteList
from greenroom.records.event import Event, EventActions
from greenroom.records.identifiers import new_invocation_id, new_state_patch_id
from greenroom.records.redaction import redact
from greenroom.records.session import Session, SessionKey
from greenroom.records.state import TEMP_PREFIX
from greenroom.server.replies import AnyReply, Reply
from greenroom.server.request_context import RequestContext

EVAL_SESSION_PREFIXES = ("adk-eval-session-", "___eval___session___", "ADK_EVAL_")


class CreateSessionRequest(Record, kw_only=True):
    """events: those of an exported session, stored in order, all or none. options: must be empty."""

    session_id: str | None = None
    state: JsonObject | None = None
    events: list[Event] | None = None
    options: JsonObject | None = None


class PatchSessionRequest(Record, kw_only=True):
    state_delta: JsonObject


async def create_session(context: RequestContext) -> AnyReply:
    context.check_app()
    body: CreateSessionRequest = context.body or CreateSessionRequest()
    if body.options:
        raise CallerError("This session store takes no options")
    _check_id(body.session_id)
    events = [event for event in body.events or () if not event.partial]
    most = context.settings.limits.events_per_session
    if most is not None and len(events) > most:
        raise InvalidRequest(f"A session has at most {most} events", location=("body", "events"))
    for event in events:
        event.invocation_id = event.invocation_id or new_invocation_id()
        redact(event)
    session = await context.sessions.create_session(
        app_name=context.path["app_name"],
        user_id=context.path["user_id"],
        state=body.state,
        session_id=body.session_id,
        events=events,
    )
    return Reply(value=session)


async def create_session_with_id(context: RequestContext) -> AnyReply:
    """The body is the state, or has the single key `state`, as ADK for Java sends it."""
    context.check_app()
    state: JsonObject = context.body or {}
    inner: JsonObject | None = state["state"] if len(state) == 1 and isinstance(state.get("state"), dict) else None
    _check_id(context.path["session_id"])
    session = await context.sessions.create_session(**context.session_names, state=state if inner is None else inner)
    return Reply(value=session)


async def list_sessions(context: RequestContext) -> AnyReply:
    """A user's sessions, except those of evaluations. With `limit`, a page; `x-next-page-token` gives the next one."""
    page = await context.sessions.list_sessions(
        app_name=context.path["app_name"],
        user_id=context.path["user_id"],
        limit=context.query["limit"],
        page_token=context.query["page_token"],
    )
    sessions = [session for session in page.sessions if not session.id.startswith(EVAL_SESSION_PREFIXES)]
    headers = {"x-next-page-token": page.next_page_token} if page.next_page_token else {}
    return Reply(value=sessions, headers=headers)


async def get_session(context: RequestContext) -> AnyReply:
    session = await context.find_session(context.session_key)
    return Reply(value=session if context.query["events"] == "all" else _without_internal_events(session))


async def patch_session(context: RequestContext) -> AnyReply:
    body: PatchSessionRequest = context.body
    session = await context.find_session(context.session_key)
    actions = EventActions(state_delta=body.state_delta)
    event = Event(author="user", invocation_id=new_state_patch_id(), actions=actions)
    await context.engine.append(session, event)
    return Reply(value=_without_internal_events(_without_temporary(session)))


async def delete_session(context: RequestContext) -> AnyReply:
    await context.engine.delete_session(context.session_key)
    await context.traces.forget(context.session_key)
    return Reply(value=None)


def _without_internal_events(session: Session) -> Session:
    """Removes workflow checkpoints and steps of agents run as tools, which ADK's clients can't show."""
    if any(event.is_internal() for event in session.events):
        session.events = CopyOnWriteList(event for event in session.events if not event.is_internal())
    return session


def _without_temporary(session: Session) -> Session:
    """Removes the `temp:` keys, which an append keeps in the state for the current run only."""
    for key in [key for key in session.state if key.startswith(TEMP_PREFIX)]:
        del session.state[key]
    return session


def _check_id(session_id: str | None) -> None:
    if session_id is not None and ("\x00" in session_id or len(session_id.encode()) > 1024):
        detail = "sessionId must be at most 1024 bytes long and contain no NUL"
        raise InvalidRequest(detail, location=("body", "sessionId"))


class AddToMemoryRequest(Record, kw_only=True):
    session_id: str


async def add_session_to_memory(context: RequestContext) -> AnyReply:
    body: AddToMemoryRequest = context.body
    session = await context.find_session(SessionKey(context.path["app_name"], context.path["user_id"], body.session_id))
    await context.memory.add_session_to_memory(session)
    return Reply(value=None)
