"""Handlers of published versions of apps and of their traffic."""

from __future__ import annotations

from http import HTTPStatus

from greenroom.records.app_version import PublishVersionRequest, Traffic
from greenroom.records.feedback import FeedbackFilter
from greenroom.records.run import RunFilter
from greenroom.server.replies import AnyReply, Reply
from greenroom.server.request_context import RequestContext

_PAGE = 1000


async def publish_version(context: RequestContext) -> AnyReply:
    app_name = await _app_name(context)
    request: PublishVersionRequest = context.body or PublishVersionRequest()
    published = await context.versions.publish(app_name, message=request.message)
    return Reply(value=published, status=HTTPStatus.CREATED)


async def list_app_versions(context: RequestContext) -> AnyReply:
    return Reply(value=await context.versions.list(await _app_name(context)))


async def get_version(context: RequestContext) -> AnyReply:
    return Reply(value=await context.versions.get(await _app_name(context), context.path["version_name"]))


async def delete_version(context: RequestContext) -> AnyReply | None:
    await context.versions.delete(await _app_name(context), context.path["version_name"])
    return None


async def compare_versions(context: RequestContext) -> AnyReply:
    app_name = await _app_name(context)
    names = context.path["version_name"], context.path["other_version_name"]
    return Reply(value=await context.versions.compare(app_name, *names))


async def set_traffic(context: RequestContext) -> AnyReply:
    traffic: Traffic = context.body
    return Reply(value=await context.versions.set_traffic(await _app_name(context), traffic.shares))


async def get_version_scores(context: RequestContext) -> AnyReply:
    """Counts the newest runs and feedback, which takes no more than a second."""
    from greenroom.server.version_scores import MAX_FEEDBACK, MAX_RUNS, ScoreCounter

    app_name = await _app_name(context)
    listed = await context.versions.list(app_name)
    counter = ScoreCounter(listed.versions)
    token: str | None = None
    while True:
        runs = await context.engine.list_runs(RunFilter(app_names=[app_name]), limit=_PAGE, page_token=token)
        counter.add_runs(runs.runs)
        token = runs.next_page_token
        if token is None or counter.runs >= MAX_RUNS:
            break

    is_limited = token is not None
    where = FeedbackFilter(app_name=app_name, created_from=counter.runs_from)
    count = 0
    token = None
    while counter.runs:
        feedback = await context.feedback.list(where, limit=_PAGE, page_token=token)
        counter.add_feedback(feedback.feedback)
        count += len(feedback.feedback)
        token = feedback.next_page_token
        if token is None or count >= MAX_FEEDBACK:
            break
    return Reply(value=counter.result(baseline=context.query["baseline"], shares=listed.shares, is_limited=is_limited))


async def _app_name(context: RequestContext) -> str:
    """Raises Forbidden unless the caller acts for all users of the app, AppNotFound."""
    app_name = context.path["app_name"]
    context.identity.check_reach(app_name, None)
    await context.apps.check_exists(app_name)
    return app_name
