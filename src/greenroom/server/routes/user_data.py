"""Handlers of all data of a user in an app: export, and erasure with a report."""

from __future__ import annotations

from urllib.parse import quote

from greenroom.server.replies import AnyReply, Reply, StreamReply
from greenroom.server.request_context import RequestContext


async def export_user(context: RequestContext) -> AnyReply:
    names = context.user_names
    file = quote(f"{names['app_name']}-{names['user_id']}.zip", safe="")
    return StreamReply(
        pieces=await context.user_data.export(**names),
        close=lambda: None,
        media_type="application/zip",
        headers={"content-disposition": f"attachment; filename*=UTF-8''{file}", "cache-control": "no-store"},
    )


async def erase_user(context: RequestContext) -> AnyReply | None:
    report = await context.user_data.erase(**context.user_names)
    return None if report is None else Reply(value=report)
