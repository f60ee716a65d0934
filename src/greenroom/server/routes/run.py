"""Handlers of runs: start, read, cancel."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from greenroom.errors import GreenroomError, InvalidRequest, Unavailable
from greenroom.event_streams.stream import RunEnded
from greenroom.records import wire
from greenroom.records.app_version import VERSION_NAME
from greenroom.records.base import Record
from greenroom.records.event import Event
from greenroom.records.run import (
    INVOCATION_ID,
    MAX_DEADLINE_SECONDS,
    AgentRunRequest,
    ListRunsResponse,
    OnDisconnect,
    RetryRunsRequest,
    Run,
    RunFilter,
    RunStatus,
    SessionRunRequest,
    public_record,
)
from greenroom.records.session import SessionKey
from greenroom.records.waiting_run import ListWaitingRunsResponse, WaitingRun
from greenroom.runner.accept import check_is_of_one_kind
from greenroom.runs.engine import Attachment
from greenroom.runs.signals import new_signal
from greenroom.runs.watch import RunWatch
from greenroom.server.endless_streams import STOPPING
from greenroom.server.replies import AnyReply, Reply, StreamReply, failure_reply
from greenroom.server.request_body import wait_for_disconnect
from greenroom.server.request_context import RequestContext
from greenroom.server.sse import KEEP_ALIVE, EventFrames, RunEndInserter

_log = logging.getLogger("greenroom.server")

RUN_ID_HEADER = "x-run-id"
PAGE_LIMIT = 1000
WAITING_LIMIT = 100
CHANGES_SECONDS = 0.1
"""Pause between two writes of a stream of run records, in which changes of one run become one."""

_RUN_ID = re.compile(INVOCATION_ID)


class EventPage(Record, kw_only=True, omit_defaults=False):
    """A page of a session's log."""

    events: list[Event]
    """In the order of the log."""
    last_seq: int
    """Sequence number of the last event of the page, which is the `after` of the next page."""


class RetryRunRequest(Record, kw_only=True):
    """The way of a retry."""

    fork: bool = False
    """Whether a new run continues in a fork of the session; otherwise the run itself does."""


async def run(context: RequestContext) -> AnyReply:
    """Waits for the run to end, and returns its events as a JSON array, without internal ones."""
    request = await _run_request(context)
    request.streaming = False
    started, attachment = await _start(context, request)

    try:
        if _cancels(context, request.on_disconnect):
            events, ended = await _collect_or_cancel(context, started.id, attachment)
        else:
            events, ended = await _collect(attachment)
    except asyncio.CancelledError:  # requests are cancelled only when the server stops
        events_path = context.address.path(f"/runs/{started.id}/events")
        detail = f"The server is stopping; the run continues. Read it from {events_path}"
        return failure_reply("Unavailable", Unavailable.status, detail, {RUN_ID_HEADER: started.id})
    finally:
        attachment.close()

    return failure_of(ended.run) or Reply(data=b"[%b]" % b",".join(events), headers={RUN_ID_HEADER: ended.run.id})


async def run_sse(context: RequestContext) -> AnyReply:
    """Streams the run's events in ADK's format, without internal ones."""
    request = await _run_request(context)
    started, attachment = await _start(context, request)
    cancel = when_client_leaves(context, started.id, request.on_disconnect)
    return _stream(context, attachment, run_id=started.id, when_client_leaves=cancel, for_adk=True)


def failure_of(run: Run) -> Reply | None:
    """The error of a run that failed before or outside of its model's answer."""
    if run.error is None or run.error.status is None:
        return None
    return failure_reply(run.error.code, HTTPStatus(run.error.status), run.error.message, {RUN_ID_HEADER: run.id})


async def start_in_background(context: RequestContext) -> AnyReply:
    check_is_of_one_kind(context.body.new_message)
    return await _start_in_background(
        context, context.session_key, context.body, idempotency_key=idempotency_key(context)
    )


async def _start_in_background(
    context: RequestContext, key: SessionKey, body: SessionRunRequest, *, idempotency_key: str | None = None
) -> AnyReply:
    fields = {field: getattr(body, field) for field in SessionRunRequest.__struct_fields__}
    request = AgentRunRequest(**key._asdict(), **fields)
    check_run_request(context, request.app_name, request)
    started, _ = await context.engine.start(
        request,
        idempotency_key=idempotency_key,
        traceparent=context.headers.get("traceparent"),
        attach=False,
    )
    return _accepted(context, started)


def _accepted(context: RequestContext, run: Run) -> Reply:
    location = context.address.path(f"/runs/{quote(run.id, safe='')}")
    return Reply(value=public_record(run), status=202, headers={"location": location})


async def edit_event(context: RequestContext) -> AnyReply:
    """Forks the session before the event, and starts a run there with the given message.

    Without one, a user's event is sent again.
    """
    await context.apps.load(context.path["app_name"])
    event_id = context.path["event_id"]
    seq = await context.sessions.seq_of_event(**context.session_names, event_id=event_id) - 1
    body: SessionRunRequest = context.body or SessionRunRequest()
    check_is_of_one_kind(body.new_message)
    if body.new_message is None:
        page = await context.sessions.list_events(**context.session_names, after=seq, limit=1)
        if page.events and page.events[0].author == "user":
            body.new_message = page.events[0].content

    forked = await context.sessions.fork_session(**context.session_names, seq=seq)
    try:
        return await _start_in_background(context, forked.key, body)
    except GreenroomError:
        await context.engine.delete_session(forked.key)
        raise


async def list_runs(context: RequestContext) -> AnyReply:
    query = context.query
    run_filter = RunFilter(
        app_names=None if query["app_name"] is None else [query["app_name"]],
        user_id=query["user_id"],
        session_id=query["session_id"],
        statuses=query["status"],
        error_code=query["error_code"],
        app_version=_app_version(context),
        created_from=query["created_from"],
        created_before=query["created_before"],
        feedback=query["feedback"],
        feedback_label=query["feedback_label"],
        min_score=query["min_score"],
        max_score=query["max_score"],
    )
    limit = min(query["limit"] or 100, PAGE_LIMIT)
    list_page = partial(_list_page, context, run_filter, limit=limit, page_token=query["page_token"])
    if not wants_stream(context):
        return Reply(value=await list_page())

    watch = await context.engine.watch_runs(run_filter)  # before the list is read, so that no change is missed
    try:
        page = await list_page()
    except BaseException:
        watch.close()
        raise

    return StreamReply(
        pieces=_run_changes(context, watch, page, list_page),
        close=watch.close,
        is_endless=True,
        when_server_stops=lambda: STOPPING,
    )


def _app_version(context: RequestContext) -> str | None:
    """The version of code that a filter names: as records have it, or by the name of a published version."""
    version: str | None = context.query["app_version"]
    app_name: str | None = context.query["app_name"]
    if version is None or app_name is None or not re.fullmatch(VERSION_NAME, version):
        return version
    return context.versions.find_hash(app_name, version) or version


async def list_waiting_runs(context: RequestContext) -> AnyReply:
    app_name = context.path["app_name"]
    context.identity.check_reach(app_name, None)
    app = await context.apps.load(app_name)

    from greenroom.runs.waiting_runs import compare  # loads what only replays need

    page = await context.engine.list_runs(
        RunFilter(app_names=[app_name], statuses=[RunStatus.WAITING]),
        limit=min(context.query["limit"] or 20, WAITING_LIMIT),
        page_token=context.query["page_token"],
    )
    published = {one.version for one in (await context.versions.list(app_name)).versions}
    waiting: list[WaitingRun] = []
    for one in page.runs:
        session = await context.sessions.get_session(**one.session_key._asdict())
        if session is not None:
            waiting.append(await compare(one, app, session, is_published=one.app_version in published))
    return Reply(value=ListWaitingRunsResponse(waiting_runs=waiting, next_page_token=page.next_page_token))


async def _list_page(context: RequestContext, run_filter: RunFilter, **options: Any) -> ListRunsResponse:
    page = await context.engine.list_runs(run_filter, **options)
    page.runs = [public_record(run) for run in page.runs]
    return page


async def _run_changes(
    context: RequestContext,
    watch: RunWatch,
    page: ListRunsResponse,
    list_page: Callable[[], Awaitable[ListRunsResponse]],
) -> AsyncGenerator[bytes]:
    """A page of the list, then the records that change; the page again after a reader was too slow for them."""
    while True:
        yield b"event: snapshot\ndata: %b\n\n" % wire.encode(page)
        while (batch := await watch.next_batch(idle_seconds=context.settings.keep_alive_seconds)) is not None:
            yield b"".join(b"data: %b\n\n" % wire.encode(public_record(run)) for run in batch) or KEEP_ALIVE
            await asyncio.sleep(CHANGES_SECONDS)
        page = await list_page()


async def get_run(context: RequestContext) -> AnyReply:
    return Reply(value=public_record(await context.engine.get(context.path["run_id"])))


async def cancel_run(context: RequestContext) -> AnyReply:
    return Reply(
        value=public_record(await context.engine.cancel(context.path["run_id"], reason="requested by a client"))
    )


async def retry_run(context: RequestContext) -> AnyReply:
    """Continues a failed or cancelled run from where it ended."""
    body: RetryRunRequest = context.body or RetryRunRequest()
    retried = await context.engine.retry(
        context.path["run_id"],
        fork=body.fork,
        idempotency_key=idempotency_key(context),
        traceparent=context.headers.get("traceparent"),
    )
    return _accepted(context, retried)


async def retry_runs(context: RequestContext) -> AnyReply:
    """Retries each run of a page of those that a filter selects."""
    body: RetryRunsRequest = context.body
    where = RunFilter(
        app_names=None if body.app_name is None else [body.app_name],
        user_id=body.user_id,
        session_id=body.session_id,
        statuses=[RunStatus(status) for status in body.status],
        error_code=body.error_code,
        created_from=body.created_from,
        created_before=body.created_before,
    )
    result = await context.engine.retry_runs(
        where,
        fork=body.fork,
        limit=body.limit,
        page_token=body.page_token,
        traceparent=context.headers.get("traceparent"),
    )
    result.started = [public_record(run) for run in result.started]
    return Reply(value=result)


async def signal_run(context: RequestContext) -> AnyReply:
    """Sends a signal to a run, which continues if it waits for it."""
    key = idempotency_key(context) or context.forwarded_id
    signal = new_signal(context.path["signal_name"], context.body, key=key)
    return Reply(value=public_record(await context.engine.signal(context.path["run_id"], signal)))


async def run_events(context: RequestContext) -> AnyReply:
    """A run's events: a page of stored ones, or a stream of stored and new ones."""
    after = last_seen(context)
    if not wants_stream(context):
        found = await context.engine.get(context.path["run_id"])
        key = SessionKey(found.app_name, found.user_id, found.session_id)
        if found.read_at_seq is not None:
            return await _page(context, key, max(after or 0, found.after_seq), run_id=found.steered_into)
        return await _page(context, key, found.after_seq if after is None else after, run_id=found.id)
    attachment = await context.engine.attach(context.path["run_id"], after=after)
    return _stream(context, attachment, run_id=context.path["run_id"])


async def session_events(context: RequestContext) -> AnyReply:
    """The session's log after an event: a page, or a stream that continues with new events."""
    key = context.session_key
    after = last_seen(context) or 0
    if not wants_stream(context):
        return await _page(context, key, after)
    session = await context.find_session(key)
    attachment = RunEndInserter(
        context.engine, context.engine.attach_to_session(key, after=after), session, after=after
    )
    return _stream(context, attachment, run_id=None)


async def _start(context: RequestContext, request: AgentRunRequest) -> tuple[Run, Attachment]:
    started, attachment = await context.engine.start(
        request, idempotency_key=idempotency_key(context), traceparent=context.headers.get("traceparent")
    )
    assert attachment is not None
    return started, attachment


async def _run_request(context: RequestContext) -> AgentRunRequest:
    request: AgentRunRequest = context.body
    if not request.app_name:
        request.app_name = await context.default_app()
    check_is_of_one_kind(request.new_message)
    check_run_request(context, request.app_name, request)
    return request


def check_run_request(context: RequestContext, app_name: str, request: SessionRunRequest) -> None:
    """Raises InvalidRequest, NotOffered."""
    if request.deadline_seconds is not None and not 0 < request.deadline_seconds < MAX_DEADLINE_SECONDS:
        raise InvalidRequest("deadlineSeconds must be more than 0", location=("body", "deadlineSeconds"))
    if request.invocation_id is not None and not _RUN_ID.fullmatch(request.invocation_id):
        raise InvalidRequest("invocationId must be up to 256 ASCII letters", location=("body", "invocationId"))
    for webhook in request.webhooks or ():
        context.check_webhook(app_name, webhook)


def idempotency_key(context: RequestContext) -> str | None:
    """The header's value; an empty one counts as missing."""
    return context.headers.get("idempotency-key") or None


def _cancels(context: RequestContext, requested: OnDisconnect | None) -> bool:
    return (requested or context.settings.on_disconnect) == "cancel"


async def _collect(attachment: Attachment) -> tuple[list[bytes], RunEnded]:
    events: list[bytes] = []
    while True:
        for item in await attachment.next_batch():
            if isinstance(item, RunEnded):
                return events, item
            if item.seq is not None and not item.event.is_internal():
                events.append(item.json)


async def _collect_or_cancel(
    context: RequestContext, run_id: str, attachment: Attachment
) -> tuple[list[bytes], RunEnded]:
    """Collects the events; cancels the run if the client disconnects."""
    collecting = asyncio.ensure_future(_collect(attachment))
    disconnected = asyncio.ensure_future(wait_for_disconnect(context.receive))
    try:
        await asyncio.wait((collecting, disconnected), return_when=asyncio.FIRST_COMPLETED)
        if not collecting.done():
            await context.engine.cancel(run_id, reason="the client disconnected")
        return await collecting
    finally:
        disconnected.cancel()
        collecting.cancel()


def _stream(
    context: RequestContext,
    attachment: Attachment,
    *,
    run_id: str | None,
    when_client_leaves: Callable[[], None] | None = None,
    for_adk: bool = False,
) -> StreamReply:
    """Streams events as SSE. Without a run_id, it is a session's stream, which continues when a run ends."""
    frames = EventFrames(
        attachment=attachment,
        run_id=run_id,
        keep_alive_seconds=context.settings.keep_alive_seconds,
        address=context.address,
        for_adk=for_adk,
    )
    return StreamReply(
        pieces=frames.pieces(),
        is_endless=run_id is None,
        when_server_stops=frames.stopping,
        close=attachment.close,
        when_client_leaves=when_client_leaves,
        headers={RUN_ID_HEADER: run_id} if run_id is not None else {},
    )


def when_client_leaves(
    context: RequestContext, run_id: str, requested: OnDisconnect | None = None
) -> Callable[[], None] | None:
    """Returns a callback that cancels the run, if the request or, by default, the settings ask for it."""
    if not _cancels(context, requested):
        return None
    return partial(cancel_in_background, context, run_id)


def cancel_in_background(context: RequestContext, run_id: str) -> None:
    stopping = asyncio.ensure_future(context.engine.cancel(run_id, reason="the client disconnected"))
    stopping.add_done_callback(_log_failure)


def _log_failure(stopping: asyncio.Future[Run]) -> None:
    if not stopping.cancelled() and stopping.exception() is not None:
        _log.error("a run could not be cancelled: %s", stopping.exception())


def wants_stream(context: RequestContext) -> bool:
    return "text/event-stream" in context.headers.get("accept", "")


def last_seen(context: RequestContext) -> int | None:
    """Sequence number of the last event that the client has seen: `after`, else `Last-Event-ID`."""
    last = context.headers.get("last-event-id", "").strip(" \t")
    if last and not (last.isascii() and last.isdecimal() and len(last) <= 18):
        detail = "Last-Event-ID must be an event's id from this stream"
        raise InvalidRequest(detail, location=("header", "last-event-id"))
    after: int | None = context.query["after"]
    return after if after is not None or not last else int(last)


async def _page(context: RequestContext, key: SessionKey, after: int, run_id: str | None = None) -> Reply:
    limit = min(context.query["limit"] or PAGE_LIMIT, PAGE_LIMIT)
    page = await context.sessions.list_events(**key._asdict(), after=after, limit=limit)
    kept = [event for event in page.events if run_id is None or event.invocation_id == run_id]
    return Reply(value=EventPage(events=kept, last_seq=after + len(page.events)))
