"""Handler of the audit trail."""

from __future__ import annotations

from greenroom.records.audit import AuditFilter
from greenroom.server.replies import AnyReply, Reply
from greenroom.server.request_context import RequestContext

PAGE_LIMIT = 1000


async def list_audit_entries(context: RequestContext) -> AnyReply:
    query = context.query
    where = AuditFilter(
        actions=query["action"],
        outcome=query["outcome"],
        subject=query["subject"],
        app_names=None if query["app_name"] is None else [query["app_name"]],
        user_id=query["user_id"],
        session_id=query["session_id"],
        run_id=query["run_id"],
        time_from=_milliseconds(query["time_from"]),
        time_before=_milliseconds(query["time_before"]),
    )
    limit = min(query["limit"] or 100, PAGE_LIMIT)
    return Reply(value=await context.audit.list_entries(where, limit=limit, page_token=query["page_token"]))


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)
