"""Requests of a server during a call: a model's reply, a person's answer; and its progress and media."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from mcp import types

from greenroom.agents.llm_agent import LlmAgent
from greenroom.errors import LlmCallsLimitExceeded
from greenroom.records.content import Content
from greenroom.records.event import Event
from greenroom.records.run import RunConfig
from greenroom.testing.scripted_model import ScriptedModel
from tests.agents.human_input.approvals import decide, request_ids, requests, together
from tests.agents.talk import STREAMED, Talk, call
from tests.tools.mcp.conftest import Log, MakeToolset, each_transport
from tests.tools.mcp.test_mcp_toolset import asking, result_of, text_of

pytestmark = pytest.mark.slow


def response_of(events: list[Event]) -> Any:
    return next(one.response for event in events for one in event.get_function_responses())


async def asked(make: MakeToolset, **options: Any) -> tuple[Talk, list[Event], Any]:
    """A conversation in which the server has asked a question."""
    toolset = make(**options)
    await toolset.get_tools()
    talk = Talk(asking(toolset, call("reserve", "c1", title="Emma")))
    return talk, await talk.say("go"), toolset


def answered(events: list[Event], **answer: Any) -> Content:
    return decide(*request_ids(events), **answer)


@each_transport
async def test_a_person_is_asked_what_the_server_asks_and_the_call_ends_with_the_answer(
    make: MakeToolset, log: Log
) -> None:
    talk, events, _ = await asked(make)
    (request,) = requests(events)
    confirmation = (request.args or {})["toolConfirmation"]
    assert confirmation["hint"] == "Who reserves Emma?"
    assert list(confirmation["payload"]["requestedSchema"]["properties"]) == ["name", "copies"]
    events = await talk.say(answered(events, payload={"name": "Ada", "copies": 2, "made up": 1}))
    assert text_of(response_of(events)) == "Emma for Ada, 2 copies"
    assert log.lines().count("reserve Emma") == 1


@pytest.mark.parametrize("transport", ["sse", "http"])  # over stdio the process ends, and with it the key of the state
async def test_the_question_outlives_the_connection(make: MakeToolset, log: Log) -> None:
    talk, events, toolset = await asked(make)
    await toolset.close()
    events = await talk.say(answered(events, payload={"name": "Ada"}))
    assert text_of(response_of(events)) == "Emma for Ada, 1 copies"  # by the schema's default
    assert log.lines().count("reserve Emma") == 1


@pytest.mark.parametrize("transport", ["stdio"])  # over HTTP the server runs on
async def test_a_server_that_a_restart_made_forget_the_question_fails_the_call_clearly(
    make: MakeToolset, log: Log
) -> None:
    talk, events, toolset = await asked(make)
    await toolset.close()
    events = await talk.say(answered(events, payload={"name": "Ada"}))
    assert "MCP tool execution failed" in response_of(events)["error"]
    assert "reserve Emma" not in log.lines()


async def test_a_declined_question_is_reported_to_the_server(make: MakeToolset, log: Log) -> None:
    talk, events, _ = await asked(make)
    result = response_of(await talk.say(answered(events, confirmed=False)))
    assert result["isError"] is True
    assert "decline" in text_of(result)
    assert "reserve Emma" not in log.lines()


async def test_a_call_is_first_approved_and_then_asks(make: MakeToolset, log: Log) -> None:
    talk, events, _ = await asked(make, require_confirmation=True)
    assert log.lines().count("ask who reserves Emma") == 0
    events = await talk.say(answered(events))
    assert requests(events)[0].args["toolConfirmation"]["hint"] == "Who reserves Emma?"  # type: ignore[index]
    events = await talk.say(answered(events, payload={"name": "Ada"}))
    assert text_of(response_of(events)) == "Emma for Ada, 1 copies"


async def test_two_calls_wait_for_their_own_answers(make: MakeToolset) -> None:
    toolset = make()
    await toolset.get_tools()
    talk = Talk(asking(toolset, [call("reserve", "c1", title="Emma"), call("reserve", "c2", title="Ulysses")]))
    emma, ulysses = request_ids(await talk.say("go"))
    answers = together(decide(ulysses, payload={"name": "Bob"}), decide(emma, payload={"name": "Ada"}))
    given = {one.id: text_of(one.response) for one in (await talk.say(answers))[0].get_function_responses()}
    assert given == {"c1": "Emma for Ada, 1 copies", "c2": "Ulysses for Bob, 1 copies"}


@each_transport
async def test_the_runs_model_answers_a_sampling_request(make: MakeToolset) -> None:
    toolset = make()
    await toolset.get_tools()
    agent = asking(toolset, call("summarize", "c1", title="Emma"), "A match-maker.")
    events = await Talk(agent).say("go")
    assert text_of(response_of(events)) == "scripted: A match-maker."
    request = agent.model.requests[1]  # type: ignore[union-attr]
    assert request.config.system_text() == "Be brief."
    assert request.config.max_output_tokens == 20
    assert [part.text for part in request.contents[0].parts] == ["What is Emma about?"]


async def test_sampling_counts_as_a_model_call(make: MakeToolset) -> None:
    toolset = make()
    await toolset.get_tools()
    agent = asking(toolset, call("summarize", "c1", title="Emma"), "never said")
    with pytest.raises(LlmCallsLimitExceeded):
        await Talk(agent).say("go", run_config=RunConfig(max_llm_calls=1))
    assert len(agent.model.requests) == 1  # type: ignore[union-attr]


async def test_a_callback_of_the_apps_own_answers_instead(make: MakeToolset) -> None:
    async def elicit(context: Any, params: Any) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"name": "Bot"})

    result = await result_of(make(elicitation_callback=elicit), "reserve", title="Emma")
    assert text_of(result) == "Emma for Bot, 1 copies"


async def test_progress_comes_as_partial_events_of_a_run_that_streams(make: MakeToolset) -> None:
    toolset = make()
    await toolset.get_tools()
    talk = Talk(asking(toolset, call("read_aloud", "c1", pages=2)))
    progress = [event.custom_metadata for event in await talk.say("go", run_config=STREAMED) if event.content is None]
    first = {"functionCallId": "c1", "name": "read_aloud", "progress": 1.0, "total": 2.0, "message": "page 1"}
    assert progress[0] == {"mcpProgress": first}
    session = await talk.runner.session_service.get_session(app_name="app", user_id="ada", session_id="s-1")
    assert session is not None
    assert all(event.custom_metadata is None for event in session.events)


async def test_images_sounds_and_files_become_parts_of_the_response(make: MakeToolset) -> None:
    toolset = make()
    await toolset.get_tools()
    events = await Talk(asking(toolset, call("cover", "c1"))).say("go")
    (response,) = events[1].get_function_responses()
    blobs = [part.inline_data for part in response.parts or ()]
    assert [(blob.mime_type, blob.data) for blob in blobs if blob] == [("image/png", b"hi"), ("audio/wav", b"hi")]
    assert [block["type"] for block in response.response["content"]][:3] == ["text", "image", "audio"]  # type: ignore[index]


@each_transport
async def test_a_cancelled_run_takes_a_pending_sampling_request_with_it(make: MakeToolset) -> None:
    started, ended = asyncio.Event(), asyncio.Event()

    async def think(_: Any) -> str:
        if not started.is_set():
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()
        return ""

    toolset = make()
    await toolset.get_tools()
    agent = LlmAgent(name="a", model=ScriptedModel([call("summarize", "c1", title="Emma"), think]), tools=[toolset])
    running = asyncio.create_task(Talk(agent).say("go"))
    await asyncio.wait_for(started.wait(), 20)
    running.cancel()
    await asyncio.wait_for(ended.wait(), 20)
    await asyncio.wait([running])
