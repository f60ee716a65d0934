"""Handlers of apps: listing and details."""

from __future__ import annotations

import asyncio

from greenroom.agents.llm_agent import LlmAgent
from greenroom.apps.describe import can_be_live, describe, missing_for_models
from greenroom.errors import CallerError, GreenroomError
from greenroom.records.listings import AppInfo, ListAppsResponse
from greenroom.server.access.authorization.apps import AuthorizedApps
from greenroom.server.replies import AnyReply, Reply
from greenroom.server.request_context import RequestContext

PAGE_LIMIT = 1000


async def list_apps(context: RequestContext) -> AnyReply:
    names = await context.apps.list_apps()
    if not context.query["detailed"]:
        return Reply(value=names)
    return Reply(value=ListAppsResponse(apps=[await _summary(context.apps, name) for name in names]))


async def app_info(context: RequestContext) -> AnyReply:
    name = context.path["app_name"]
    app = await context.apps.load(name)
    if not isinstance(app.root_agent, LlmAgent):
        raise CallerError("Root agent is not an LlmAgent")
    return Reply(value=await describe(app, language=context.apps.language(name)))


async def list_usage(context: RequestContext) -> AnyReply:
    """Usage of the caller's own user, unless it acts for all users of the app."""
    query = dict(context.query)
    app_name = context.path["app_name"]
    if query["user_id"] is None and not context.identity.acts_for(app_name, None):
        query["user_id"] = context.identity.subject
    for name in ("first_day", "last_day"):
        query[name] = query[name] and query[name].isoformat()
    query["limit"] = min(query["limit"] or 100, PAGE_LIMIT)
    query["group_by"] = query["group_by"] or ()
    return Reply(value=await context.usage.query_usage(app_name=app_name, **query))


async def _summary(apps: AuthorizedApps, name: str) -> AppInfo:
    """A summary of the app, or its load error. Lists no tools, since toolsets may be slow to answer."""
    try:
        app = await apps.load(name)
    except GreenroomError as error:
        language = await asyncio.to_thread(apps.language, name)
        return AppInfo(name=name, language=language, error=error.detail)

    problem = apps.problems().get(name)
    return AppInfo(
        name=name,
        root_agent_name=app.root_agent.name,
        description=app.root_agent.description,
        language=apps.language(name),
        error=problem.detail if problem is not None else None,
        missing=missing_for_models(app) or None,
        is_live=can_be_live(app),
    )


async def preview_retention(context: RequestContext) -> AnyReply:
    return Reply(value=await context.engine.preview_expiry(context.path["app_name"]))
