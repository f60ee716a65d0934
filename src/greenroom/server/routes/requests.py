"""Handlers of requests to people: approvals, logins and input that runs of all sessions wait for."""

from __future__ import annotations

from greenroom.records.inbox import AnswerRequestResponse, RequestFilter
from greenroom.records.run import public_record
from greenroom.server.replies import AnyReply, Reply
from greenroom.server.request_context import RequestContext
from greenroom.server.routes.sessions import without_internal_events

PAGE_LIMIT = 1000


async def list_requests(context: RequestContext) -> AnyReply:
    query = context.query
    where = RequestFilter(
        app_names=None if query["app_name"] is None else [query["app_name"]],
        user_id=query["user_id"],
        kinds=query["kind"],
        tool=query["tool"],
    )
    page = await context.engine.list_requests(
        where,
        approver=context.identity.subject if query["mine"] else query["approver"],
        limit=min(query["limit"] or 100, PAGE_LIMIT),
        page_token=query["page_token"],
    )
    return Reply(value=page)


async def get_request(context: RequestContext) -> AnyReply:
    return Reply(value=await context.engine.get_request(context.path["request_id"]))


async def get_session(context: RequestContext) -> AnyReply:
    """The session of a request, for approvers that the policy lets read it."""
    session = await context.find_session_of_request(context.path["request_id"])
    return Reply(value=without_internal_events(session))


async def delegate_request(context: RequestContext) -> AnyReply:
    return Reply(value=await context.engine.delegate_request(context.path["request_id"], context.body))


async def answer_request(context: RequestContext) -> AnyReply:
    request, run = await context.engine.answer_request(context.path["request_id"], context.body)
    return Reply(value=AnswerRequestResponse(request=request, run=None if run is None else public_record(run)))
