"""The run config that a run gets beside its message."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from typing import Any

import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.agents.workflows import SequentialAgent
from greenroom.apps.app import App
from greenroom.apps.loader import StaticAppLoader
from greenroom.errors import ConfigurationError, LlmCallsLimitExceeded, RunFailed
from greenroom.invocation.user_context import ReadonlyContext, ToolContext
from greenroom.plugins.plugin import BasePlugin
from greenroom.records.content import QUOTED_IS_DATA, Content, Part, UserContent
from greenroom.records.generation import GenerateContentConfig
from greenroom.records.model_exchange import LlmResponse
from greenroom.records.run import AgentRunRequest, RunConfig, StreamingMode, ToolThreadPoolConfig
from greenroom.records.session import GetSessionConfig
from greenroom.records.state import REMOVED
from greenroom.runner.in_memory import InMemoryRunner
from greenroom.runner.runner import Runner
from greenroom.runs.in_process import InProcessRunEngine
from greenroom.runs.memory_store import InMemoryRunStore
from greenroom.sessions.in_memory import InMemorySessionService
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.tools.functions.function_tool import FunctionTool
from greenroom.tools.tool import BaseTool
from greenroom.tools.toolset import BaseToolset
from tests.agents.human_input.approvals import decide, request_ids
from tests.agents.talk import Talk, call, lines_of, shown
from tests.durability.engines import finish

PNG = Part.from_bytes(data=b"\x89PNG", mime_type="image/png")


async def test_only_a_live_run_is_bidirectional() -> None:
    talk = Talk(LlmAgent(name="poet", model=ScriptedModel(["roses are red"])))
    assert lines_of(await talk.say("a poem", run_config=RunConfig(streaming_mode=StreamingMode.BIDI))) == [
        "poet: roses are red"
    ]


@pytest.mark.parametrize("spelled", ["sse", "SSE", StreamingMode.SSE])
async def test_a_streaming_mode_may_be_spelled_as_text(spelled: Any) -> None:
    talk = Talk(LlmAgent(name="poet", model=ScriptedModel(["roses are red"])))
    events = await talk.say("a poem", run_config=RunConfig(streaming_mode=spelled))
    assert [event.partial or False for event in events] == [True, True, True, False]


def test_no_streaming_mode_means_none_and_an_unknown_one_is_refused() -> None:
    none: Any = None
    unknown: Any = "sometimes"
    assert RunConfig(streaming_mode=none).streaming_mode is StreamingMode.NONE
    with pytest.raises(ValueError, match="streaming_mode is one of NONE, SSE, BIDI, not 'sometimes'"):
        RunConfig(streaming_mode=unknown)


async def test_a_runs_own_context_comes_before_its_message_and_is_not_stored() -> None:
    model = ScriptedModel(["hi", call("add", "c-1", a=1, b=1), "2"])
    talk = Talk(LlmAgent(name="adder", model=model, tools=[FunctionTool(add, require_confirmation=True)]))
    config = RunConfig(model_input_context=[UserContent("It is Monday.")])
    await talk.say("hello", run_config=config)
    events = await talk.say("1 + 1", run_config=config)
    await talk.say(decide(*request_ids(events)), run_config=config)
    begin = ["hello", "hi", "It is Monday.", "1 + 1"]
    prompts = [[content.text() for content in request.contents] for request in model.requests]
    assert prompts == [["It is Monday.", "hello"], begin, [*begin, "", ""]]
    assert all(event.content is None or event.content.text() != "It is Monday." for event in await talk.log())


def add(a: int, b: int) -> int:
    return a + b


async def test_an_answer_finds_its_call_outside_of_the_events_that_the_run_loads() -> None:
    model = ScriptedModel([call("add", "c-1", a=1, b=1), "hi", "2"])
    talk = Talk(LlmAgent(name="adder", model=model, tools=[FunctionTool(add, require_confirmation=True)]))
    config = RunConfig(get_session_config=GetSessionConfig(num_recent_events=1))
    events = await talk.say("1 + 1", run_config=config)
    await talk.say("hello", run_config=config)
    answered = await talk.say(decide(*request_ids(events)), run_config=config)
    assert [r.response for event in answered for r in event.get_function_responses()] == [{"result": 2}]


class Leaving(BaseToolset):
    async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> list[BaseTool]:
        raise SystemExit("leave")


def leave(_: ReadonlyContext) -> str:
    raise SystemExit("leave")


@pytest.mark.parametrize("options", [{"instruction": leave}, {"tools": [Leaving()]}])
async def test_a_base_exception_in_the_making_of_a_prompt_fails_the_run(options: dict[str, Any]) -> None:
    talk = Talk(LlmAgent(name="poet", model=ScriptedModel(["roses are red"]), **options))
    with pytest.raises(RunFailed, match="SystemExit: leave"):
        await talk.say("a poem")
    assert (await talk.log())[-1].error_code == "RunFailed"


@pytest.mark.parametrize("makes_config", [True, False])
async def test_a_variable_limits_the_model_calls_of_a_program(
    monkeypatch: pytest.MonkeyPatch, makes_config: bool
) -> None:
    monkeypatch.setenv("ADK_MAX_LLM_CALLS", "2")
    talk = Talk(LlmAgent(name="adder", model=ScriptedModel([*[call("add", a=1, b=1)] * 3, "done"]), tools=[add]))
    with pytest.raises(LlmCallsLimitExceeded):
        await talk.say("go on", run_config=RunConfig() if makes_config else None)


def test_a_config_has_the_limit_of_the_variable_where_it_sets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for text, limit in (("7", 7), ("0", 0), ("-3", 0), ("", 500)):
        monkeypatch.setenv("ADK_MAX_LLM_CALLS", text)
        assert RunConfig().max_llm_calls == limit
        assert RunConfig(max_llm_calls=3).max_llm_calls == 3
    monkeypatch.setenv("ADK_MAX_LLM_CALLS", "many")
    with pytest.raises(ConfigurationError, match="ADK_MAX_LLM_CALLS must be a whole number, not 'many'"):
        RunConfig()


async def test_less_than_zero_means_no_limit_of_model_calls() -> None:
    talk = Talk(LlmAgent(name="adder", model=ScriptedModel([*[call("add", a=1, b=1)] * 3, "done"]), tools=[add]))
    assert lines_of(await talk.say("go on", run_config=RunConfig(max_llm_calls=-1)))[-1] == "adder: done"


@pytest.mark.parametrize(
    "make", [lambda: RunConfig(max_llm_calls=sys.maxsize), lambda: ToolThreadPoolConfig(max_workers=0)]
)
def test_numbers_that_make_no_sense_are_refused(make: Any) -> None:
    with pytest.raises(ValueError, match="max_"):
        make()


@pytest.mark.parametrize(("limit", "end"), [(2, "shop ! LlmCallsLimitExceeded"), (3, "till: paid")])
async def test_the_limit_of_model_calls_holds_over_a_run_that_waited(limit: int, end: str) -> None:
    """Two calls before the answer and one behind it: neither the answer through a tool, which is said once more as
    text, nor the question to a person is a call of a model."""
    counter = LlmAgent(
        name="counter",
        model=ScriptedModel([call("set_model_response", value=7)]),
        tools=[add],
        output_schema=int,
    )
    till = LlmAgent(
        name="till",
        model=ScriptedModel([call("add", a=3, b=4), "paid"]),
        tools=[FunctionTool(add, require_confirmation=True)],
    )
    talk = Talk(SequentialAgent(name="shop", sub_agents=[counter, till]))
    config = RunConfig(max_llm_calls=limit)
    asked = await talk.say("pay seven", run_config=config)
    with contextlib.suppress(LlmCallsLimitExceeded):
        await talk.say(decide(*request_ids(asked)), run_config=config)
    assert end in lines_of(await talk.log())[-2:]


async def test_what_a_run_asks_of_requests_counts_before_what_the_agent_does() -> None:
    model = ScriptedModel(["a", "b"])
    of_agent = GenerateContentConfig(service_tier="flex", http_options={"timeout": 1, "headers": {"x": "1"}})
    talk = Talk(LlmAgent(name="a", model=model, generate_content_config=of_agent))
    await talk.say("1", run_config=RunConfig(service_tier="priority", http_options={"timeout": 2}))
    await talk.say("2")
    assert [(request.config.service_tier, request.config.http_options) for request in model.requests] == [
        ("priority", {"timeout": 2, "headers": {"x": "1"}}),
        ("flex", {"timeout": 1, "headers": {"x": "1"}}),
    ]


@pytest.mark.parametrize(
    ("config", "is_on"), [(RunConfig(include_thoughts_from_other_agents=True), True), (RunConfig(), False)]
)
async def test_thoughts_of_other_agents_are_in_the_prompt_if_the_run_says_so(config: RunConfig, is_on: bool) -> None:
    parts = [Part(text="a trap?", thought=True), Part(text="go left")]
    scout = LlmResponse(content=Content(role="model", parts=parts))
    model = ScriptedModel({"scout": [scout], "guide": ["left it is"]})
    team = [LlmAgent(name="scout", model=model), LlmAgent(name="guide", model=model)]
    talk = Talk(SequentialAgent(name="team", sub_agents=team))
    await talk.say("where to?", run_config=config)
    assert shown(model.requests[-1]) == [
        "user: where to?",
        f"user: {QUOTED_IS_DATA}",
        *(["user: [scout] thought: <quoted>a trap?</quoted>"] if is_on else []),
        "user: [scout] said: <quoted>go left</quoted>",
    ]


async def test_files_of_a_message_become_artifacts_if_the_run_says_so() -> None:
    model = ScriptedModel(["a cat", "and a dog"])
    talk = Talk(LlmAgent(name="seer", model=model))
    message = Content(role="user", parts=[Part(text="what is this?"), PNG])
    (event,) = await talk.say(message, run_config=RunConfig(save_input_blobs_as_artifacts=True))
    name = f"artifact_{event.invocation_id}_1"
    assert shown(model.requests[-1]) == [
        "user: what is this?",
        f"user: Uploaded file: {name}. It was saved as an artifact.",
    ]
    stored = (await talk.log())[0]
    assert (stored.actions.artifact_delta, len(stored.content.parts or ()) if stored.content else 0) == ({name: 0}, 2)
    artifacts = talk.runner.artifact_service
    assert artifacts is not None
    where: dict[str, Any] = {"app_name": "app", "user_id": "ada", "session_id": "s-1"}
    assert await artifacts.load_artifact(**where, filename=name) == PNG
    await talk.say(Content(role="user", parts=[PNG]))
    assert model.requests[-1].contents[-1].parts == [PNG]


async def test_without_a_store_for_artifacts_files_stay_in_the_message() -> None:
    model = ScriptedModel(["a cat"])
    sessions = InMemorySessionService()
    runner = Runner(agent=LlmAgent(name="seer", model=model), app_name="app", session_service=sessions)
    config = RunConfig(save_input_blobs_as_artifacts=True, auto_create_session=True)
    message = Content(role="user", parts=[PNG])
    async for _ in runner.run_async(user_id="ada", session_id="s-1", new_message=message, run_config=config):
        pass
    assert model.requests[-1].contents[-1].parts == [PNG]


@pytest.mark.parametrize(("config", "at_a_time"), [(ToolThreadPoolConfig(max_workers=2), 2), (None, 4)])
async def test_synchronous_tools_run_on_so_many_threads(config: ToolThreadPoolConfig | None, at_a_time: int) -> None:
    """Four calls; those that got a thread are held until as many as may be are there, and others had the time to."""
    lock, inside, most = threading.Lock(), 0, 0
    let_go = threading.Event()

    def dig(number: int) -> int:
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
        assert let_go.wait(5)
        with lock:
            inside -= 1
        return number

    async def watch() -> None:
        while inside < at_a_time:
            await asyncio.sleep(0)
        for _ in range(200):
            await asyncio.sleep(0)
        let_go.set()

    calls = [call("dig", number=number) for number in range(4)]
    talk = Talk(LlmAgent(name="digger", model=ScriptedModel([calls, "dug"]), tools=[dig]))
    run_config = RunConfig(tool_thread_pool_config=config, tool_execution_mode="PARALLEL_SUBSCRIBE")
    watching = asyncio.create_task(watch())
    assert lines_of(await talk.say("dig", run_config=run_config))[-1] == "digger: dug"
    await watching
    assert most == at_a_time


async def test_tools_of_a_sequential_run_wait_for_each_other() -> None:
    order: list[str] = []

    async def step(name: str, tool_context: ToolContext) -> None:
        order.append(f"{name} begins")
        await asyncio.sleep(0)
        order.append(f"{name} ends")

    calls = [call("step", name="one"), call("step", name="two")]
    talk = Talk(LlmAgent(name="walker", model=ScriptedModel([calls, "there"]), tools=[step]))
    await talk.say("go", run_config=RunConfig(tool_execution_mode="SEQUENTIAL"))
    assert order == ["one begins", "one ends", "two begins", "two ends"]


class Peeking(BasePlugin):
    def __init__(self) -> None:
        super().__init__("peeking")
        self.seen: list[Any] = []

    async def on_user_message_callback(self, *, invocation_context: Any, user_message: Content) -> Content:
        self.seen.append(dict(invocation_context.session.state))
        return Content(role="user", parts=[Part(text="something else")])

    async def before_run_callback(self, *, invocation_context: Any) -> None:
        self.seen.append(invocation_context.user_content.text())


async def test_plugins_see_the_state_that_comes_with_a_message_and_everybody_the_message_they_made_of_it() -> None:
    from tests.plugins.watched import WatchedTalk

    model, plugin = ScriptedModel(["hello"]), Peeking()
    heard: list[str] = []

    def instruct(context: Any) -> str:
        heard.append(context.user_content.text())
        return ""

    talk = WatchedTalk(LlmAgent(name="a", model=model, instruction=instruct), plugin, state={"mood": "bad", "old": 1})
    await talk.say("hi", state_delta={"mood": "good", "old": REMOVED})
    assert plugin.seen == [{"mood": "good"}, "something else"]
    assert heard == ["something else"]
    assert await talk.state() == {"mood": "good"}


def test_the_run_config_of_an_app_is_the_base_of_a_runs_own() -> None:
    base = RunConfig(max_llm_calls=3, custom_metadata={"team": "a"}, save_live_blob=True)
    config = RunConfig(custom_metadata={"team": "b"}, response_modalities=["TEXT"]).over(base)
    assert config == RunConfig(
        max_llm_calls=3, custom_metadata={"team": "b"}, save_live_blob=True, response_modalities=["TEXT"]
    )
    assert base.custom_metadata == {"team": "a"}


def _endless_app(name: str) -> App:
    agent = LlmAgent(name="walker", model=ScriptedModel([call("step")], loop=True), tools=[FunctionTool(step)])
    return App(name=name, root_agent=agent, run_config=RunConfig(max_llm_calls=2, custom_metadata={"team": "a"}))


async def step() -> str:
    return "on"


async def test_the_run_config_of_an_app_holds_for_its_runs() -> None:
    runner = InMemoryRunner(app=_endless_app("app"))
    session = await runner.session_service.create_session(app_name="app", user_id="ada")
    events = runner.run_async(user_id="ada", session_id=session.id, new_message=UserContent("go"))
    with pytest.raises(LlmCallsLimitExceeded, match="2"):
        async for event in events:
            assert event.custom_metadata == {"team": "a"}


@pytest.mark.parametrize("streaming", [False, True])
async def test_a_server_runs_with_the_run_config_of_the_app(streaming: bool) -> None:
    sessions = InMemorySessionService()
    session = await sessions.create_session(app_name="app", user_id="ada")
    engine = InProcessRunEngine(
        apps=StaticAppLoader([_endless_app("app")]), run_store=InMemoryRunStore(), session_service=sessions
    )
    request = AgentRunRequest(
        app_name="app", user_id="ada", session_id=session.id, new_message=UserContent("go"), streaming=streaming
    )
    try:
        run = await finish(engine, request)
    finally:
        await engine.close(grace_seconds=0)
    assert run.error is not None
    assert run.error.code == "LlmCallsLimitExceeded"
    assert (await sessions.list_events(**session.key._asdict())).events[1].custom_metadata == {"team": "a"}


@pytest.mark.parametrize(
    ("app_limit", "server_limit", "asked", "expected"),
    [(2, 7, None, 2), (None, 3, None, 3), (None, 3, 2, 2), (None, 3, 9, 3), (0, 3, 4, 4), (None, 0, 5, 5)],
)
async def test_a_request_lowers_the_limit_of_model_calls(
    app_limit: int | None, server_limit: int, asked: int | None, expected: int
) -> None:
    app = _endless_app("app")
    app.run_config = None if app_limit is None else RunConfig(max_llm_calls=app_limit)
    sessions = InMemorySessionService()
    session = await sessions.create_session(app_name="app", user_id="ada")
    engine = InProcessRunEngine(
        apps=StaticAppLoader([app]),
        run_store=InMemoryRunStore(),
        session_service=sessions,
        max_llm_calls=server_limit,
    )
    request = AgentRunRequest(
        app_name="app", user_id="ada", session_id=session.id, new_message=UserContent("go"), max_llm_calls=asked
    )
    try:
        run = await finish(engine, request)
    finally:
        await engine.close(grace_seconds=0)
    assert run.error is not None
    assert run.error.message == f"The run made more than {expected} model calls (RunConfig.max_llm_calls)"
