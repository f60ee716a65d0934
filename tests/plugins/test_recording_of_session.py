"""A past run, taken from its log, can be replayed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from greenroom.agents.agent import BaseAgent
from greenroom.agents.llm_agent import LlmAgent
from greenroom.agents.workflows import SequentialAgent
from greenroom.plugins.recording import recording_of
from greenroom.plugins.recordings_file import dump_recordings
from greenroom.plugins.replay import comparable_events
from greenroom.records.event import Event
from greenroom.records.model_exchange import LlmResponse
from greenroom.records.recording import Recordings
from greenroom.records.session import Session
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.tools.functions.function_tool import LongRunningFunctionTool
from tests.agents.talk import Talk, answer, call, lines_of
from tests.plugins.recorded import outline, replay, silent


def add(a: int, b: int) -> int:
    return a + b


def start() -> None:
    """Starts."""


async def talked(agent: BaseAgent, *messages: Any) -> tuple[Session, list[list[Event]]]:
    talk = Talk(agent)
    turns = [await talk.say(message) for message in messages]
    session = await talk._session()
    assert session is not None
    return session, turns


def write(recordings: Recordings, folder: Path) -> None:
    (folder / "generated-recordings.yaml").write_text(dump_recordings(recordings))


async def replays_the_same(agent: BaseAgent, messages: Sequence[Any], turns: list[list[Event]], folder: Path) -> None:
    again = await replay(agent, folder, *messages)
    assert [comparable_events(turn) for turn in again] == [comparable_events(turn) for turn in turns]


async def test_a_session_with_tools_is_replayed(tmp_path: Path) -> None:
    def agent(model: ScriptedModel) -> LlmAgent:
        return LlmAgent(name="a", model=model, tools=[add])

    both = [call("add", a=1, b=1), call("add", a=2, b=2)]
    messages = ["1+1, 2+2?", "bye"]
    session, turns = await talked(agent(ScriptedModel([both, "2 and 4", "bye"])), *messages)
    recordings = recording_of(session)
    assert outline(recordings.recordings) == [
        "0 a: model x1",
        "0 a: add",
        "0 a: add",
        "0 a: model x1",
        "1 a: model x1",
    ]
    write(recordings, tmp_path)
    await replays_the_same(agent(silent()), messages, turns, tmp_path)


async def test_one_run_keeps_its_place_among_the_turns() -> None:
    agent = LlmAgent(name="a", model=ScriptedModel(["one", "two", "three"]))
    session, turns = await talked(agent, "1", "2", "3")
    recordings = recording_of(session, turns[1][0].invocation_id).recordings
    assert outline(recordings) == ["1 a: model x1"]
    assert recordings[0].llm_recording is not None
    assert recordings[0].llm_recording.llm_request is None
    content = recordings[0].llm_recording.llm_responses[0].content
    assert content is not None
    assert content.text() == "two"


async def test_agents_that_hand_over_and_structured_answers_are_replayed(tmp_path: Path) -> None:
    def staff(model: ScriptedModel) -> LlmAgent:
        clerk = LlmAgent(name="clerk", model=model, tools=[add], output_schema=list[int], output_key="sums")
        return LlmAgent(name="boss", model=model, sub_agents=[clerk])

    script: dict[str, list[Any]] = {
        "boss": [call("transfer_to_agent", agent_name="clerk")],
        "clerk": [call("add", a=1, b=1), call("set_model_response", value=[2])],
    }
    session, turns = await talked(staff(ScriptedModel(script)), "go")
    recordings = recording_of(session)
    assert outline(recordings.recordings) == [
        "0 boss: model x1",
        "0 boss: transfer_to_agent",
        "0 clerk: model x1",
        "0 clerk: add",
        "0 clerk: model x1",
        "0 clerk: set_model_response",
    ]
    write(recordings, tmp_path)
    await replays_the_same(staff(silent()), ["go"], turns, tmp_path)


async def test_a_run_that_waited_for_an_answer_is_replayed(tmp_path: Path) -> None:
    def agent(model: ScriptedModel) -> LlmAgent:
        return LlmAgent(name="a", model=model, tools=[LongRunningFunctionTool(start)])

    messages = ["go", answer("start", "c-1", {"status": "done"})]
    session, turns = await talked(agent(ScriptedModel([call("start", "c-1"), "done"])), *messages)
    assert turns[0][0].invocation_id == turns[1][0].invocation_id
    recordings = recording_of(session, turns[0][0].invocation_id)
    assert outline(recordings.recordings) == ["0 a: model x1", "0 a: start", "1 a: model x1"]
    write(recordings, tmp_path)
    await replays_the_same(agent(silent()), messages, turns, tmp_path)


async def test_agents_in_a_row_are_replayed_and_their_checkpoints_are_no_replies(tmp_path: Path) -> None:
    def row(model: ScriptedModel) -> SequentialAgent:
        return SequentialAgent(name="row", sub_agents=[LlmAgent(name=name, model=model) for name in ("one", "two")])

    session, turns = await talked(row(ScriptedModel({"one": ["1"], "two": ["2"]})), "go")
    recordings = recording_of(session)
    assert outline(recordings.recordings) == ["0 one: model x1", "0 two: model x1"]
    write(recordings, tmp_path)
    await replays_the_same(row(silent()), ["go"], turns, tmp_path)


async def test_a_reply_that_reports_an_error_is_replayed(tmp_path: Path) -> None:
    refused = LlmResponse(error_code="SAFETY", error_message="no")
    session, turns = await talked(LlmAgent(name="a", model=ScriptedModel([refused])), "go")
    write(recording_of(session), tmp_path)
    await replays_the_same(LlmAgent(name="a", model=silent()), ["go"], turns, tmp_path)


async def test_what_closes_a_run_that_was_cut_off_is_no_reply() -> None:
    talk = Talk(LlmAgent(name="a", model=ScriptedModel([[call("add", a=1, b=1)], "never"]), tools=[add]))
    async with aclosing(talk.events("go")) as events:
        async for _ in events:
            break
    assert lines_of(await talk.log())[-1] == "a ! INVOCATION_ABORTED"
    session = await talk._session()
    assert session is not None
    assert outline(recording_of(session).recordings) == ["0 a: model x1", "0 a: cancelled"]


@pytest.mark.parametrize("invocation_id", ["e-none", None])
def test_of_nothing_there_is_no_recording(invocation_id: str | None) -> None:
    assert recording_of(Session(id="s", app_name="app", user_id="ada"), invocation_id) == Recordings()
