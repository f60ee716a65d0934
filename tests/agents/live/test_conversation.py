"""A live conversation: what goes to the model, what comes of it, what is stored."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.agents.workflows import LoopAgent, ParallelAgent
from greenroom.errors import AgentConfigError, LlmCallsLimitExceeded, ModelError
from greenroom.invocation.live_requests import LiveRequestQueue
from greenroom.records.content import (
    ActivityEnd,
    ActivityStart,
    Blob,
    Content,
    FunctionCall,
    FunctionResponse,
    Part,
    Transcription,
    UserContent,
)
from greenroom.records.model_exchange import AudioStreamEnd, LiveRequest, LlmResponse
from greenroom.records.run import RunConfig
from greenroom.testing import INTERRUPTED, Drops, HangsUp, Hears, Listens, Says, ScriptedLiveModel, ScriptedModel
from greenroom.testing.scripted_live_model import CHUNK, TURN_COMPLETE
from tests.agents.live.calls import calling, lines_of


def agent(*script: Any, tools: Any = (), **more: Any) -> tuple[LlmAgent, ScriptedLiveModel]:
    model = ScriptedLiveModel(script)
    return LlmAgent(name="desk", model=model, tools=tools, **more), model


async def test_text_goes_to_the_model_and_is_stored_with_its_answer() -> None:
    desk, model = agent("Hello there.", "Bye now.")
    async with calling(desk) as call:
        call.say("hi")
        await call.turns(1)
        call.say("bye")
        await call.turns(2)
        events = await call.end()
        log = await call.log()
    assert lines_of(events) == [
        "user: hi", "desk: Hello there.", "turn_complete", "user: bye", "desk: Bye now.", "turn_complete",
    ]  # fmt: skip
    assert [e.content.text() for e in events if e.partial and e.content] == ["Hello ", "there.", "Bye ", "now."]
    assert lines_of(log) == lines_of(events)
    assert len({event.invocation_id for event in log}) == 1
    pieces = [event.id for event in events if event.content is not None and event.author == "desk"]
    assert len(set(pieces)) == 2
    (connection,) = model.connections
    assert connection.history is None
    assert connection.is_closed


async def test_a_connection_gets_all_instructions_when_it_is_opened() -> None:
    desk, model = agent("Hello.", static_instruction="You are at the desk.", instruction="Be short.")
    async with calling(desk) as call:
        call.say("hi")
        await call.turns(1)
        await call.end()
    (connection,) = model.connections
    assert connection.request.config.system_text().split("\n\n")[:2] == ["You are at the desk.", "Be short."]
    assert connection.history is None


async def test_audio_is_heard_and_only_its_transcripts_are_stored() -> None:
    desk, model = agent([Hears("how are you"), Says("fine thanks")])
    async with calling(desk) as call:
        for number in range(3):
            call.speak(bytes([number, 0]) * 160)
        call.queue.send_audio_stream_end()
        await call.turns()
        events = await call.end()
        log = await call.log()
    assert model.connections[0].audio() == b"\x00\x00" * 160 + b"\x01\x00" * 160 + b"\x02\x00" * 160
    assert isinstance(model.connections[0].received[-1], AudioStreamEnd)
    heard = [p.inline_data for e in events for p in (e.content.parts if e.content else None) or () if p.inline_data]
    assert heard == [Blob(data=CHUNK, mime_type="audio/pcm;rate=24000")] * 2
    assert [e.input_transcription.text for e in events if e.input_transcription and e.partial] == [
        "how ",
        "are ",
        "you",
    ]
    assert lines_of(log) == ["user spoke: how are you", "desk spoke: fine thanks", "turn_complete"]
    assert all(event.input_transcription.finished for event in log if event.input_transcription)


async def test_what_was_spoken_is_part_of_the_next_prompt() -> None:
    model = ScriptedLiveModel([[Hears("book a room"), Says("which one")]], text_script=["Room 12."])
    desk = LlmAgent(name="desk", model=model)
    async with calling(desk) as call:
        call.speak()
        call.queue.send_activity_end()
        await call.turns()
        await call.end()
        run = call.runner.run_async(
            user_id="ada", session_id="s-1", new_message=Content(role="user", parts=[Part(text="the blue one")])
        )
        assert lines_of([event async for event in run]) == ["desk: Room 12."]
    (request,) = model.requests
    assert [(c.role, c.text()) for c in request.contents] == [
        ("user", "book a room"), ("model", "which one"), ("user", "the blue one"),
    ]  # fmt: skip


async def test_what_is_said_live_knows_the_history() -> None:
    model = ScriptedLiveModel([["You are Ann."]], text_script=["Hello Ann."])
    desk = LlmAgent(name="desk", model=model)
    async with calling(desk) as first:
        await first.end()
        message = Content(role="user", parts=[Part(text="I am Ann.")])
        run = first.runner.run_async(user_id="ada", session_id="s-1", new_message=message)
        assert lines_of([event async for event in run]) == ["desk: Hello Ann."]
        async with calling(desk, runner=first.runner) as second:
            second.say("Who am I?")
            await second.turns()
            await second.end()
    history = model.connections[-1].history
    assert [content.text() for content in history or ()] == ["I am Ann.", "Hello Ann."]


async def test_activity_marks_go_to_the_model_in_order() -> None:
    desk, model = agent([Hears("yes")])
    async with calling(desk) as call:
        call.queue.send_activity_start()
        call.speak()
        call.queue.send_activity_end()
        await call.turns()
        await call.end()
    assert [type(data) for data in model.connections[0].received] == [ActivityStart, Blob, ActivityEnd]


async def test_of_several_fields_the_first_counts_and_state_is_always_set() -> None:
    desk, model = agent("ok")
    async with calling(desk) as call:
        blob = Blob(data=b"x", mime_type="audio/pcm")
        call.queue.send(LiveRequest(activity_start=ActivityStart(), blob=blob, state_delta={"mood": "good"}))
        call.queue.send(LiveRequest(state_delta={"user:name": "Ann"}))
        call.queue.send(LiveRequest(content=Content(parts=[Part(text="hi")]), state_delta={"seen": 1}))
        await call.turns()
        await call.end()
        session = await call.runner.session_service.get_session(app_name="app", user_id="ada", session_id="s-1")
    assert session is not None
    assert session.state == {"mood": "good", "user:name": "Ann", "seen": 1}
    assert model.connections[0].received == [ActivityStart(), Content(parts=[Part(text="hi")])]


async def test_a_turn_in_pieces_is_stored_whole() -> None:
    desk, model = agent("done")
    async with calling(desk) as call:
        call.queue.send_content(Content(role="user", parts=[Part(text="one ")]), partial=True)
        call.queue.send_content(Content(role="user", parts=[Part(text="two")]))
        await call.turns()
        events = await call.end()
    first = events[0].content
    assert first is not None
    assert first.text() == "one two"
    assert [data.text() for data in model.connections[0].received if isinstance(data, Content)] == ["one ", "two"]


async def test_an_interruption_keeps_what_was_said_until_then() -> None:
    pieces = [
        LlmResponse(content=Content(role="model", parts=[Part(text=text)]), partial=True) for text in ("Well ", "I ")
    ]
    desk, _ = agent([*pieces, Listens(1), INTERRUPTED], "Sorry.")
    async with calling(desk) as call:
        call.say("talk")
        await call.until(lambda e: e.partial, times=2)
        call.queue.send_activity_start()
        await call.until(lambda e: e.interrupted and e.content is None)
        call.say("stop")
        await call.turns()
        await call.end()
        log = await call.log()
    assert lines_of(log) == [
        "user: talk", "desk: Well I ", "interrupted", "interrupted", "user: stop", "desk: Sorry.", "turn_complete",
    ]  # fmt: skip


async def test_a_transcript_that_is_cut_off_is_stored() -> None:
    piece = LlmResponse(output_transcription=Transcription(text="Once upon "), partial=True)
    desk, _ = agent([piece, INTERRUPTED])
    async with calling(desk) as call:
        call.say("a story")
        await call.until(lambda e: e.interrupted)
        await call.end()
        log = await call.log()
    assert lines_of(log)[:3] == ["user: a story", "desk spoke: Once upon ", "interrupted"]


async def test_tools_answer_into_the_conversation() -> None:
    async def weather(city: str) -> dict[str, str]:
        """The weather."""
        return {"sky": f"blue over {city}"}

    desk, model = agent(FunctionCall(name="weather", args={"city": "Oslo"}), Says("It is blue"), tools=[weather])
    async with calling(desk) as call:
        call.say("weather?")
        await call.turns()
        events = await call.end()
        log = await call.log()
    assert lines_of(log) == [
        "user: weather?", "desk calls weather", "desk got {'sky': 'blue over Oslo'}", "desk spoke: It is blue", "turn_complete",
    ]  # fmt: skip
    answer = model.connections[0].received[-1]
    assert isinstance(answer, Content)
    assert answer.parts is not None
    response = answer.parts[0].function_response
    assert response is not None
    call_id = next(c.id for e in events for c in e.get_function_calls())
    assert (response.id, response.response) == (call_id, {"sky": "blue over Oslo"})


async def test_the_conversation_continues_while_a_tool_is_at_work() -> None:
    gate = asyncio.Event()

    async def slow() -> str:
        """Takes its time."""
        await gate.wait()
        return "done"

    desk, _ = agent(FunctionCall(name="slow", args={}), "I am on it.", "Here it is.", tools=[slow])
    async with calling(desk) as call:
        call.say("do it")
        await call.until(lambda e: e.get_function_calls())
        call.say("are you there?")
        await call.turns(1)
        gate.set()
        await call.turns(2)
        await call.end()
        log = await call.log()
    assert lines_of(log) == [
        "user: do it", "desk calls slow", "user: are you there?", "desk: I am on it.", "turn_complete",
        "desk got {'result': 'done'}", "desk: Here it is.", "turn_complete",
    ]  # fmt: skip


async def test_a_tool_that_fails_ends_the_run_with_its_error() -> None:
    def broken() -> str:
        """Fails."""
        raise ValueError("no")

    desk, _ = agent(FunctionCall(name="broken", args={}), tools=[broken])
    async with calling(desk) as call:
        call.say("go")
        with pytest.raises(ValueError, match="no"):
            await call.ended()
        log = await call.log()
    assert lines_of(log)[-1] == "error_code: ValueError"
    assert lines_of(log)[2].startswith("desk got {'error'")


async def test_hanging_up_lets_a_tool_finish() -> None:
    gate = asyncio.Event()

    async def slow() -> str:
        """Takes its time."""
        await gate.wait()
        return "done"

    desk, _ = agent(FunctionCall(name="slow", args={}), "never said", tools=[slow])
    async with calling(desk) as call:
        call.say("do it")
        await call.until(lambda e: e.get_function_calls())
        call.queue.close()
        await asyncio.sleep(0)
        gate.set()
        await call.ended()
        log = await call.log()
    assert lines_of(log)[:3] == ["user: do it", "desk calls slow", "desk got {'result': 'done'}"]


async def test_what_is_said_to_a_lost_connection_reaches_the_next_one() -> None:
    desk, model = agent("one", "two")
    async with calling(desk) as call:
        call.say("first")
        await call.turns(1)
        model.connections[0].drop()
        call.say("second")
        await call.turns(2)
        await call.end()
        log = await call.log()
    assert lines_of(log) == ["user: first", "desk: one", "turn_complete", "user: second", "desk: two", "turn_complete"]
    assert [content.text() for content in model.connections[1].history or ()] == ["first", "one", "second"]
    assert model.connections[1].received == []


async def test_a_handle_takes_the_session_along() -> None:
    update = LlmResponse(live_session_resumption_update={"newHandle": "h-1", "resumable": True})
    desk, model = agent([update, "one ", Drops(), "two"], "three")
    async with calling(desk, config=RunConfig(session_resumption={})) as call:
        call.say("count")
        await call.turns(1)
        call.say("on")
        await call.turns(2)
        await call.end()
        log = await call.log()
    first, second = model.connections
    assert first.request.live_connect_config is not None
    assert first.request.live_connect_config.session_resumption == {}
    assert second.request.live_connect_config is not None
    assert second.request.live_connect_config.session_resumption == {"handle": "h-1"}
    assert second.history is None
    assert lines_of(log)[2:] == ["desk: one ", "desk: two", "turn_complete", "user: on", "desk: three", "turn_complete"]


async def test_a_handle_from_before_a_turn_is_not_used_after_it() -> None:
    """The vendor's session would not know what the log does."""
    update = LlmResponse(live_session_resumption_update={"newHandle": "h-1", "resumable": True})
    desk, model = agent([update, "one"], "two")
    async with calling(desk, config=RunConfig(session_resumption={})) as call:
        call.say("first")
        await call.turns(1)
        model.connections[0].drop()
        call.say("second")
        await call.turns(2)
        await call.end()
    assert [content.text() for content in model.connections[1].history or ()] == ["first", "one", "second"]


async def test_go_away_waits_for_a_handle_that_knows_the_turn() -> None:
    first, second = (
        LlmResponse(live_session_resumption_update={"newHandle": name, "resumable": True}) for name in ("h-1", "h-2")
    )
    going = LlmResponse(go_away={"timeLeft": "10s"})
    desk, model = agent([first, "one", going, TURN_COMPLETE, second, Listens()], "two")
    async with calling(desk, config=RunConfig(session_resumption={})) as call:
        call.say("count")
        await call.until(lambda e: e.live_session_resumption_update, times=2)
        call.say("on")
        await call.turns(3)
        await call.end()
    moved = model.connections[1]
    assert moved.request.live_connect_config is not None
    assert moved.request.live_connect_config.session_resumption == {"handle": "h-2"}
    assert moved.history is None


async def test_speech_that_nobody_has_answered_is_repeated_on_the_next_connection() -> None:
    desk, model = agent([Hears("hi"), "Hello."], "Yes?")
    async with calling(desk) as call:
        call.speak(b"\x01\x00")
        call.queue.send_activity_end()
        await call.turns(1)
        call.speak(b"\x02\x00")
        await asyncio.sleep(0)
        while len(model.connections[0].received) < 3:
            await asyncio.sleep(0)
        model.connections[0].drop()
        call.speak(b"\x03\x00")
        call.queue.send_activity_end()
        await call.turns(2)
        await call.end()
    assert model.connections[1].audio() == b"\x02\x00\x03\x00"
    assert isinstance(model.connections[1].received[-1], ActivityEnd)


async def test_a_turn_in_pieces_is_repeated_on_the_next_connection() -> None:
    desk, model = agent("one", "two")
    async with calling(desk) as call:
        call.say("hi")
        await call.turns(1)
        call.queue.send_content(UserContent("Good "), partial=True)
        while len(model.connections[0].received) < 2:
            await asyncio.sleep(0)
        model.connections[0].drop()
        call.queue.send_content(UserContent("day "), partial=True)
        call.queue.send_content(UserContent("to you"))
        await call.turns(2)
        await call.end()
    assert [content.text() for content in model.connections[1].received if isinstance(content, Content)] == [
        "Good day ", "to you"
    ]  # fmt: skip


async def test_go_away_moves_when_the_turn_is_over() -> None:
    going = LlmResponse(go_away={"timeLeft": "10s"})
    desk, model = agent(
        [LlmResponse(content=Content(role="model", parts=[Part(text="a")]), partial=True), going, "a"], "b"
    )
    async with calling(desk) as call:
        call.say("hi")
        await call.turns(1)
        call.say("again")
        await call.turns(2)
        await call.end()
    assert len(model.connections) == 2
    assert [content.text() for content in model.connections[1].history or ()][:2] == ["hi", "a"]


async def test_a_service_that_hangs_up_ends_the_run() -> None:
    desk, _ = agent(["Bye.", HangsUp()])
    async with calling(desk) as call:
        call.say("hi")
        assert lines_of(await call.ended()) == ["user: hi", "desk: Bye."]


async def test_a_connection_that_is_lost_again_and_again_fails_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("greenroom.agents.live.output.FIRST_PAUSE_SECONDS", 0)
    desk, model = agent([Drops() for _ in range(20)])
    async with calling(desk) as call:
        call.say("hi")
        with pytest.raises(ModelError, match="lost"):
            await call.ended()
        assert lines_of(await call.log())[-1] == "error_code: ModelError"
    assert len(model.connections) == 6


async def test_another_error_of_the_model_fails_the_run_unless_a_callback_answers() -> None:
    desk, _ = agent([ModelError("quota", model="x")])
    async with calling(desk) as call:
        call.say("hi")
        with pytest.raises(ModelError, match="quota"):
            await call.ended()

    def excuse(**_: Any) -> LlmResponse:
        return LlmResponse(content=Content(role="model", parts=[Part(text="Try later.")]))

    desk, _ = agent([ModelError("quota", model="x")], on_model_error_callback=excuse)
    async with calling(desk) as call:
        call.say("hi")
        assert lines_of(await call.ended()) == ["user: hi", "desk: Try later."]


async def test_the_settings_of_the_run_open_the_connection() -> None:
    desk, model = agent("ok", "ok", instruction="Be brief.")
    given: dict[str, Any] = {
        "response_modalities": ["TEXT"],
        "speech_config": {"voice": "Puck"},
        "input_audio_transcription": {"languageCodes": ["nb"]},
        "output_audio_transcription": None,
        "realtime_input_config": {"turnCoverage": "TURN_INCLUDES_ALL_INPUT"},
        "session_resumption": {"transparent": True},
        "context_window_compression": {"triggerTokens": 1000},
        "enable_affective_dialog": True,
        "proactivity": {"proactiveAudio": True},
        "explicit_vad_signal": True,
    }
    for config, expected in (
        (RunConfig(**given), given),
        (None, {"response_modalities": ["AUDIO"], "input_audio_transcription": {}, "output_audio_transcription": {}}),
    ):
        async with calling(desk, config=config) as call:
            call.say("hi")
            await call.turns()
            await call.end()
        live = model.connections[-1].request.live_connect_config
        assert live is not None
        assert {name: getattr(live, name) for name in given} == {**dict.fromkeys(given), **expected}
        assert str(live.system_instruction).startswith("Be brief.")


async def test_saved_audio_is_an_artifact_of_each_turn() -> None:
    desk, _ = agent([Hears("a"), Says("b c")], [Says("d"), INTERRUPTED])
    async with calling(desk, config=RunConfig(save_live_blob=True)) as call:
        call.speak(b"ab")
        call.speak(b"cd")
        call.queue.send_activity_end()
        await call.turns()
        call.queue.send_activity_end()
        await call.until(lambda e: e.interrupted)
        await call.until(lambda e: e.actions.artifact_delta, times=3)
        await call.end()
        log = await call.log()
        files = [item for event in log for item in event.actions.artifact_delta.items()]
        artifacts = call.runner.artifact_service
        assert artifacts is not None
        saved = [
            await artifacts.load_artifact(
                app_name="app", user_id="ada", session_id="s-1", filename=name, version=version
            )
            for name, version in files
        ]
    recorded = [line for line in lines_of(log) if "recorded" in line]
    assert recorded == [
        "user recorded audio/pcm;rate=16000", "desk recorded audio/pcm;rate=24000", "desk recorded audio/pcm;rate=24000",
    ]  # fmt: skip
    blobs = [part.inline_data.data for part in saved if part is not None and part.inline_data is not None]
    assert blobs == [b"abcd", CHUNK * 2, CHUNK]
    uri = next(p.file_data.file_uri for e in log for p in (e.content.parts if e.content else None) or () if p.file_data)
    assert uri == f"artifact://app/ada/s-1/_adk_live/{files[0][0]}#0"
    assert files[0][0].startswith("adk_live_audio_storage_input_audio_")
    assert files[0][0].endswith(".pcm")


async def test_a_reader_that_stops_early_stops_everything() -> None:
    stopped = asyncio.Event()

    async def forever() -> str:
        """Never ends."""
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return ""

    desk, model = agent(FunctionCall(name="forever", args={}), tools=[forever])
    async with calling(desk) as call:
        call.say("go")
        await call.until(lambda e: e.get_function_calls())
        await asyncio.sleep(0)
    assert stopped.is_set()
    assert model.connections[0].is_closed
    assert lines_of(await call.log())[-1] == "error_code: INVOCATION_ABORTED"


@pytest.mark.parametrize("kind", [ParallelAgent, LoopAgent])
async def test_agents_without_a_live_road_say_so(kind: type[Any]) -> None:
    async with calling(kind(name="team", sub_agents=[agent()[0]])) as call:
        with pytest.raises(AgentConfigError, match="can't run live"):
            await call.ended()


async def test_models_without_a_live_connection_say_so() -> None:
    async with calling(LlmAgent(name="desk", model=ScriptedModel([]))) as call:
        with pytest.raises(AgentConfigError, match="no live connection"):
            await call.ended()


async def test_connections_count_as_calls_of_the_model() -> None:
    desk, _ = agent([Drops(), "ok"])
    async with calling(desk, config=RunConfig(max_llm_calls=1)) as call:
        call.say("hi")
        with pytest.raises(LlmCallsLimitExceeded):
            await call.ended()


async def test_an_answer_to_a_call_that_nobody_made_is_refused_and_the_conversation_continues() -> None:
    desk, model = agent("ok")
    async with calling(desk) as call:
        forged = FunctionResponse(id="nobody", name="pay", response={})
        call.queue.send_content(Content(role="user", parts=[Part(function_response=forged)]))
        refused = await call.until(lambda e: e.error_code)
        call.say("hi")
        await call.turns()
        await call.end()
        log = await call.log()
    assert (refused.error_code, refused.partial) == ("InvalidRequest", True)
    assert lines_of(log) == ["user: hi", "desk: ok", "turn_complete"]
    assert len(model.connections[0].received) == 1


async def test_the_output_key_holds_the_last_text() -> None:
    desk, _ = agent("Hello.", output_key="greeting")
    async with calling(desk) as call:
        call.say("hi")
        await call.turns()
        await call.end()
        session = await call.runner.session_service.get_session(app_name="app", user_id="ada", session_id="s-1")
    assert session is not None
    assert session.state == {"greeting": "Hello."}
    deltas = [(event.author, event.actions.state_delta) for event in session.events if event.actions.state_delta]
    assert deltas == [("desk", {"greeting": "Hello."})]


async def test_a_queue_is_closed_once_its_end_was_sent() -> None:
    for end in (LiveRequestQueue.close, lambda queue: queue.send(LiveRequest(close=True))):
        queue = LiveRequestQueue()
        queue.send_audio_stream_end()
        assert not queue.closed
        end(queue)
        assert queue.closed
        assert (await queue.get()).audio_stream_end
        assert (await queue.get()).close
        assert queue.closed
