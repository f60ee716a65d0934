"""Handlers of evaluation: sets, cases, runs, results and metrics. Source of paths and bodies: ADK's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from greenroom.errors import CallerError, InvalidRequest, NotFound, NotOffered, RunFailed, SessionNotFound
from greenroom.evaluation.files import EvalFiles
from greenroom.evaluation.invocations import case_of_session
from greenroom.evaluation.records import (
    EvalCase,
    EvalCaseResult,
    EvalMetric,
    EvalSet,
    MetricInfo,
)
from greenroom.event_streams.stream import RunEnded
from greenroom.records import wire
from greenroom.records.base import JsonObject, Record
from greenroom.records.content import Content
from greenroom.records.event import Event
from greenroom.records.run import AgentRunRequest
from greenroom.records.session import SessionKey
from greenroom.server.replies import AnyReply, Reply, StreamReply
from greenroom.server.request_body import wait_for_disconnect
from greenroom.server.request_context import RequestContext

if TYPE_CHECKING:
    from greenroom.evaluation.run import Evaluation  # with runner, metrics and judges, which only a run needs

_MAX_METRICS = 50


class CreateEvalSetRequest(Record, kw_only=True):
    """eval_set: the new set, with or without cases."""

    eval_set: EvalSet


class AddSessionToEvalSetRequest(Record, kw_only=True):
    """eval_id: of the new case. session_id: of the session that becomes the case. user_id: whose session it is."""

    eval_id: str
    session_id: str
    user_id: str


class RequestedMetric(Record, kw_only=True):
    """metric_name: one of `metrics-info`. threshold: the least score that passes. criterion: further options."""

    metric_name: str
    threshold: float | None = None
    criterion: JsonObject | None = None


class RunEvalRequest(Record, kw_only=True):
    """Which cases to run, and what to measure.

    eval_case_ids: the cases to run; empty: all. eval_ids: the older name of `eval_case_ids`. eval_metrics: what to
    measure. user_simulator_config: of the user in scenarios. live_model_config: not supported.
    """

    eval_case_ids: list[str] = msgspec.field(default_factory=list[str])
    eval_ids: list[str] = msgspec.field(default_factory=list[str])
    eval_metrics: list[RequestedMetric] = msgspec.field(default_factory=list[RequestedMetric])
    user_simulator_config: JsonObject | None = None
    live_model_config: JsonObject | None = None


class RunEvalResponse(Record, kw_only=True, omit_defaults=False):
    """run_eval_results: one for each case."""

    run_eval_results: list[EvalCaseResult]


class ListMetricsInfoResponse(Record, kw_only=True, omit_defaults=False):
    """metrics_info: by name."""

    metrics_info: list[MetricInfo]


def _app(context: RequestContext) -> str:
    """Raises Forbidden, AppNotFound."""
    name = context.path["app_name"]
    context.apps.check_exists(name)
    return name


def _files(context: RequestContext) -> EvalFiles:
    def folder_of(app_name: str) -> Path:
        folder = context.apps.folder(app_name)
        if folder is None:
            raise NotOffered("Evaluation is not installed for apps that are not in a folder")
        return folder

    return EvalFiles(folder_of)


async def list_eval_sets(context: RequestContext) -> AnyReply:
    return Reply(value=await _set_names(context))


async def list_eval_set_ids(context: RequestContext) -> AnyReply:
    return Reply(value={"evalSetIds": await _set_names(context)})


async def _set_names(context: RequestContext) -> list[str]:
    app = _app(context)
    return [] if context.apps.folder(app) is None else await _files(context).list_sets(app)


async def create_eval_set(context: RequestContext) -> AnyReply:
    body: CreateEvalSetRequest = context.body
    return Reply(value=await _files(context).create_set(_app(context), body.eval_set))


async def create_empty_eval_set(context: RequestContext) -> AnyReply:
    await _files(context).create_set(_app(context), EvalSet(eval_set_id=context.path["eval_set_id"]))
    return Reply(value=None)


async def get_eval_set(context: RequestContext) -> AnyReply:
    return Reply(value=await _files(context).get_set(_app(context), context.path["eval_set_id"]))


async def delete_eval_set(context: RequestContext) -> AnyReply:
    await _files(context).delete_set(_app(context), context.path["eval_set_id"])
    return Reply(value=None)


async def list_cases(context: RequestContext) -> AnyReply:
    """ADK answers 400 for a set that is not there."""
    app = _app(context)
    try:
        eval_set = await _files(context).get_set(app, context.path["eval_set_id"])
    except NotFound as error:
        raise CallerError(error.detail) from None
    return Reply(value=sorted(case.eval_id for case in eval_set.eval_cases))


async def add_session(context: RequestContext) -> AnyReply:
    app, files, body = _app(context), _files(context), context.body
    await files.get_set(app, context.path["eval_set_id"])
    key = SessionKey(app, body.user_id, body.session_id)
    session = await context.sessions.get_session(**key._asdict())
    if session is None:
        raise SessionNotFound(*key)
    await files.add_case(app, context.path["eval_set_id"], case_of_session(session, body.eval_id))
    return Reply(value=None)


async def get_case(context: RequestContext) -> AnyReply:
    case = await _files(context).get_case(_app(context), context.path["eval_set_id"], context.path["eval_id"])
    return Reply(value=case)


async def replace_case(context: RequestContext) -> AnyReply:
    case: EvalCase = context.body
    if case.eval_id != context.path["eval_id"]:
        raise CallerError(f"The body is of the case {case.eval_id[:100]!r}, the path of {context.path['eval_id']!r}")
    await _files(context).replace_case(_app(context), context.path["eval_set_id"], case)
    return Reply(value=None)


async def delete_case(context: RequestContext) -> AnyReply:
    await _files(context).delete_case(_app(context), context.path["eval_set_id"], context.path["eval_id"])
    return Reply(value=None)


async def list_eval_results(context: RequestContext) -> AnyReply:
    return Reply(value=await _result_names(context))


async def list_eval_result_ids(context: RequestContext) -> AnyReply:
    return Reply(value={"evalResultIds": await _result_names(context)})


async def _result_names(context: RequestContext) -> list[str]:
    app = _app(context)
    return [] if context.apps.folder(app) is None else await _files(context).list_results(app)


async def get_eval_result(context: RequestContext) -> AnyReply:
    return Reply(value=await _files(context).get_result(_app(context), context.path["eval_result_id"]))


async def list_metrics(context: RequestContext) -> AnyReply:
    from greenroom.evaluation.metrics.by_name import metric_infos

    _app(context)
    return Reply(value=ListMetricsInfoResponse(metrics_info=metric_infos()))


async def run_eval(context: RequestContext) -> AnyReply:
    """Runs the cases. With `Accept: text/event-stream` each result is a frame as its case ends."""
    evaluation = await _evaluation(context)
    if "text/event-stream" in context.headers.get("accept", ""):
        return StreamReply(pieces=_progress(context, evaluation), close=lambda: None)
    return Reply(value=RunEvalResponse(run_eval_results=await _results(context, evaluation)))


async def run_eval_as_list(context: RequestContext) -> AnyReply:
    return Reply(value=await _results(context, await _evaluation(context)))


async def _evaluation(context: RequestContext) -> Evaluation:
    from greenroom.evaluation.metrics.by_name import metrics_of
    from greenroom.evaluation.run import AgentUnderTest, Evaluation, app_details
    from greenroom.evaluation.simulation import user_simulator

    app_name, body = _app(context), context.body
    app = await context.apps.load(app_name)
    if body.live_model_config is not None:
        raise NotOffered("Evaluation of live runs is not supported")
    if len(body.eval_metrics) > _MAX_METRICS:
        raise InvalidRequest(f"At most {_MAX_METRICS} metrics", location=("body", "evalMetrics"))
    eval_set = await _files(context).get_set(app_name, context.path["eval_set_id"])
    wanted = [EvalMetric(**{name: getattr(one, name) for name in one.__struct_fields__}) for one in body.eval_metrics]
    agent = AgentUnderTest(app_name, context.sessions, _runs(context))
    if context.identity.caller is not None:
        agent = agent._replace(user_id=context.identity.subject)
    return Evaluation(
        agent,
        eval_set,
        metrics_of(wanted),
        eval_ids=body.eval_case_ids or body.eval_ids,
        simulator=user_simulator(body.user_simulator_config),
        app_details=await app_details(app),
    )


def _runs(context: RequestContext) -> Callable[[SessionKey, Content], AsyncGenerator[Event]]:
    async def run(key: SessionKey, message: Content) -> AsyncGenerator[Event]:
        """Through the server's runs, with their limits, budgets and traces."""
        started, attachment = await context.engine.start(AgentRunRequest(**key._asdict(), new_message=message))
        assert attachment is not None
        ended = False
        try:
            while not ended:
                for item in await attachment.next_batch():
                    if isinstance(item, RunEnded):
                        ended = True
                        if item.run.error is not None and item.run.error.status is not None:
                            raise RunFailed(item.run.error.message)
                    elif item.event.author != "user":
                        yield item.event
        finally:
            attachment.close()
            if not ended:
                await context.engine.cancel(started.id, reason="the evaluation was cancelled")

    return run


async def _results(context: RequestContext, evaluation: Evaluation) -> list[EvalCaseResult]:
    """All results, unless the client leaves, which cancels the rest."""
    collecting = asyncio.create_task(_collect(context, evaluation))
    leaving = asyncio.create_task(wait_for_disconnect(context.receive))
    try:
        await asyncio.wait((collecting, leaving), return_when=asyncio.FIRST_COMPLETED)
        return await collecting if collecting.done() else []
    finally:
        for task in (collecting, leaving):
            task.cancel()
        await asyncio.gather(collecting, leaving, return_exceptions=True)


async def _collect(context: RequestContext, evaluation: Evaluation) -> list[EvalCaseResult]:
    async for _ in evaluation.results():
        pass
    summary = evaluation.summary()
    await _files(context).save_result(context.path["app_name"], summary)
    return [without_session(one) for one in summary.eval_case_results]


async def _progress(context: RequestContext, evaluation: Evaluation) -> AsyncGenerator[bytes]:
    async for result in evaluation.results():
        progress = {"finished": len(evaluation.finished), "total": evaluation.total}
        yield b"data: %b\n\n" % wire.encode({**progress, "result": without_session(result)})
    summary = evaluation.summary()
    await _files(context).save_result(context.path["app_name"], summary)
    yield b"event: end\ndata: %b\n\n" % wire.encode({"evalResultId": summary.eval_set_result_id})


def without_session(result: EvalCaseResult) -> EvalCaseResult:
    return msgspec.structs.replace(result, session_details=None)
