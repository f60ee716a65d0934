"""Sessions with runs that were stopped, refused or forked replay equal, and so do live messages with a state."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.agents.workflows import ParallelAgent
from greenroom.apps.app import App
from greenroom.apps.loader import StaticAppLoader
from greenroom.errors import ModelError
from greenroom.invocation.live_requests import LiveRequestQueue
from greenroom.records.base import JsonObject
from greenroom.records.content import UserContent
from greenroom.records.model_exchange import LiveRequest, LlmRequest, LlmResponse
from greenroom.records.run import RunConfig
from greenroom.records.session import SessionKey
from greenroom.runner.in_memory import InMemoryRunner
from greenroom.runs.in_process import InProcessRunEngine
from greenroom.testing import ScriptedLiveModel
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.tools.functions.function_tool import FunctionTool
from tests.agents.human_input.approvals import Till, decide, request_ids
from tests.agents.live.calls import calling
from tests.agents.talk import Talk, call
from tests.durability.engines import WHERE, asking, ended, engine_over, finish, stores_in
from tests.evaluation.test_replay import add, replays_equal, silent, stored


async def wait() -> None:
    """Waits for ever."""
    await asyncio.Event().wait()


class Holding(ScriptedModel):
    """Says nothing more after the first word of its second turn; nothing at all where it isn't streamed."""

    def __init__(self, turns: list[Any]) -> None:
        super().__init__(turns)

    async def generate_content_async(self, llm_request: LlmRequest, stream: bool = False) -> AsyncIterator[LlmResponse]:
        is_second = len(self.requests) == 1
        if is_second and not stream:
            await asyncio.Event().wait()
        async for response in super().generate_content_async(llm_request, stream):
            yield response
            if is_second:
                await asyncio.Event().wait()


@pytest.mark.parametrize("while_in", ["tool", "model", "speech"])
async def test_a_run_that_was_ended_by_its_deadline_replays_equal(tmp_path: Path, while_in: str) -> None:
    def agent(model: ScriptedModel) -> LlmAgent:
        return LlmAgent(name="desk", model=model, tools=[wait, add])

    turns: dict[str, list[Any]] = {
        "tool": [call("wait")],
        "model": [call("add", a=1), "never"],
        "speech": [call("add", a=1), "This is a long answer"],
    }
    model = ScriptedModel(turns["tool"]) if while_in == "tool" else Holding(turns[while_in])
    async with stores_in(None) as stores, engine_over(stores, agent(model)) as engine:
        await finish(engine, asking("go", streaming=while_in == "speech", deadline_seconds=1.0))
        session = await stores.session()
    assert session.events[-1].error_code == "DeadlineExceeded"
    session.app_name = "app"
    await replays_equal(agent(silent()), session, tmp_path)


async def test_a_state_that_came_with_a_live_message_is_replayed(tmp_path: Path) -> None:
    def agent(model: ScriptedModel) -> LlmAgent:
        return LlmAgent(name="desk", model=model)

    runner = InMemoryRunner(agent(ScriptedLiveModel(["One.", "Two."])), app_name="app")
    await runner.session_service.create_session(app_name="app", user_id="ada", session_id="s-1")
    async with calling(agent(silent()), runner=runner) as conversation:
        conversation.queue.send(LiveRequest(content=UserContent("Hello?"), state_delta={"mood": "good"}))
        await conversation.turns(1)
        conversation.queue.send(LiveRequest(state_delta={"user:name": "Ann"}))
        conversation.say("And?")
        await conversation.turns(2)
        await conversation.end()
    session = await runner.session_service.get_session(app_name="app", user_id="ada", session_id="s-1")
    assert session is not None
    assert session.state == {"mood": "good", "user:name": "Ann"}
    async with asyncio.timeout(20):
        await replays_equal(agent(ScriptedLiveModel([])), session, tmp_path)


@pytest.mark.parametrize("earlier", [False, True])
async def test_a_live_run_that_its_model_refused_replays_equal(tmp_path: Path, earlier: bool) -> None:
    class Refusing(ScriptedLiveModel):
        def __init__(self, *text_script: str) -> None:
            super().__init__([], text_script=text_script)

        def connect(self, llm_request: Any) -> Any:
            raise ModelError("not today", model="live")

    def agent(model: ScriptedModel) -> LlmAgent:
        return LlmAgent(name="desk", model=model)

    runner = InMemoryRunner(agent(Refusing("Hi.") if earlier else Refusing()), app_name="app")
    await runner.session_service.create_session(app_name="app", user_id="ada", session_id="s-1")
    if earlier:
        async for _ in runner.run_async(user_id="ada", session_id="s-1", new_message=UserContent("hello")):
            pass
    async with calling(agent(silent()), runner=runner) as conversation:
        with pytest.raises(ModelError):
            await conversation.ended()
    session = await runner.session_service.get_session(app_name="app", user_id="ada", session_id="s-1")
    assert session is not None
    assert session.events[-1].error_code == "ModelError"
    async with asyncio.timeout(20):
        await replays_equal(agent(ScriptedLiveModel([])), session, tmp_path)


@pytest.mark.parametrize("seq", [1, 2, 3])
async def test_a_fork_made_inside_a_run_replays_equal(tmp_path: Path, seq: int) -> None:
    def agent(model: ScriptedModel) -> LlmAgent:
        return LlmAgent(name="a", model=model, tools=[add])

    talk = Talk(agent(ScriptedModel([call("add", a=1), "One.", "Two.", "Three."])))
    await talk.say("add")
    sessions = talk.runner.session_service
    fork = await sessions.fork_session(**(await stored(talk)).key._asdict(), seq=seq, new_session_id="f-1")
    where = fork.key._asdict()
    at_once = await sessions.get_session(**where)
    assert at_once is not None
    await replays_equal(agent(silent()), at_once, tmp_path / "at once")
    for text in ("and then?", "bye"):
        run = talk.runner.run_async(user_id=fork.user_id, session_id="f-1", new_message=UserContent(text))
        async with aclosing(run) as events:
            async for _ in events:
                pass
    session = await sessions.get_session(**where)
    assert session is not None
    await replays_equal(agent(silent()), session, tmp_path / "later")


async def test_an_approval_that_was_answered_under_another_name_replays_equal(tmp_path: Path) -> None:
    till = Till()

    def agent(model: ScriptedModel) -> LlmAgent:
        return LlmAgent(name="a", model=model, tools=[FunctionTool(till.pay, require_confirmation=True)])

    talk = Talk(agent(ScriptedModel([call("pay", amount=5), "Paid."])))
    [request] = request_ids(await talk.say("pay 5"))
    answer = decide(request)
    for part in answer.parts or ():
        assert part.function_response is not None
        part.function_response.name = "pay"
    await talk.say(answer)
    assert till.paid == [5]
    await replays_equal(agent(silent()), await stored(talk), tmp_path)


async def test_a_fork_of_a_fork_made_inside_an_answered_run_replays_equal(tmp_path: Path) -> None:
    till = Till()

    def agent(model: ScriptedModel) -> LlmAgent:
        pay = FunctionTool(till.pay, require_confirmation=True)
        return LlmAgent(name="a", model=model, tools=[pay, add])

    turns = [call("pay", amount=5), call("add", a=1), "Paid.", "Later.", "Last."]
    talk = Talk(agent(ScriptedModel(turns)))
    [request] = request_ids(await talk.say("pay 5"))
    await talk.say(decide(request))
    whole = await stored(talk)
    seq = next(n for n, event in enumerate(whole.events, 1) if [c.name for c in event.get_function_calls()] == ["add"])

    sessions = talk.runner.session_service
    key: JsonObject = whole.key._asdict()
    text = "and now?"
    for name in ("f-1", "f-2"):
        await sessions.fork_session(**key, seq=seq, new_session_id=name)
        key["session_id"] = name
        seq += 1
        run = talk.runner.run_async(user_id=key["user_id"], session_id=name, new_message=UserContent(text))
        async with aclosing(run) as events:
            async for _ in events:
                pass
        session = await sessions.get_session(**key)
        assert session is not None
        await replays_equal(agent(silent()), session, tmp_path / name)


async def test_a_fork_made_among_parallel_agents_replays_equal(tmp_path: Path) -> None:
    def agents(*models: ScriptedModel) -> ParallelAgent:
        parts = [LlmAgent(name=f"part_{n}", model=model) for n, model in enumerate(models)]
        return ParallelAgent(name="both", sub_agents=parts)

    talk = Talk(agents(ScriptedModel(["one"]), ScriptedModel(["two"])))
    await talk.say("go")
    key: JsonObject = (await stored(talk)).key._asdict()
    await talk.runner.session_service.fork_session(**key, seq=2, new_session_id="f-1")
    key["session_id"] = "f-1"
    session = await talk.runner.session_service.get_session(**key)
    assert session is not None
    assert len(session.events) == 2
    await replays_equal(agents(silent(), silent()), session, tmp_path)


async def test_a_live_run_that_was_ended_by_its_deadline_replays_equal(tmp_path: Path) -> None:
    def agent(model: ScriptedModel) -> LlmAgent:
        return LlmAgent(name="desk", model=model)

    async with stores_in(None) as stores:
        root = agent(ScriptedLiveModel(["Hello there."]))
        apps = StaticAppLoader([App(name="desk", root_agent=root)])
        engine = InProcessRunEngine(
            apps=apps, run_store=stores.runs, session_service=stores.sessions, deadline_seconds=1.0
        )
        queue = LiveRequestQueue()
        queue.send_content(UserContent("Hello?"))
        _, attachment = await engine.start_live(SessionKey(**WHERE), queue, run_config=RunConfig())
        await ended(attachment)
        await engine.close(grace_seconds=1)
        session = await stores.session()
    assert session.events[-1].error_code == "DeadlineExceeded"
    session.app_name = "app"
    async with asyncio.timeout(20):
        await replays_equal(agent(ScriptedLiveModel([])), session, tmp_path)


async def test_a_run_without_a_message_replays_equal(tmp_path: Path) -> None:
    talk = Talk(LlmAgent(name="a", model=ScriptedModel(["one", "two", "three"])))
    await talk.say("1")
    await talk.say(None)
    await talk.say("3")
    await replays_equal(LlmAgent(name="a", model=silent()), await stored(talk), tmp_path)
