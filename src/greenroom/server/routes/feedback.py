"""Handlers of feedback on events."""

from __future__ import annotations

from greenroom.records.feedback import FeedbackFilter
from greenroom.server.replies import AnyReply, Reply
from greenroom.server.request_context import RequestContext

PAGE_LIMIT = 1000


async def give_feedback(context: RequestContext) -> AnyReply:
    saved = await context.feedback.save(context.body, key=context.session_key, event_id=context.path["event_id"])
    return Reply(value=saved)


async def delete_feedback(context: RequestContext) -> AnyReply | None:
    """Deletes the caller's feedback on an event."""
    await context.feedback.delete(
        key=context.session_key, event_id=context.path["event_id"], name=context.query["name"]
    )
    return None


async def list_feedback_of_session(context: RequestContext) -> AnyReply:
    await context.sessions.list_events(**context.session_names, limit=1)  # raises SessionNotFound
    return await _list(context, FeedbackFilter(**context.session_names))


async def list_feedback_of_app(context: RequestContext) -> AnyReply:
    app_name = context.path["app_name"]
    await context.apps.check_exists(app_name)
    return await _list(context, FeedbackFilter(app_name=app_name, user_id=context.query["user_id"]))


async def _list(context: RequestContext, where: FeedbackFilter) -> AnyReply:
    query = context.query
    where.event_id = query["event_id"]
    where.name = query["name"]
    where.label = query["label"]
    where.source = query["source"]
    where.min_score = query["min_score"]
    where.max_score = query["max_score"]
    where.created_from = query["created_from"]
    where.created_before = query["created_before"]
    limit = min(query["limit"] or 100, PAGE_LIMIT)
    return Reply(value=await context.feedback.list(where, limit=limit, page_token=query["page_token"]))
