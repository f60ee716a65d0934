"""Second chances: failed and cancelled runs that are retried, in their session or in a fork of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from greenroom.agents.agent import BaseAgent
from greenroom.agents.llm_agent import LlmAgent
from greenroom.agents.workflow.edges import START
from greenroom.agents.workflow.workflow import Workflow
from greenroom.agents.workflows import ParallelAgent, SequentialAgent
from greenroom.apps.app import App
from greenroom.apps.loader import StaticAppLoader
from greenroom.errors import IdempotencyConflict, NotRetryable, RunNotFound, SessionBusy
from greenroom.invocation.user_context import ToolContext
from greenroom.log.calls import INTERRUPTED
from greenroom.records.answer_metadata import GenerateContentResponseUsageMetadata
from greenroom.records.content import Content, FunctionCall, FunctionResponse, Part
from greenroom.records.event import Event
from greenroom.records.inbox import Answerer, RequestAnswer, RequestFilter
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from greenroom.records.run import AgentRunRequest, Run, RunStatus
from greenroom.records.session import SessionKey
from greenroom.runs.in_process import InProcessRunEngine
from greenroom.runs.memory_store import InMemoryRunStore
from greenroom.sessions.in_memory import InMemorySessionService
from greenroom.testing.scripted_model import Fails, ScriptedModel, Turn
from greenroom.tools.functions.function_tool import FunctionTool, LongRunningFunctionTool

KEY = SessionKey("app", "ada", "s-1")


class Tools:
    """Tools that fail, or wait, as often as `faults` says, and note each call with its idempotency key."""

    def __init__(self, *, faults: int = 1) -> None:
        self.faults = faults
        self.calls: list[str] = []
        self.keys: list[str] = []
        self.entered = asyncio.Event()

    async def pay(self, tool_context: ToolContext) -> dict[str, str]:
        """Pays, always with success."""
        self.calls.append("pay")
        return {"paid": "5"}

    async def send(self, tool_context: ToolContext) -> dict[str, str]:
        """Fails."""
        self.calls.append("send")
        self.keys.append(tool_context.idempotency_key)
        if self.faults > 0:
            self.faults -= 1
            raise ConnectionError("no route")
        return {"sent": "yes"}

    async def hang(self) -> dict[str, str]:
        """Waits for ever."""
        self.calls.append("hang")
        self.entered.set()
        if self.faults > 0:
            self.faults -= 1
            await asyncio.Event().wait()
        return {"hung": "no more"}


class Desk:
    """An engine with one app, whose agent says what a script has."""

    def __init__(self, root: BaseAgent) -> None:
        self.sessions = InMemorySessionService()
        self.store = InMemoryRunStore()
        self.app = App(name="app", root_agent=root)
        self.engine = InProcessRunEngine(
            apps=StaticAppLoader([self.app]), run_store=self.store, session_service=self.sessions
        )

    async def open(self) -> None:
        await self.sessions.create_session(**KEY._asdict())

    async def run(self, text: str = "go") -> Run:
        run, _ = await self.engine.start(asking(text), attach=False)
        return await self.end_of(run.id)

    async def retry(self, run: Run, **options: Any) -> Run:
        retried = await self.engine.retry(run.id, **options)
        return await self.end_of(retried.id)

    async def end_of(self, run_id: str) -> Run:
        async with asyncio.timeout(5):
            while not (run := await self.engine.get(run_id)).status.is_over:
                await asyncio.sleep(0)
        return run

    async def log(self, session_id: str = "s-1") -> list[Event]:
        page = await self.sessions.list_events(app_name="app", user_id="ada", session_id=session_id)
        return page.events


def asking(text: str) -> AgentRunRequest:
    message = Content(role="user", parts=[Part(text=text)])
    return AgentRunRequest(**KEY._asdict(), new_message=message)


def call(name: str, call_id: str = "") -> FunctionCall:
    return FunctionCall(id=call_id or f"c-{name}", name=name, args={})


def agent_of(*script: Turn, tools: Tools | None = None, on_interrupt: Any = "report", name: str = "desk") -> LlmAgent:
    of_agent = [] if tools is None else [
        FunctionTool(tools.pay),
        FunctionTool(tools.send, on_interrupt=on_interrupt),
        FunctionTool(tools.hang, on_interrupt=on_interrupt),
    ]  # fmt: skip
    return LlmAgent(name=name, model=ScriptedModel(list(script)), tools=of_agent)


def requests_of(agent: LlmAgent) -> list[LlmRequest]:
    assert isinstance(agent.model, ScriptedModel)
    return agent.model.requests


async def desk_of(root: BaseAgent) -> Desk:
    desk = Desk(root)
    await desk.open()
    return desk


def shown(contents: list[Content]) -> list[Any]:
    """The texts and responses of a prompt."""
    found: list[Any] = []
    for content in contents:
        for part in content.parts or ():
            if part.function_call is None:
                found.append(part.function_response.response if part.function_response is not None else part.text)
    return found


async def test_model_that_failed_is_called_again_without_its_error() -> None:
    agent = agent_of(ValueError("overloaded"), Fails(error=ValueError("again"), after_chunks=2), "Fine.", "Next.")
    desk = await desk_of(agent)
    failed = await desk.run("How is Oslo?")
    assert failed.status is RunStatus.FAILED

    again = await desk.retry(failed)
    assert (again.status, again.id, again.retries) == (RunStatus.FAILED, failed.id, 1)
    done = await desk.retry(again)
    assert (done.status, done.error, done.retries, done.attempts) == (RunStatus.SUCCEEDED, None, 2, 3)

    contents = [shown(list(request.contents)) for request in requests_of(agent)]
    assert contents == [["How is Oslo?"]] * 3
    log = await desk.log()
    assert [event.error_code for event in log if event.error_code] == ["ValueError", "ValueError"]
    assert sum(event.is_retry() for event in log) == 2

    await desk.run("And Bergen?")
    assert shown(list(requests_of(agent)[-1].contents)) == ["How is Oslo?", "Fine.", "And Bergen?"]


@pytest.mark.parametrize(("on_interrupt", "sends"), [("retry", 2), ("report", 1)])
async def test_only_the_failed_call_follows_on_interrupt(on_interrupt: str, sends: int) -> None:
    tools = Tools()
    agent = agent_of([call("pay"), call("send")], "Done.", tools=tools, on_interrupt=on_interrupt)
    desk = await desk_of(agent)
    failed = await desk.run()
    assert failed.error is not None
    assert failed.error.code == "ConnectionError"

    done = await desk.retry(failed)
    assert done.status is RunStatus.SUCCEEDED
    assert tools.calls.count("pay") == 1
    assert tools.calls.count("send") == sends
    assert len(set(tools.keys)) == 1
    sent = {"sent": "yes"} if on_interrupt == "retry" else INTERRUPTED
    assert shown(list(requests_of(agent)[-1].contents)) == ["go", {"paid": "5"}, sent]


@pytest.mark.parametrize(("on_interrupt", "calls"), [("retry", 2), ("report", 1)])
async def test_cancelled_run_makes_its_open_call_again_if_the_tool_says_so(on_interrupt: str, calls: int) -> None:
    tools = Tools()
    desk = await desk_of(agent_of(call("hang"), "Done.", tools=tools, on_interrupt=on_interrupt))
    run, _ = await desk.engine.start(asking("go"), attach=False)
    async with asyncio.timeout(5):
        await tools.entered.wait()
    cancelled = await desk.engine.cancel(run.id, reason="a test")
    assert cancelled.status is RunStatus.CANCELLED

    done = await desk.retry(cancelled)
    assert done.status is RunStatus.SUCCEEDED
    assert tools.calls == ["hang"] * calls


async def test_cancelled_run_that_waited_waits_again() -> None:
    def export() -> None:
        """Answers later."""

    agent = LlmAgent(
        name="desk", model=ScriptedModel([call("export"), "Done."]), tools=[LongRunningFunctionTool(export)]
    )
    desk = await desk_of(agent)
    run = await desk.run()
    await desk.engine.cancel(run.id, reason="a test")
    assert (await desk.retry(run)).status is RunStatus.WAITING


async def test_run_cancelled_in_the_queue_keeps_its_message() -> None:
    tools = Tools()
    agent = agent_of(call("hang"), "Hello.", tools=tools)
    desk = await desk_of(agent)
    first, _ = await desk.engine.start(asking("one"), attach=False)
    async with asyncio.timeout(5):
        await tools.entered.wait()
    second, _ = await desk.engine.start(asking("two"), attach=False)
    await desk.engine.cancel(second.id, reason="a test")
    with pytest.raises(SessionBusy):
        await desk.engine.retry(second.id)
    await desk.engine.cancel(first.id, reason="a test")

    done = await desk.retry(second)
    assert done.status is RunStatus.SUCCEEDED
    assert shown(list(requests_of(agent)[-1].contents))[-1] == "two"
    assert done.request is not None
    assert done.request.new_message is None


async def test_retry_is_refused_where_the_session_went_on() -> None:
    agent = agent_of(ValueError("no"), "Fine.", "Forked.")
    desk = await desk_of(agent)
    failed = await desk.run("one")
    succeeded = await desk.run("two")
    with pytest.raises(NotRetryable, match="later messages"):
        await desk.engine.retry(failed.id)
    with pytest.raises(NotRetryable, match="succeeded"):
        await desk.engine.retry(succeeded.id)
    with pytest.raises(RunNotFound):
        await desk.engine.retry("missing")

    before = await desk.log()
    forked = await desk.retry(failed, fork=True)
    assert (forked.status, forked.retry_of) == (RunStatus.SUCCEEDED, failed.id)
    assert forked.session_id != failed.session_id
    assert shown(list(requests_of(agent)[-1].contents)) == ["one"]
    assert await desk.log() == before
    assert [event.content.text() for event in await desk.log(forked.session_id) if event.content] == ["one", "Forked."]


async def test_fork_continues_the_calls_of_the_failed_run_with_their_keys() -> None:
    tools = Tools(faults=2)
    agent = agent_of([call("pay"), call("send")], "Done.", tools=tools, on_interrupt="retry")
    desk = await desk_of(agent)
    failed = await desk.run()
    forked = await desk.retry(failed, fork=True)
    assert forked.status is RunStatus.FAILED
    done = await desk.retry(forked)
    assert (done.status, done.retries) == (RunStatus.SUCCEEDED, 2)
    assert tools.calls == ["pay", "send", "send", "send"]
    assert len(set(tools.keys)) == 1
    assert shown(list(requests_of(agent)[-1].contents)) == ["go", {"paid": "5"}, {"sent": "yes"}]


async def test_fork_of_a_fork_continues_the_first_run() -> None:
    tools = Tools(faults=2)
    agent = agent_of([call("pay"), call("send")], "Done.", tools=tools, on_interrupt="retry")
    desk = await desk_of(agent)
    forked = await desk.retry(await desk.run(), fork=True)
    done = await desk.retry(forked, fork=True)
    assert done.status is RunStatus.SUCCEEDED
    assert tools.calls == ["pay", "send", "send", "send"]


async def test_answer_in_a_fork_continues_the_run_of_the_fork() -> None:
    def export() -> None:
        """Answers later."""

    agent = LlmAgent(
        name="desk", model=ScriptedModel([call("export"), "Done."]), tools=[LongRunningFunctionTool(export)]
    )
    desk = await desk_of(agent)
    run = await desk.run()
    await desk.engine.cancel(run.id, reason="a test")
    forked = await desk.retry(run, fork=True)
    assert forked.status is RunStatus.WAITING

    response = Part.from_function_response(name="export", response={"pages": 1})
    assert response.function_response is not None
    response.function_response.id = "c-export"
    answer = AgentRunRequest(
        app_name="app", user_id="ada", session_id=forked.session_id, new_message=Content(role="user", parts=[response])
    )
    answered, _ = await desk.engine.start(answer, attach=False)
    assert answered.id == forked.id
    assert (await desk.end_of(forked.id)).status is RunStatus.SUCCEEDED


async def test_same_idempotency_key_retries_once() -> None:
    agent = agent_of(ValueError("no"), ValueError("no"), "Fine.")
    desk = await desk_of(agent)
    failed = await desk.run()
    again = await desk.retry(failed, idempotency_key="k")
    same = await desk.engine.retry(failed.id, idempotency_key="k")
    assert (same.id, same.retries, again.retries) == (failed.id, 1, 1)
    assert len(requests_of(agent)) == 2
    with pytest.raises(IdempotencyConflict):
        await desk.engine.retry(failed.id, fork=True, idempotency_key="k")

    forked = await desk.retry(failed, fork=True, idempotency_key="f")
    assert (await desk.engine.retry(failed.id, fork=True, idempotency_key="f")).id == forked.id


async def test_two_retries_at_once_start_one() -> None:
    desk = await desk_of(agent_of(ValueError("no"), "Fine."))
    failed = await desk.run()
    outcomes = await asyncio.gather(*(desk.engine.retry(failed.id) for _ in range(5)), return_exceptions=True)
    assert sum(isinstance(one, Run) for one in outcomes) == 1
    assert sum(isinstance(one, NotRetryable) for one in outcomes) == 4


async def test_workflow_continues_with_the_agent_that_failed() -> None:
    first = agent_of("one", name="first")
    second = agent_of(ValueError("no"), "two", name="second")
    third = agent_of("three", name="third")
    desk = await desk_of(SequentialAgent(name="flow", sub_agents=[first, second, third]))
    failed = await desk.run()
    assert failed.status is RunStatus.FAILED
    done = await desk.retry(failed)
    assert done.status is RunStatus.SUCCEEDED
    assert [len(requests_of(agent)) for agent in (first, second, third)] == [1, 2, 1]


async def test_parallel_branches_that_are_done_are_not_repeated() -> None:
    tools = Tools()
    good = agent_of(call("pay"), "one", "one", tools=tools, name="good")
    bad = agent_of(call("send"), "two", tools=tools, on_interrupt="retry", name="bad")
    desk = await desk_of(ParallelAgent(name="flow", sub_agents=[good, bad]))
    failed = await desk.run()
    assert failed.status is RunStatus.FAILED
    done = await desk.retry(failed)
    assert done.status is RunStatus.SUCCEEDED
    assert tools.calls.count("send") == 2
    assert tools.calls.count("pay") == 1


async def test_client_metadata_begins_no_retry() -> None:
    desk = await desk_of(agent_of(ValueError("no")))
    request = asking("go")
    request.custom_metadata = {"greenroom:retry": {"number": 1, "takenBack": []}, "mine": 1}
    run, _ = await desk.engine.start(request, attach=False)
    assert (await desk.end_of(run.id)).status is RunStatus.FAILED
    assert not any(event.is_retry() for event in await desk.log())


async def test_usage_counts_every_attempt() -> None:
    usage = GenerateContentResponseUsageMetadata(prompt_token_count=1, candidates_token_count=2, total_token_count=3)
    refused = LlmResponse(error_code="SAFETY", error_message="no", usage_metadata=usage)
    said = LlmResponse(content=Content(role="model", parts=[Part(text="Fine.")]), usage_metadata=usage)
    desk = await desk_of(agent_of(refused, said))
    failed = await desk.run()
    assert failed.status is RunStatus.FAILED
    done = await desk.retry(failed)
    assert done.usage is not None
    assert done.usage.total_token_count == 6


async def test_graph_begins_the_failed_node_again() -> None:
    made: list[str] = []

    def check(node_input: str) -> str:
        made.append("check")
        return node_input

    def book(node_input: str) -> str:
        made.append("book")
        if len(made) == 2:
            raise ValueError("no")
        return node_input

    desk = await desk_of(Workflow(name="flow", edges=[(START, check, book)]))
    failed = await desk.run()
    assert failed.status is RunStatus.FAILED
    done = await desk.retry(failed)
    assert done.status is RunStatus.SUCCEEDED
    assert made == ["check", "book", "book"]


async def test_changed_code_that_replays_the_run_continues_it() -> None:
    tools = Tools()
    script = [[call("pay"), call("send")], "Done."]
    desk = await desk_of(agent_of(*script, tools=tools, on_interrupt="retry"))
    desk.app.version = "1"
    failed = await desk.run()
    desk.app.version = "2"
    desk.app.on_version_change = "refuse"
    done = await desk.retry(failed)
    assert (done.status, done.error, done.app_version) == (RunStatus.SUCCEEDED, None, "2")
    assert tools.calls.count("pay") == 1


@pytest.mark.parametrize("fork", [False, True])
async def test_request_of_a_cancelled_run_is_open_again(fork: bool) -> None:
    paid: list[int] = []

    def pay(amount: int) -> str:
        """Pays."""
        paid.append(amount)
        return "paid"

    calling = FunctionCall(id="c-pay", name="pay", args={"amount": 5})
    agent = LlmAgent(
        name="desk",
        model=ScriptedModel([calling, "Paid."]),
        tools=[FunctionTool(pay, require_confirmation=True)],
    )
    desk = await desk_of(agent)
    run = await desk.run()
    [first] = (await desk.engine.list_requests(RequestFilter(), limit=10)).requests
    await desk.engine.cancel(run.id, reason="a test")
    assert not (await desk.engine.list_requests(RequestFilter(), limit=10)).requests

    again = await desk.retry(run, fork=fork)
    assert again.status is RunStatus.WAITING
    [request] = (await desk.engine.list_requests(RequestFilter(), limit=10)).requests
    assert (request.run_id, request.call_id) == (again.id, first.call_id)
    answer = RequestAnswer(confirmed=True)
    await desk.engine.answer_request(request.id, answer, answerer=Answerer(user_id="ada"))
    assert (await desk.end_of(again.id)).status is RunStatus.SUCCEEDED
    assert paid == [5]


async def test_changed_code_continues_a_waiting_run_that_was_retried() -> None:
    def export() -> None:
        """Answers later."""

    tools = Tools()
    agent = LlmAgent(
        name="desk",
        model=ScriptedModel([[call("send"), call("pay")], call("export"), "Done."]),
        tools=[
            FunctionTool(tools.pay),
            FunctionTool(tools.send, on_interrupt="retry"),
            LongRunningFunctionTool(export),
        ],
    )
    desk = await desk_of(agent)
    desk.app.version = "1"
    run = await desk.retry(await desk.run())
    assert run.status is RunStatus.WAITING

    desk.app.version = "2"
    desk.app.on_version_change = "refuse"
    response = Part(function_response=FunctionResponse(id="c-export", name="export", response={"pages": 1}))
    answer = AgentRunRequest(**KEY._asdict(), new_message=Content(role="user", parts=[response]))
    answered, _ = await desk.engine.start(answer, attach=False)
    assert (await desk.end_of(answered.id)).status is RunStatus.SUCCEEDED
