"""Handlers of budgets."""

from __future__ import annotations

from greenroom.errors import InvalidRequest
from greenroom.plugins.budget import BudgetPlugin
from greenroom.records.budget import Budget
from greenroom.runs.app_budgets import check_owner
from greenroom.server.replies import AnyReply, Reply
from greenroom.server.request_context import RequestContext


async def list_budgets(context: RequestContext) -> AnyReply:
    app_name = context.path["app_name"]
    app = await context.apps.load(app_name)
    of_code = [limit for plugin in app.plugins if isinstance(plugin, BudgetPlugin) for limit in plugin.limits]
    listed = await context.budgets.list(
        app_name, of_code, user_id=context.query["user_id"], key_id=context.query["key_id"]
    )
    return Reply(value=listed)


async def put_budget(context: RequestContext) -> AnyReply:
    app_name = context.path["app_name"]
    await context.apps.check_exists(app_name)
    return Reply(value=await context.budgets.put(app_name, context.body))


async def delete_budget(context: RequestContext) -> None:
    query = context.query
    if query["per"] is None:
        raise InvalidRequest("per is required", location=("query", "per"), kind="missing")
    budget = Budget(per=query["per"], user_id=query["user_id"], key_id=query["key_id"], window=query["window"])
    check_owner(budget)
    await context.budgets.delete(context.path["app_name"], budget)
