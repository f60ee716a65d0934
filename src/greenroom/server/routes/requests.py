"""Handlers of requests to people: approvals, logins and input that runs of all sessions wait for."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from functools import partial

from greenroom.errors import RequestNotFound
from greenroom.records import wire
from greenroom.records.inbox import AnswerRequestResponse, HumanRequest, ListRequestsResponse, RequestFilter
from greenroom.records.run import public_record
from greenroom.runs.watch import RunWatch
from greenroom.server.endless_streams import STOPPING
from greenroom.server.replies import AnyReply, Reply, StreamReply
from greenroom.server.request_context import RequestContext
from greenroom.server.routes.run import CHANGES_SECONDS, wants_stream
from greenroom.server.routes.sessions import without_internal_events
from greenroom.server.sse import KEEP_ALIVE

PAGE_LIMIT = 1000


async def list_requests(context: RequestContext) -> AnyReply:
    query = context.query
    where = RequestFilter(
        app_names=None if query["app_name"] is None else [query["app_name"]],
        user_id=query["user_id"],
        kinds=query["kind"],
        tool=query["tool"],
    )
    list_page = partial(
        context.requests.list_requests,
        where,
        approver=context.identity.subject if query["mine"] else query["approver"],
        limit=min(query["limit"] or 100, PAGE_LIMIT),
    )
    if not wants_stream(context):
        return Reply(value=await list_page(page_token=query["page_token"]))

    watch = await context.requests.watch_requests(where)  # before the list is read, so that no change is missed
    try:
        page = await list_page(page_token=query["page_token"])
    except BaseException:
        watch.close()
        raise

    return StreamReply(
        pieces=_changes(context, watch, page, list_page),
        close=watch.close,
        is_endless=True,
        when_server_stops=lambda: STOPPING,
    )


async def _changes(
    context: RequestContext,
    watch: RunWatch,
    page: ListRequestsResponse,
    list_page: Callable[..., Awaitable[ListRequestsResponse]],
) -> AsyncGenerator[bytes]:
    """A page of the list, then the requests that are new or change; the page again after a reader was too slow."""
    while True:
        yield b"event: snapshot\ndata: %b\n\n" % wire.encode(page)
        shown = {request.id: request for request in page.requests}
        while (batch := await watch.next_batch(idle_seconds=context.settings.keep_alive_seconds)) is not None:
            asking = {request.run_id for request in shown.values()}
            run_ids = [run.id for run in batch if run.requests or run.id in asking]
            changed = await _changed(context, shown, run_ids, list_page) if run_ids else []
            yield b"".join(b"data: %b\n\n" % wire.encode(request) for request in changed) or KEEP_ALIVE
            await asyncio.sleep(CHANGES_SECONDS)
        page = await list_page()


async def _changed(
    context: RequestContext,
    shown: dict[str, HumanRequest],
    run_ids: list[str],
    list_page: Callable[..., Awaitable[ListRequestsResponse]],
) -> list[HumanRequest]:
    """The requests of runs that are not as the client has them, which is noted in `shown`; closed ones for the last
    time.
    """
    listed = {request.id: request for request in (await list_page(run_ids=run_ids)).requests}
    changed = [request for request in listed.values() if shown.get(request.id) != request]
    for request in [request for request in shown.values() if request.run_id in run_ids and request.id not in listed]:
        del shown[request.id]
        with contextlib.suppress(RequestNotFound):  # deleted with its session
            changed.append(await context.requests.get_request(request.id))
    shown.update(listed)
    return changed


async def get_request(context: RequestContext) -> AnyReply:
    return Reply(value=await context.requests.get_request(context.path["request_id"]))


async def get_session_of_request(context: RequestContext) -> AnyReply:
    """The session of a request, for approvers that the policy lets read it."""
    session = await context.find_session_of_request(context.path["request_id"])
    return Reply(value=without_internal_events(session))


async def delegate_request(context: RequestContext) -> AnyReply:
    return Reply(value=await context.requests.delegate_request(context.path["request_id"], context.body))


async def answer_request(context: RequestContext) -> AnyReply:
    request, run = await context.requests.answer_request(context.path["request_id"], context.body)
    return Reply(value=AnswerRequestResponse(request=request, run=None if run is None else public_record(run)))
