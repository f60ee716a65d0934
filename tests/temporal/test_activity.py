"""The activity in workflows of a real Temporal server, on real greenroom servers."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeAlias
from uuid import uuid4

import pytest
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import ActivityError, ApplicationError, CancelledError
from temporalio.testing import ActivityEnvironment
from temporalio.worker import Worker

from greenroom import errors
from greenroom.apps.app import App
from greenroom.client.async_client import AsyncClient
from greenroom.invocation.user_context import ToolContext
from greenroom.plugins.budget import BudgetLimit, BudgetPlugin
from greenroom.records.answer_metadata import GenerateContentResponseUsageMetadata
from greenroom.records.content import Content, FunctionCall, Part
from greenroom.records.model_exchange import LlmResponse
from greenroom.records.run import Run, RunStatus
from greenroom.server.access.api_key_file import ApiKeyFile
from greenroom.server.settings import AuthSettings
from greenroom.temporal import AgentActivity, AgentRequest, AgentRunInput, AgentRunResult, AgentTokens
from greenroom.tools.builtin.sleep import wait
from greenroom.tools.functions.function_tool import FunctionTool
from tests.server.agents import Gate, echo, gated, scripted
from tests.server.conftest import Serve
from tests.server.serving import Serving, until
from tests.temporal.conftest import Work
from tests.temporal.workflows import Ask, AskAndStay, AskTwice, AskUntilItEnds, Limits, Question

Start: TypeAlias = Callable[..., Awaitable[WorkflowHandle[Any, Any]]]


@pytest.fixture
def start(temporal: Client, task_queue: str) -> Start:
    """Starts a workflow that sends a message to an app."""

    async def starting(
        app: str,
        message: str | dict[str, Any] | None = "hi",
        *,
        workflow: Any = Ask.run,
        session: str | None = None,
        limits: Limits | None = None,
        **options: Any,
    ) -> WorkflowHandle[Any, Any]:
        request = AgentRunInput(app_name=app, user_id="ann", message=message, session_id=session)
        question = Question(request, limits or Limits())
        return await temporal.start_workflow(
            workflow, question, id=f"w-{uuid4().hex}", task_queue=task_queue, **options
        )

    return starting


@pytest.fixture
async def gate() -> Gate:
    return Gate()


@pytest.fixture
async def server(serve: Serve, gate: Gate) -> Serving:
    def pay(amount: int, tool_context: ToolContext) -> dict[str, int]:
        """Pays."""
        tool_context.state["paid"] = amount
        return {"paid": amount}

    payer = scripted(
        "payer",
        [FunctionCall(name="pay", args={"amount": 5}), "It is paid."],
        tools=[FunctionTool(pay, require_confirmation=True)],
    )
    sleeper = scripted("sleeper", [FunctionCall(name="wait", args={"seconds": 0.4}), "Awake."], tools=[wait])
    failing = scripted("failing", [errors.ModelError("on fire", model="m")])
    usage = GenerateContentResponseUsageMetadata(prompt_token_count=7, candidates_token_count=3)
    answer = LlmResponse(content=Content(role="model", parts=[Part(text="42")]), usage_metadata=usage)
    poor = App(name="poor", root_agent=echo("poor"), plugins=[BudgetPlugin([BudgetLimit(tokens=1, per="run")])])
    return await serve(echo(), gated(gate), payer, sleeper, failing, poor, scripted("counted", [answer]))


@pytest.fixture
async def client(server: Serving) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(server.url) as made:
        yield made


@pytest.fixture
async def worker(client: AsyncClient, work: Work) -> AsyncIterator[Worker]:
    async with work(client) as started:
        yield started


async def runs_of(client: AsyncClient, app: str) -> list[Run]:
    return (await client.list_runs(app_name=app)).runs


async def run_with_status(client: AsyncClient, app: str, status: RunStatus) -> Run:
    """Waits until the only run of an app has the status."""
    async with asyncio.timeout(20):
        while True:
            runs = await runs_of(client, app)
            if [run.status for run in runs] == [status]:
                return runs[0]
            await asyncio.sleep(0.02)


async def failure_of(workflow: WorkflowHandle[Any, Any]) -> ApplicationError:
    """The error with which the activity of a workflow has failed."""
    with pytest.raises(WorkflowFailureError) as failed:
        await workflow.result()
    assert isinstance(failed.value.cause, ActivityError)
    cause = failed.value.cause.cause
    assert isinstance(cause, ApplicationError)
    return cause


@pytest.mark.usefixtures("worker")
async def test_an_activity_returns_the_answer(start: Start, client: AsyncClient) -> None:
    result: AgentRunResult = await (await start("counted", "hello")).result()
    (run,) = await runs_of(client, "counted")
    assert (result.status, result.text, result.requests) == ("succeeded", "42", [])
    assert (result.run_id, result.session_id) == (run.id, run.session_id)
    assert result.usage == AgentTokens(input_tokens=7, output_tokens=3)


@pytest.mark.usefixtures("worker")
async def test_activities_share_a_session_that_is_named(start: Start, client: AsyncClient) -> None:
    for message in ("one", {"parts": [{"text": "two"}]}):
        result = await (await start("echo", message, session="s 1")).result()
        assert result.session_id == "s 1"
    session = await client.get_session(app_name="echo", user_id="ann", session_id="s 1")
    texts = [event.content.text() for event in session.events if event.content is not None]
    assert texts == ["one", "You said one", "two", "You said two"]


@pytest.mark.usefixtures("worker")
async def test_two_activities_of_a_workflow_are_two_runs(start: Start, client: AsyncClient) -> None:
    results: list[AgentRunResult] = await (await start("echo", workflow=AskTwice.run)).result()
    assert {result.run_id for result in results} == {run.id for run in await runs_of(client, "echo")}
    assert len({result.session_id for result in results}) == 2


@pytest.mark.usefixtures("worker")
async def test_a_workflow_answers_a_request_for_approval(start: Start, client: AsyncClient) -> None:
    workflow = await start("payer", workflow=AskUntilItEnds.run)
    requests: list[AgentRequest] = []
    async with asyncio.timeout(20):
        while not requests:
            requests = await workflow.query(AskUntilItEnds.requests)
    (request,) = requests
    assert request.name == "adk_request_confirmation"
    assert request.args["originalFunctionCall"]["args"] == {"amount": 5}

    await workflow.signal(AskUntilItEnds.answer, {"confirmed": True})
    result: AgentRunResult = await workflow.result()
    (run,) = await runs_of(client, "payer")
    assert (result.run_id, result.status, result.text) == (run.id, "succeeded", "It is paid.")
    assert result.state_delta == {"paid": 5}


async def test_an_approval_that_was_given_elsewhere_is_refused(client: AsyncClient) -> None:
    agents = AgentActivity(client)
    asked = AgentRunInput(app_name="payer", user_id="ann", message="Pay 5", session_id="s-1")
    waiting = await ActivityEnvironment().run(agents.run, asked)
    (request,) = waiting.requests
    call = FunctionCall(id=request.id, name=request.name)
    await (await client.approve(await client.get_run(waiting.run_id), call)).wait()

    environment = ActivityEnvironment()
    environment.info = dataclasses.replace(ActivityEnvironment.default_info(), activity_id="another")
    answer = dataclasses.replace(asked, message=None, responses=[request.respond({"confirmed": False})])
    with pytest.raises(ApplicationError) as refused:
        await environment.run(agents.run, answer)
    assert (refused.value.type, refused.value.non_retryable) == ("ApprovalRefused", True)


@pytest.mark.usefixtures("worker")
async def test_an_activity_waits_while_its_run_sleeps(start: Start, client: AsyncClient) -> None:
    result: AgentRunResult = await (await start("sleeper")).result()
    (run,) = await runs_of(client, "sleeper")
    assert (result.run_id, result.status, result.text) == (run.id, "succeeded", "Awake.")


# cancellation and timeouts


@pytest.mark.usefixtures("worker")
async def test_cancelling_the_workflow_cancels_the_run(start: Start, client: AsyncClient, gate: Gate) -> None:
    workflow = await start("gated")
    await until(lambda: gate.entered == 1)
    await workflow.cancel()
    with pytest.raises(WorkflowFailureError) as failed:
        await workflow.result()
    assert isinstance(failed.value.cause, CancelledError)
    (run,) = await runs_of(client, "gated")
    assert run.status is RunStatus.CANCELLED


async def test_a_run_that_is_being_started_is_cancelled(server: Serving, client: AsyncClient, gate: Gate) -> None:
    hold = asyncio.Event()
    environment = ActivityEnvironment()
    request = AgentRunInput(app_name="gated", user_id="ann", message="hi", session_id="s-1")
    await client.create_session(app_name="gated", user_id="ann", session_id="s-1")
    async with held_replies(server.port, hold) as url, AsyncClient(url) as slow:
        attempt = asyncio.ensure_future(environment.run(AgentActivity(slow).run, request))
        await until(lambda: gate.entered == 1)
        environment.cancel()
        hold.set()
        with pytest.raises(asyncio.CancelledError):
            await attempt
    (run,) = await runs_of(client, "gated")
    assert run.status is RunStatus.CANCELLED


@contextlib.asynccontextmanager
async def held_replies(port: int, hold: asyncio.Event) -> AsyncGenerator[str]:
    """The address of a server, whose replies arrive once the event is set."""

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_reply: bool) -> None:
        while data := await reader.read(65536):
            if is_reply:
                await hold.wait()
            writer.write(data)
            await writer.drain()
        writer.close()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(
            pipe(reader, to_server, is_reply=False),
            pipe(from_server, writer, is_reply=True),
            return_exceptions=True,
        )

    async with await asyncio.start_server(connected, "127.0.0.1", 0) as proxy:
        yield f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}"


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize("end", ["terminated", "timed out"])
async def test_the_run_of_a_workflow_that_is_over_is_cancelled(
    end: str, start: Start, client: AsyncClient, gate: Gate
) -> None:
    timeout = timedelta(seconds=1) if end == "timed out" else None
    workflow = await start("gated", limits=Limits(heartbeat=1.0), execution_timeout=timeout)
    await until(lambda: gate.entered == 1)
    if end == "terminated":
        await workflow.terminate()
    await run_with_status(client, "gated", RunStatus.CANCELLED)


@pytest.mark.usefixtures("worker")
async def test_the_run_of_an_activity_that_is_given_up_is_cancelled(
    start: Start, client: AsyncClient, gate: Gate
) -> None:
    limits = Limits(heartbeat=1.0, schedule_to_close=1.0)
    workflow = await start("gated", workflow=AskAndStay.run, limits=limits)
    await until(lambda: gate.entered == 1)
    await run_with_status(client, "gated", RunStatus.CANCELLED)
    assert (await workflow.describe()).status is WorkflowExecutionStatus.RUNNING
    await workflow.signal(AskAndStay.end)
    assert await workflow.result() == "failed"


@pytest.mark.usefixtures("worker")
async def test_an_attempt_after_a_timeout_continues_with_the_run(start: Start, client: AsyncClient, gate: Gate) -> None:
    workflow = await start("gated", limits=Limits(start_to_close=0.7, heartbeat=0.5))
    async with asyncio.timeout(20):
        while True:
            pending = (await workflow.describe()).raw_description.pending_activities
            if [one.attempt for one in pending] == [3]:  # the first one has learnt by now that its time is over
                break
            await asyncio.sleep(0.05)

    (run,) = await runs_of(client, "gated")
    assert run.status is RunStatus.RUNNING
    gate.open()
    result: AgentRunResult = await workflow.result()
    assert (result.run_id, result.text, gate.entered) == (run.id, "through", 1)
    assert len(await runs_of(client, "gated")) == 1


async def test_a_worker_that_stops_leaves_the_run_to_the_next(
    start: Start, client: AsyncClient, gate: Gate, work: Work
) -> None:
    async with work(client):
        workflow = await start("gated", limits=Limits(heartbeat=30.0))
        await until(lambda: gate.entered == 1)
    (run,) = await runs_of(client, "gated")
    assert run.status is RunStatus.RUNNING

    gate.open()
    async with work(client):
        result: AgentRunResult = await workflow.result()
    assert (result.run_id, result.text, gate.entered) == (run.id, "through", 1)


# heartbeats


@pytest.mark.usefixtures("worker")
async def test_the_heartbeat_is_the_last_sequence_number(
    start: Start, client: AsyncClient, gate: Gate, temporal: Client
) -> None:
    workflow = await start("gated", limits=Limits(heartbeat=0.5))
    await until(lambda: gate.entered == 1)
    (run,) = await runs_of(client, "gated")
    async with asyncio.timeout(20):
        while True:
            (pending,) = (await workflow.describe()).raw_description.pending_activities
            beat = await temporal.data_converter.decode(pending.heartbeat_details.payloads)
            if beat == [run.id, 2]:
                break
            await asyncio.sleep(0.05)
    gate.open()
    await workflow.result()


async def test_an_attempt_without_a_heartbeat_gets_the_same_run(client: AsyncClient) -> None:
    request = AgentRunInput(app_name="echo", user_id="ann", message="hello")
    results = [await ActivityEnvironment().run(AgentActivity(client).run, request) for _ in range(2)]
    (run,) = await runs_of(client, "echo")
    assert [(result.run_id, result.text) for result in results] == [(run.id, "You said hello")] * 2


async def test_an_attempt_continues_after_the_heartbeat_of_the_one_before(client: AsyncClient) -> None:
    await client.create_session(app_name="echo", user_id="ann", session_id="s-1")
    stream = await client.run(app_name="echo", user_id="ann", session_id="s-1", message="hello")
    run = await stream.wait()
    assert stream.last_seq == 2

    beats: list[tuple[Any, ...]] = []
    environment = ActivityEnvironment()
    environment.info = dataclasses.replace(ActivityEnvironment.default_info(), heartbeat_details=[run.id, 2])
    environment.on_heartbeat = lambda *details: beats.append(details)
    request = AgentRunInput(app_name="echo", user_id="ann", message="hello")
    result = await environment.run(AgentActivity(client).run, request)
    assert (result.run_id, result.text) == (run.id, "You said hello")
    assert set(beats) == {(run.id, 2)}
    assert len(await runs_of(client, "echo")) == 1


# errors


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize(
    ("app", "message", "code"),
    [
        ("nope", "hi", "AppNotFound"),
        ("echo", {"parts": 1}, "InvalidRequest"),
        ("failing", "hi", "ModelError"),
        ("poor", "hi", "BUDGET_EXCEEDED"),
    ],
)
async def test_errors_that_a_retry_cannot_mend_are_not_retried(app: str, message: Any, code: str, start: Start) -> None:
    error = await failure_of(await start(app, message))
    assert (error.type, error.non_retryable) == (code, True)
    assert error.message


@pytest.mark.usefixtures("worker")
async def test_a_run_that_is_cancelled_on_the_server_fails_the_activity(
    start: Start, client: AsyncClient, gate: Gate
) -> None:
    workflow = await start("gated")
    await until(lambda: gate.entered == 1)
    (run,) = await runs_of(client, "gated")
    await client.cancel_run(run.id)
    error = await failure_of(workflow)
    assert (error.type, error.non_retryable) == ("RunCancelled", True)
    assert error.details == ({"session_id": run.session_id, "run_id": run.id},)


async def test_a_wrong_key_is_not_retried(serve: Serve, start: Start, work: Work, tmp_path: Any) -> None:
    keys = ApiKeyFile(tmp_path / "keys.json")
    server = await serve(echo(), auth=AuthSettings(keys=str(keys.path)))
    async with AsyncClient(server.url, api_key="nonsense") as client, work(client):
        error = await failure_of(await start("echo"))
    assert (error.type, error.non_retryable) == ("Unauthenticated", True)


async def test_a_server_that_cannot_be_reached_is_tried_again(start: Start, work: Work) -> None:
    async with AsyncClient("http://127.0.0.1:1", retry_seconds=0.1) as client, work(client):
        workflow = await start("echo", limits=Limits(attempts=2))
        error = await failure_of(workflow)
        history = await workflow.fetch_history()
    assert (error.type, error.non_retryable) == ("Unavailable", False)
    attempts = [event.activity_task_started_event_attributes.attempt for event in history.events]
    assert max(attempts) == 2
