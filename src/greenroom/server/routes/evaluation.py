"""Handlers of evaluation: sets, cases, runs, results, metrics and tests. Source of paths and bodies: ADK's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from greenroom.errors import CallerError, InvalidRequest, NotFound, NotOffered, RunFailed, RunNotFound
from greenroom.evaluation.answer_cases import AnswerSources, add_answers
from greenroom.evaluation.files import EvalFiles, KeptSession
from greenroom.evaluation.invocations import case_of_session
from greenroom.evaluation.records import (
    DEFAULT_USER,
    EvalCase,
    EvalCaseResult,
    EvalMetric,
    EvalSet,
    EvalSetResult,
    MetricInfo,
    RunEvalResult,
)
from greenroom.event_streams.stream import RunEnded
from greenroom.feedback.store import MAX_PER_EVENT
from greenroom.records import wire
from greenroom.records.base import JsonObject, Record
from greenroom.records.content import Content
from greenroom.records.eval_cases import AddFeedbackRequest, ListEvalSetVersionsResponse, MakeCaseRequest
from greenroom.records.event import Event
from greenroom.records.feedback import Feedback, FeedbackFilter
from greenroom.records.run import AgentRunRequest
from greenroom.records.session import Session, SessionKey
from greenroom.server.replies import AnyReply, Reply, StreamReply
from greenroom.server.request_body import wait_for_disconnect
from greenroom.server.request_context import RequestContext
from greenroom.server.routes.run import wants_stream

if TYPE_CHECKING:
    from greenroom.apps.app import App
    from greenroom.evaluation.run import Evaluation  # with runner, metrics and judges, which only a run needs

T = TypeVar("T")

_MAX_METRICS = 50


class CreateEvalSetRequest(Record, kw_only=True):
    """A set to create."""

    eval_set: EvalSet
    """The new set, with or without cases."""


class AddSessionToEvalSetRequest(Record, kw_only=True):
    """A session that becomes a case."""

    eval_id: str
    """The id of the new case."""
    session_id: str
    """The session's id."""
    user_id: str
    """The session's user."""


class RequestedMetric(Record, kw_only=True):
    """A metric to compute."""

    metric_name: str
    """A metric that `metrics-info` lists."""
    threshold: float | None = None
    """The lowest score that passes."""
    criterion: JsonObject | None = None
    """Further options of the metric."""


class RunEvalRequest(Record, kw_only=True):
    """Cases to run and metrics to compute."""

    eval_case_ids: list[str] = msgspec.field(default_factory=list[str])
    """The cases to run; empty: all."""
    eval_ids: list[str] = msgspec.field(default_factory=list[str])
    """The older name of `eval_case_ids`."""
    eval_set_version: int | None = None
    """The version of the set to run; by default the newest."""
    eval_metrics: list[RequestedMetric] = msgspec.field(default_factory=list[RequestedMetric])
    """The metrics to compute."""
    user_simulator_config: JsonObject | None = None
    """Options of the simulated user in scenarios."""
    live_model_config: JsonObject | None = None
    """Not supported."""


class RunEvalResponse(Record, kw_only=True, omit_defaults=False):
    """The results of the cases."""

    run_eval_results: list[RunEvalResult]
    """One for each case."""


class ListMetricsInfoResponse(Record, kw_only=True, omit_defaults=False):
    """The available metrics."""

    metrics_info: list[MetricInfo]
    """In the order of their names."""


class SaveTestRequest(Record, kw_only=True):
    """A conversation to keep as a test."""

    session_data: KeptSession
    """The conversation as the endpoint of sessions returns it, or its events only."""


class SessionTestReply(Record, kw_only=True):
    """A test that was written."""

    status: str
    """`success`."""
    file: str | None = None
    """The name of the file that was written."""


async def _app(context: RequestContext) -> str:
    """Raises Forbidden, AppNotFound."""
    name = context.path["app_name"]
    await context.apps.check_exists(name)
    return name


def _files(context: RequestContext) -> EvalFiles:
    def folder_of(app_name: str) -> Path:
        folder = context.apps.folder(app_name)
        if folder is None:
            raise NotOffered("Evaluation is not installed for apps that are not in a folder")
        return folder

    return EvalFiles(folder_of)


async def _names(context: RequestContext, list_names: Callable[[EvalFiles, str], Awaitable[list[str]]]) -> list[str]:
    """Empty for an app that is not in a folder."""
    app = await _app(context)
    if context.apps.folder(app) is None:
        return []
    return await list_names(_files(context), app)


async def list_eval_sets(context: RequestContext) -> AnyReply:
    return Reply(value=await _names(context, EvalFiles.list_sets))


async def list_eval_set_ids(context: RequestContext) -> AnyReply:
    return Reply(value={"evalSetIds": await _names(context, EvalFiles.list_sets)})


async def create_eval_set(context: RequestContext) -> AnyReply:
    body: CreateEvalSetRequest = context.body
    return Reply(value=await _files(context).create_set(await _app(context), body.eval_set))


async def create_empty_eval_set(context: RequestContext) -> None:
    await _files(context).create_set(await _app(context), EvalSet(eval_set_id=context.path["eval_set_id"]))


async def get_eval_set(context: RequestContext) -> AnyReply:
    files = _files(context)
    eval_set = await files.get_set(await _app(context), context.path["eval_set_id"], context.query["version"])
    return Reply(value=eval_set)


async def list_eval_set_versions(context: RequestContext) -> AnyReply:
    versions = await _files(context).list_versions(await _app(context), context.path["eval_set_id"])
    return Reply(value=ListEvalSetVersionsResponse(versions=versions))


async def delete_eval_set(context: RequestContext) -> None:
    await _files(context).delete_set(await _app(context), context.path["eval_set_id"])


async def list_cases(context: RequestContext) -> AnyReply:
    """ADK answers 400 for a set that is not there."""
    app = await _app(context)
    try:
        eval_set = await _files(context).get_set(app, context.path["eval_set_id"])
    except NotFound as error:
        raise CallerError(error.detail) from None
    return Reply(value=sorted(case.eval_id for case in eval_set.eval_cases))


async def add_session(context: RequestContext) -> None:
    app = await _app(context)
    files = _files(context)
    body = context.body
    await files.get_set(app, context.path["eval_set_id"])
    key = SessionKey(app, body.user_id, body.session_id)
    session = await context.find_session(key)
    await files.add_cases(app, context.path["eval_set_id"], case_of_session(session, body.eval_id))


async def make_case(context: RequestContext) -> AnyReply:
    """Makes a case of one answer, with all feedback on it."""
    app = await _app(context)
    body: MakeCaseRequest = context.body
    event_id = context.path["event_id"]
    await context.sessions.seq_of_event(**context.session_names, event_id=event_id)  # raises NotFound
    response = await add_answers(
        _files(context),
        body.eval_set_id,
        [(context.session_key, event_id)],
        _answer_sources(context),
        app_name=app,
        expected_response=body.expected_response,
    )
    return Reply(value=response)


async def add_feedback(context: RequestContext) -> AnyReply:
    """Makes cases of the answers with such feedback, as far as the caller may see them."""
    app = await _app(context)
    body: AddFeedbackRequest = context.body
    fields = msgspec.structs.asdict(body)
    limit: int = fields.pop("limit")
    page_token: str | None = fields.pop("page_token")
    files = _files(context)
    page = await context.feedback.list(FeedbackFilter(app_name=app, **fields), limit=limit, page_token=page_token)

    set_id = context.path["eval_set_id"]
    answers = [(one.session_key, one.event_id) for one in page.feedback]
    response = await add_answers(files, set_id, answers, _answer_sources(context), app_name=app)
    response.next_page_token = page.next_page_token
    return Reply(value=response)


def _answer_sources(context: RequestContext) -> AnswerSources:
    async def session_of(key: SessionKey) -> Session | None:
        return await context.sessions.get_session(**key._asdict())

    async def app_version(run_id: str) -> str | None:
        try:
            return (await context.engine.get(run_id)).app_version
        except RunNotFound:
            return None

    async def feedback_on(key: SessionKey, event_id: str) -> list[Feedback]:
        where = FeedbackFilter(**key._asdict(), event_id=event_id)
        return (await context.feedback.list(where, limit=MAX_PER_EVENT, page_token=None)).feedback

    return AnswerSources(get_session=session_of, get_app_version=app_version, list_feedback=feedback_on)


async def get_case(context: RequestContext) -> AnyReply:
    case = await _files(context).get_case(await _app(context), context.path["eval_set_id"], context.path["eval_id"])
    return Reply(value=case)


async def replace_case(context: RequestContext) -> None:
    case: EvalCase = context.body
    if case.eval_id != context.path["eval_id"]:
        raise CallerError(f"The body is of the case {case.eval_id[:100]!r}, the path of {context.path['eval_id']!r}")
    await _files(context).replace_case(await _app(context), context.path["eval_set_id"], case)


async def delete_case(context: RequestContext) -> None:
    await _files(context).delete_case(await _app(context), context.path["eval_set_id"], context.path["eval_id"])


async def list_eval_results(context: RequestContext) -> AnyReply:
    return Reply(value=await _names(context, EvalFiles.list_results))


async def list_eval_result_ids(context: RequestContext) -> AnyReply:
    return Reply(value={"evalResultIds": await _names(context, EvalFiles.list_results)})


async def get_eval_result(context: RequestContext) -> AnyReply:
    return Reply(value=await _files(context).get_result(await _app(context), context.path["eval_result_id"]))


async def list_metrics(context: RequestContext) -> AnyReply:
    from greenroom.evaluation.metrics.by_name import metric_infos

    await _app(context)
    return Reply(value=ListMetricsInfoResponse(metrics_info=metric_infos()))


async def run_eval(context: RequestContext) -> AnyReply:
    """Runs the cases. With `Accept: text/event-stream` each result is a frame as its case ends."""
    evaluation = await _evaluation(context)
    if wants_stream(context):
        return StreamReply(pieces=_progress(context, evaluation), close=lambda: None)
    return Reply(value=RunEvalResponse(run_eval_results=await _results(context, evaluation)))


async def run_eval_as_list(context: RequestContext) -> AnyReply:
    return Reply(value=await _results(context, await _evaluation(context)))


async def _evaluation(context: RequestContext) -> Evaluation:
    from greenroom.evaluation.metrics.by_name import metrics_of
    from greenroom.evaluation.run import AgentUnderTest, Evaluation, app_details
    from greenroom.evaluation.simulation import user_simulator

    app_name = await _app(context)
    body = context.body
    app = await context.apps.load(app_name)
    if body.live_model_config is not None:
        raise NotOffered("Evaluation of live runs is not supported")
    if len(body.eval_metrics) > _MAX_METRICS:
        raise InvalidRequest(f"At most {_MAX_METRICS} metrics", location=("body", "evalMetrics"))
    eval_set = await _files(context).get_set_to_run(app_name, context.path["eval_set_id"], body.eval_set_version)
    wanted = [EvalMetric(**msgspec.structs.asdict(metric)) for metric in body.eval_metrics]
    user_id = DEFAULT_USER if context.identity.caller is None else context.identity.subject
    agent = AgentUnderTest(app_name, context.sessions.as_service(), _runs(context), user_id)
    return Evaluation(
        agent,
        eval_set,
        metrics_of(wanted),
        eval_ids=body.eval_case_ids or body.eval_ids,
        simulator=user_simulator(body.user_simulator_config),
        app_details=await app_details(app),
        app=app,
        offline_sessions=context.sessions_in_memory,
    )


def _runs(
    context: RequestContext, state_delta: JsonObject | None = None
) -> Callable[[SessionKey, Content], AsyncGenerator[Event]]:
    async def run(key: SessionKey, message: Content) -> AsyncGenerator[Event]:
        """Runs the message through the server's engine, with its limits, budgets and traces."""
        request = AgentRunRequest(**key._asdict(), new_message=message, state_delta=state_delta)
        started, attachment = await context.engine.start(request)
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


async def _results(context: RequestContext, evaluation: Evaluation) -> list[RunEvalResult]:
    return await _while_connected(context, _collect(context, evaluation)) or []


async def _while_connected(context: RequestContext, work: Coroutine[Any, Any, T]) -> T | None:
    """Returns the result of the work, and cancels it when the client leaves."""
    working = asyncio.create_task(work)
    leaving = asyncio.create_task(wait_for_disconnect(context.receive))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        return await working if working.done() else None
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _collect(context: RequestContext, evaluation: Evaluation) -> list[RunEvalResult]:
    async for _ in evaluation.results():
        pass
    summary = evaluation.summary()
    await _save(context, summary)
    return [_run_result(context, result) for result in summary.eval_case_results]


async def _progress(context: RequestContext, evaluation: Evaluation) -> AsyncGenerator[bytes]:
    async for result in evaluation.results():
        progress = {"finished": len(evaluation.finished), "total": evaluation.total}
        yield b"data: %b\n\n" % wire.encode({**progress, "result": _run_result(context, result)})
    summary = evaluation.summary()
    is_stored = await _save(context, summary)
    end = {"evalResultId": summary.eval_set_result_id if is_stored else None}
    yield b"event: end\ndata: %b\n\n" % wire.encode(end)


async def _save(context: RequestContext, result: EvalSetResult) -> bool:
    limits = context.settings.limits
    return await _files(context).save_result(
        context.path["app_name"], result, max_results=limits.eval_results, max_bytes=limits.eval_result_bytes
    )


def _run_result(context: RequestContext, result: EvalCaseResult) -> RunEvalResult:
    """The result of a case as the request is answered: without its session, which is stored only."""
    given = {name: getattr(result, name) for name in result.__struct_fields__}
    given |= {"session_details": None, "eval_metric_results": result.overall_eval_metric_results}
    return RunEvalResult(app_name=context.path["app_name"], **given)


async def list_tests(context: RequestContext) -> AnyReply:
    return Reply(value=await _names(context, EvalFiles.list_tests))


async def get_test(context: RequestContext) -> AnyReply:
    return Reply(value=await _files(context).get_test(await _app(context), context.path["test_name"]))


async def save_test(context: RequestContext) -> AnyReply:
    app_name = await _app(context)
    name = context.path["test_name"]
    kept: KeptSession = context.body.session_data
    file = await _files(context).save_test(app_name, name, kept.session(app_name=app_name, name=name))
    return Reply(value=SessionTestReply(status="success", file=file))


async def delete_test(context: RequestContext) -> AnyReply:
    await _files(context).delete_test(await _app(context), context.path["test_name"])
    return Reply(value=SessionTestReply(status="success"))


async def _wanted_tests(context: RequestContext) -> dict[str, Session]:
    """Returns the test that the query names, or all, by name."""
    files = _files(context)
    app = await _app(context)
    name: str | None = context.query["test_name"]
    names = [name] if name else await files.list_tests(app)
    return {test: await files.get_test(app, test) for test in names}


async def run_tests(context: RequestContext) -> AnyReply:
    """Replays the sessions. Streams a line for each as it ends, with the first event that differs."""
    tests = await _wanted_tests(context)
    app = await context.apps.load(context.path["app_name"])
    return StreamReply(pieces=_replays(app, tests), close=lambda: None, media_type="text/plain; charset=utf-8")


async def _replays(app: App, tests: dict[str, Session]) -> AsyncGenerator[bytes]:
    from greenroom.evaluation.replay import replay_session

    failed = 0
    for name, then in tests.items():
        change = await replay_session(app, then)
        is_expected = name.removesuffix(".json").endswith("_xfail")
        failed += bool(change) is not is_expected
        line = f"{name} {_outcome(change, is_expected=is_expected)}\n"
        if change and not is_expected:
            line += change
        yield line.rstrip().encode() + b"\n"
    yield f"{len(tests) - failed} passed, {failed} failed\n".encode()


def _outcome(difference: str | None, *, is_expected: bool) -> str:
    """Names the outcome of a test in pytest's words. is_expected: whether the test is expected to fail."""
    if is_expected:
        return "XFAIL" if difference else "XPASS"
    return "FAILED" if difference else "PASSED"


async def rebuild_tests(context: RequestContext) -> AnyReply:
    """Re-records the conversations with the models and tools of the app, and replaces the former ones."""
    await _while_connected(context, _rebuild(context))
    return Reply(value=SessionTestReply(status="success"))


def _eval_session_key(app_name: str, user_id: str, new_id: str) -> SessionKey:
    from greenroom.evaluation.run import SESSION_PREFIX

    return SessionKey(app_name, user_id, SESSION_PREFIX + new_id)


async def _rebuild(context: RequestContext) -> None:
    from greenroom.evaluation.recorded_case import spec_of, with_open_calls  # with YAML, which takes 10 ms

    app_name = await _app(context)
    tests = await _wanted_tests(context)
    await context.apps.load(app_name)
    for name, then in tests.items():
        spec = spec_of(then)
        delta = dict[str, Any]()
        user_id = DEFAULT_USER if context.identity.caller is None else context.identity.subject
        key = context.new_session_key(partial(_eval_session_key, app_name, user_id))
        session = await context.sessions.create_session(**key._asdict(), state=spec.initial_state)
        for message in spec.user_messages:
            delta |= message.state_delta or {}
            if message.live_run is not None:
                raise InvalidRequest(f"{name} is a live conversation, which can't be had again")
            if (content := with_open_calls(message.as_content(), session.events)) is None:
                continue  # a change of the state, which the next message brings
            async with aclosing(_runs(context, delta or None)(session.key, content)) as events:
                async for _ in events:
                    pass
            delta = {}
            session = await context.find_session(session.key)
        await _files(context).save_test(app_name, name, session)
