"""Handlers of schedules: runs that start by the clock."""

from __future__ import annotations

from http import HTTPStatus

from greenroom.records.run import public_record
from greenroom.records.schedule import Schedule
from greenroom.server.replies import AnyReply, Reply
from greenroom.server.request_context import RequestContext
from greenroom.server.routes.run import check_run_request, idempotency_key

PAGE_LIMIT = 1000
TIMES_LIMIT = 20


async def create_schedule(context: RequestContext) -> AnyReply:
    app_name = context.path["app_name"]
    await context.apps.check_exists(app_name)
    schedule = _checked(context)
    created = await context.schedules.create(schedule, app_name=app_name)
    return Reply(value=created, status=HTTPStatus.CREATED)


async def next_times(context: RequestContext) -> AnyReply:
    """The next times of a schedule, which need not be stored."""
    app_name = context.path["app_name"]
    await context.apps.check_exists(app_name)
    limit = min(context.query["limit"] or 5, TIMES_LIMIT)
    return Reply(value=context.schedules.next_times(context.body, app_name=app_name, limit=limit))


async def list_schedules(context: RequestContext) -> AnyReply:
    query = context.query
    listed = await context.schedules.list(
        app_name=context.path["app_name"],
        user_id=query["user_id"],
        limit=min(query["limit"] or 100, PAGE_LIMIT),
        page_token=query["page_token"],
    )
    return Reply(value=listed)


async def get_schedule(context: RequestContext) -> AnyReply:
    return Reply(value=await context.schedules.get(*_names(context)))


async def replace_schedule(context: RequestContext) -> AnyReply:
    app_name, schedule_id = _names(context)
    schedule = _checked(context)
    return Reply(value=await context.schedules.replace(schedule, app_name=app_name, schedule_id=schedule_id))


async def delete_schedule(context: RequestContext) -> AnyReply | None:
    await context.schedules.delete(*_names(context))
    return None


async def pause_schedule(context: RequestContext) -> AnyReply:
    return Reply(value=await context.schedules.set_paused(*_names(context), is_paused=True))


async def resume_schedule(context: RequestContext) -> AnyReply:
    return Reply(value=await context.schedules.set_paused(*_names(context), is_paused=False))


async def run_schedule(context: RequestContext) -> AnyReply:
    """Starts a run of a schedule now."""
    run = await context.schedules.run_now(*_names(context), idempotency_key=idempotency_key(context))
    return Reply(value=public_record(run), status=HTTPStatus.ACCEPTED)


async def list_schedule_runs(context: RequestContext) -> AnyReply:
    limit = min(context.query["limit"] or 100, PAGE_LIMIT)
    return Reply(value=await context.schedules.list_runs(*_names(context), limit=limit))


def _names(context: RequestContext) -> tuple[str, str]:
    return context.path["app_name"], context.path["schedule_id"]


def _checked(context: RequestContext) -> Schedule:
    """The body. Raises InvalidRequest for a request that no run may have."""
    schedule: Schedule = context.body
    check_run_request(context, context.path["app_name"], schedule.request)
    return schedule
