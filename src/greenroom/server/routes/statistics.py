"""Handlers of statistics."""

from __future__ import annotations

import time

from greenroom.server.replies import AnyReply, Reply
from greenroom.server.request_context import RequestContext
from greenroom.statistics.store import StatisticsQuery, period_of


async def get_statistics(context: RequestContext) -> AnyReply:
    query = context.query
    asked = StatisticsQuery(
        start=query["start"],
        end=query["end"],
        step=query["step"],
        group_by=query["group_by"],
        app_names=None if query["app_name"] is None else [query["app_name"]],
        user_id=query["user_id"],
        model=query["model"],
        tool=query["tool"],
        limit=query["limit"],
    )
    return Reply(value=await context.statistics.query(asked, currency=context.currency))


async def get_load(context: RequestContext) -> AnyReply:
    query = context.query
    period = period_of(query["start"], query["end"], query["step"], now=time.time())
    return Reply(value=await context.statistics.query_load(period, app_name=query["app_name"]))
