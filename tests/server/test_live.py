"""`/run_live` over real sockets. Source of the table of ends: ADK's servers."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import re
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from greenroom.agents.llm_agent import LlmAgent
from greenroom.cli.http_protocol import ConnectionLimits
from greenroom.records import wire
from greenroom.records.content import ActivityEnd, ActivityStart, Blob, Content, FunctionCall, Part, Transcription
from greenroom.records.model_exchange import AudioStreamEnd, LlmResponse
from greenroom.server.settings import CorsSettings
from greenroom.testing import INTERRUPTED, HangsUp, Hears, Listens, Says, ScriptedLiveModel
from greenroom.testing.scripted_live_model import CHUNK
from tests.server.conftest import Serve
from tests.server.live_client import talking, texts
from tests.server.serving import Serving, until
from tests.server.test_event_order import ALL_FROM_A_MODEL


def desk(*script: Any, tools: Any = ()) -> tuple[LlmAgent, ScriptedLiveModel]:
    model = ScriptedLiveModel(script)
    return LlmAgent(name="desk", model=model, tools=tools), model


async def ready(serve: Serve, agent: LlmAgent, **settings: Any) -> Serving:
    server = await serve(agent, **settings)
    await server.new_session("desk")
    return server


async def log_of(server: Serving) -> list[dict[str, Any]]:
    return (await server.client.get("/apps/desk/users/ann/sessions/s-1")).json()["events"]


async def run_of(server: Serving) -> dict[str, Any]:
    """The record of the session's newest run."""
    event = (await log_of(server))[-1]
    return (await server.client.get(f"/runs/{event['invocationId']}")).json()


async def test_the_server_limits_the_model_calls_of_a_live_run(serve: Serve) -> None:
    call = FunctionCall(name="look", args={})

    def look() -> str:
        """Looks."""
        return "nothing"

    agent, _ = desk(call, call, "done", tools=[look])
    server = await ready(serve, agent, max_llm_calls=2)
    async with talking(server.port) as client:
        await client.say("look")
        code, reason = await client.closed()
    assert code == 1011
    assert "more than 2 model calls" in reason


@pytest.mark.parametrize("path", ["/run_live", "/run-live"])
async def test_text_in_events_out(serve: Serve, path: str) -> None:
    agent, _ = desk("Hello there.")
    server = await ready(serve, agent)
    async with talking(server.port, path) as client:
        await client.say("hi")
        frames = await client.turn()
    assert texts(frames) == ["Hello there."]
    assert [frame["partial"] for frame in frames if "partial" in frame] == [True, True]
    assert all(frame["author"] == "desk" for frame in frames)
    assert [frame.get("seq") for frame in frames] == [None, None, 2, 3]
    assert [(e["author"], texts([e])) for e in await log_of(server)][:2] == [
        ("user", ["hi"]),
        ("desk", ["Hello there."]),
    ]


async def test_audio_goes_in_as_base64_and_as_binary(serve: Serve) -> None:
    agent, model = desk([Hears("good day"), Says("hello")])
    server = await ready(serve, agent)
    async with talking(server.port) as client:
        await client.speak(b"\xfb\xff" * 8)
        await client.send({"blob": {"mimeType": "audio/pcm", "data": base64.urlsafe_b64encode(b"\xfb\xff").decode()}})
        await client.socket.send(b"\x01\x02\x03")
        await client.send({"activity_end": {}})
        frames = await client.turn()

    assert model.connections[0].received == [
        Blob(data=b"\xfb\xff" * 8, mime_type="audio/pcm;rate=16000"),
        Blob(data=b"\xfb\xff", mime_type="audio/pcm"),
        Blob(data=b"\x01\x02\x03", mime_type="audio/pcm;rate=16000"),
        ActivityEnd(),
    ]
    heard = [frame["inputTranscription"] for frame in frames if "inputTranscription" in frame]
    assert heard[-1] == {"text": "good day", "finished": True}
    assert [frame.get("partial") for frame in frames if "inputTranscription" in frame] == [True, True, False]
    spoken = [frame for frame in frames if "outputTranscription" in frame]
    assert {frame["author"] for frame in spoken} == {"desk"}
    assert spoken[-1]["outputTranscription"] == {"text": "hello", "finished": True}
    assert [frame["author"] for frame in frames if "inputTranscription" in frame] == ["user"] * 3
    audio = [p["inlineData"] for f in frames for p in f.get("content", {}).get("parts", []) if "inlineData" in p]
    assert audio == [{"mimeType": "audio/pcm;rate=24000", "data": base64.b64encode(CHUNK).decode()}]
    assert not [e for e in await log_of(server) if "inlineData" in json.dumps(e)]
    assert (await server.client.get("/apps/desk/users/ann/sessions/s-1/artifacts")).json() == []


async def test_binary_frames_hold_what_the_client_says_they_do(serve: Serve) -> None:
    agent, model = desk("ok")
    server = await ready(serve, agent)
    async with talking(server.port, binary_mime_type="audio/pcm;rate=24000") as client:
        await client.socket.send(b"abc")
        await client.say("hi")
        await client.turn()
    assert model.connections[0].received[0] == Blob(data=b"abc", mime_type="audio/pcm;rate=24000")


async def test_frames_are_taken_in_snake_case_and_camel_case_and_the_first_field_counts(serve: Serve) -> None:
    agent, model = desk("ok")
    server = await ready(serve, agent)
    blob = {"mime_type": "audio/pcm", "data": "AAAA"}
    async with talking(server.port) as client:
        await client.send({"activity_start": {}, "blob": blob})
        await client.send({"activityStart": {}, "stateDelta": {"a": 1}})
        await client.send({"audioStreamEnd": False, "blob": blob})
        await client.send({"state_delta": {"b": 2}, "unknown": 3})
        await client.send({})
        await client.send({"audioStreamEnd": True})
        await client.turn()
    kinds = [type(data) for data in model.connections[0].received]
    assert kinds == [ActivityStart, ActivityStart, Blob, AudioStreamEnd]
    state = (await server.client.get("/apps/desk/users/ann/sessions/s-1")).json()["state"]
    assert state == {"a": 1, "b": 2}


BLOB = {"mime_type": "audio/pcm", "data": "AAAA"}
FIRST_TO_LAST = [
    ({"activity_start": {}}, ActivityStart),
    ({"activity_end": {}}, ActivityEnd),
    ({"audio_stream_end": True}, AudioStreamEnd),
    ({"blob": BLOB}, Blob),
    ({"content": {"parts": [{"text": "hi"}]}}, Content),
]


@pytest.mark.parametrize("place", range(len(FIRST_TO_LAST)))
async def test_of_several_fields_of_a_frame_the_first_counts(serve: Serve, place: int) -> None:
    agent, model = desk([Listens(0), "ok"])
    server = await ready(serve, agent)
    frame: dict[str, Any] = {"state_delta": {"seen": place}}
    for field, _ in FIRST_TO_LAST[place:]:
        frame |= field
    async with talking(server.port) as client:
        await client.send(frame)
        await until(lambda: model.connections and model.connections[0].received)
        await client.send({"close": True})
        await client.closed()
    assert [type(data) for data in model.connections[0].received] == [FIRST_TO_LAST[place][1]]
    session = (await server.client.get("/apps/desk/users/ann/sessions/s-1")).json()
    assert session["state"] == {"seen": place}


async def test_the_query_sets_the_run(serve: Serve) -> None:
    agent, model = desk("ok", "ok")
    server = await ready(serve, agent)
    async with talking(
        server.port, modalities=["TEXT", "AUDIO"], proactive_audio="true", enable_affective_dialog="true",
        enable_session_resumption="true", explicit_vad_signal="false",
    ) as client:  # fmt: skip
        await client.say("hi")
        await client.turn()
        await client.send({"close": True})
        await client.closed()

    async with talking(server.port) as client:
        await client.say("hi")
        await client.turn()

    first, second = (connection.request.live_connect_config for connection in model.connections)
    assert first is not None
    assert second is not None
    assert first.response_modalities == ["TEXT", "AUDIO"]
    assert first.proactivity == {"proactiveAudio": True}
    assert first.enable_affective_dialog is True
    assert first.session_resumption == {}
    assert first.explicit_vad_signal is False
    assert second.response_modalities == ["AUDIO"]
    assert second.proactivity is second.enable_affective_dialog is second.session_resumption is None


async def test_a_video_call_is_answered_with_video(serve: Serve) -> None:
    picture = {"mime_type": "video/mp4", "data": "AAAA"}
    reply = {"role": "model", "parts": [{"inline_data": picture}]}
    agent, model = desk([wire.from_plain({"content": reply}, LlmResponse)])
    server = await ready(serve, agent)
    async with talking(server.port, modalities="VIDEO") as client:
        await client.send({"blob": {"mime_type": "image/jpeg", "data": "/9j/"}})
        await client.say("do you see me?")
        frames = await client.turn()
    config = model.connections[0].request.live_connect_config
    assert config is not None
    assert config.response_modalities == ["VIDEO"]
    assert model.connections[0].received[0] == Blob(data=b"\xff\xd8\xff", mime_type="image/jpeg")
    seen = [part["inlineData"] for frame in frames for part in frame.get("content", {}).get("parts", [])]
    assert seen == [{"mimeType": "video/mp4", "data": "AAAA"}]
    assert "inlineData" not in json.dumps(await log_of(server))


async def test_a_turn_may_come_in_pieces(serve: Serve) -> None:
    agent, model = desk([Listens(0), "ok"])
    server = await ready(serve, agent)
    async with talking(server.port) as client:
        await client.send({"content": {"parts": [{"text": "one "}]}, "partial": True, "state_delta": {"a": 1}})
        await client.send({"content": {"parts": [{"text": "two"}]}, "state_delta": {"b": 2}})
        await until(lambda: model.connections and len(model.connections[0].received) == 2)
        await client.send({"close": True})
        await client.closed()
    first, second = model.connections[0].received
    assert [first, second] == [Content(role="user", parts=[Part(text=text)]) for text in ("one ", "two")]
    said = [event["content"]["parts"] for event in await log_of(server) if "content" in event]
    assert said[0] == [{"text": "one "}, {"text": "two"}]
    session = (await server.client.get("/apps/desk/users/ann/sessions/s-1")).json()
    assert session["state"] == {"a": 1, "b": 2}


async def test_a_transcript_is_sent_whole_though_its_end_says_nothing_new(serve: Serve) -> None:
    pieces = [LlmResponse(output_transcription=Transcription(text=text), partial=True) for text in ("Hel", "lo")]
    end = LlmResponse(output_transcription=Transcription(finished=True))
    agent, _ = desk([*pieces, end])
    server = await ready(serve, agent)
    async with talking(server.port) as client:
        await client.say("hi")
        frames = await client.turn()
    *transcripts, end_of_turn = frames
    sent = [(frame["outputTranscription"]["text"], frame["partial"]) for frame in transcripts]
    assert sent == [("Hel", True), ("lo", True), ("Hello", False)]
    assert end_of_turn["turnComplete"] is True


async def test_what_a_live_model_sends_beside_its_words_comes_too(serve: Serve) -> None:
    fields: dict[str, Any] = {
        **{name: value for name, value in ALL_FROM_A_MODEL.items() if not name.startswith("error")},
        "liveSessionResumptionUpdate": {"newHandle": "h", "resumable": True},
        "liveSessionId": "l",
        "goAway": {"timeLeft": "10s"},
        "voiceActivity": {"voiceActivityType": "ACTIVITY_START", "audioOffset": "1s"},
    }
    agent, _ = desk([wire.from_plain(fields, LlmResponse)])
    server = await ready(serve, agent)
    async with talking(server.port) as client:
        await client.say("hi")
        frame = await client.until(lambda f: f.get("liveSessionId"))
    assert {name: frame.get(name) for name in fields} == fields


async def test_saved_audio_can_be_loaded_by_the_name_in_its_reference(serve: Serve) -> None:
    agent, _ = desk([Says("hello")])
    server = await ready(serve, agent)
    async with talking(server.port, save_live_blob="true") as client:
        await client.speak(b"1234")
        await client.send({"activity_end": {}})
        heard = await client.until(lambda f: f["actions"]["artifactDelta"])
    reference = heard["content"]["parts"][0]["fileData"]
    assert (heard["author"], reference["mimeType"]) == ("user", "audio/pcm;rate=16000")
    assert re.fullmatch(r"artifact://desk/ann/s-1/(?:.*/)?[^/#]+#0", reference["fileUri"])
    name = reference["fileUri"].rpartition("/")[2].partition("#")[0]
    saved = await server.client.get(f"/apps/desk/users/ann/sessions/s-1/artifacts/{name}/versions/0")
    assert base64.b64decode(saved.json()["inlineData"]["data"]) == b"1234"


async def test_bookkeeping_and_interruptions_come_as_events(serve: Serve) -> None:
    agent, _ = desk(
        [
            LlmResponse(live_session_resumption_update={"newHandle": "h", "resumable": True}),
            LlmResponse(voice_activity={"voiceActivityType": "ACTIVITY_START"}),
            LlmResponse(go_away={"timeLeft": "10s"}),
            Says("one"), Listens(1), INTERRUPTED,
        ],
        [LlmResponse(turn_complete=True, turn_complete_reason="NEED_MORE_INPUT")],
    )  # fmt: skip
    server = await ready(serve, agent)
    async with talking(server.port) as client:
        await client.say("count")
        await client.until(lambda f: f.get("outputTranscription", {}).get("finished"))
        await client.speak(b"xx")
        await client.until(lambda f: f.get("interrupted"))
        await client.say("and?")
        end = await client.until(lambda f: f.get("turnComplete"))
    assert client.frames[0]["liveSessionResumptionUpdate"] == {"newHandle": "h", "resumable": True}
    assert client.frames[1]["voiceActivity"] == {"voiceActivityType": "ACTIVITY_START"}
    assert client.frames[2]["goAway"] == {"timeLeft": "10s"}
    assert end["turnCompleteReason"] == "NEED_MORE_INPUT"


async def test_tools_answer_while_the_client_is_connected(serve: Serve) -> None:
    def weather(city: str) -> str:
        """The weather."""
        return f"blue over {city}"

    agent, _ = desk(FunctionCall(name="weather", args={"city": "Oslo"}), "It is blue.", tools=[weather])
    server = await ready(serve, agent)
    async with talking(server.port) as client:
        await client.say("weather?")
        frames = await client.turn()
    parts = [part for frame in frames for part in frame.get("content", {}).get("parts", [])]
    assert parts[0]["functionCall"]["name"] == "weather"
    assert parts[1]["functionResponse"]["response"] == {"result": "blue over Oslo"}
    assert texts(frames) == ["It is blue."]


# ends


async def test_close_ends_the_run_and_the_socket(serve: Serve) -> None:
    agent, _ = desk("ok")
    server = await ready(serve, agent)
    async with talking(server.port) as client:
        await client.say("hi")
        await client.turn()
        await client.send({"close": True})
        assert await client.closed() == (1000, "")
    record = await run_of(server)
    assert (record["status"], record["isLive"]) == ("succeeded", True)


async def test_a_run_that_ends_by_itself_closes_with_1000(serve: Serve) -> None:
    agent, _ = desk(["Bye.", HangsUp()])
    server = await ready(serve, agent)
    async with talking(server.port) as client:
        await client.say("hi")
        assert await client.closed() == (1000, "")


async def test_an_unknown_session_closes_with_1002(serve: Serve) -> None:
    server = await serve(desk()[0])
    async with talking(server.port) as client:
        code, reason = await client.closed()
    assert code == 1002
    assert reason.startswith("Session not found")


async def test_an_unknown_app_closes_with_1011(serve: Serve) -> None:
    server = await serve(desk()[0])
    async with talking(server.port, app_name="nobody") as client:
        code, reason = await client.closed()
    assert code == 1011
    assert reason.startswith("Runner unavailable: App not found: 'nobody'")


async def test_an_error_of_the_run_closes_with_1011_and_its_message_cut_to_size(serve: Serve) -> None:
    agent, _ = desk([ValueError("ü" * 200)])
    server = await ready(serve, agent)
    async with talking(server.port) as client:
        await client.say("hi")
        code, reason = await client.closed()
    assert (code, reason) == (1011, "ü" * 61)
    assert client.frames[-1]["errorCode"] == "ValueError"
    assert (await run_of(server))["status"] == "failed"


async def test_a_run_past_the_time_limit_of_the_server_closes_with_1011(serve: Serve) -> None:
    agent, _ = desk("Hello there.", Listens())
    server = await ready(serve, agent, run_deadline_seconds=0.3)
    async with talking(server.port) as client:
        await client.say("hi")
        code, reason = await client.closed()
    assert code == 1011
    assert "0.3" in reason
    assert client.frames[-1]["errorCode"] == "DeadlineExceeded"
    assert (await run_of(server))["status"] == "failed"


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ({"user_id": None}, "user_id is missing"),
        ({"session_id": None}, "session_id is missing"),
        ({"modalities": "SMELL"}, "modalities: "),
        ({"proactive_audio": "maybe"}, "proactive_audio: "),
        ({"after": "-1"}, "after: "),
        ({"binary_mime_type": "text/html"}, "binary_mime_type must be"),
    ],
)
async def test_a_bad_query_closes_with_1008(serve: Serve, query: dict[str, Any], reason: str) -> None:
    server = await ready(serve, desk()[0])
    async with talking(server.port, **query) as client:
        code, why = await client.closed()
    assert code == 1008
    assert why.startswith(reason)


async def test_the_app_may_be_left_out_where_there_is_only_one(serve: Serve) -> None:
    server = await ready(serve, desk("ok")[0])
    async with talking(server.port, app_name=None) as client:
        await client.say("hi")
        assert texts(await client.turn()) == ["ok"]


@pytest.mark.parametrize("query", [{"app_name": None}, {"app_name": ""}, {"app_name": None, "appName": "desk"}])
async def test_of_several_apps_one_must_be_named(serve: Serve, query: dict[str, Any]) -> None:
    server = await serve(desk()[0], LlmAgent(name="other", model=ScriptedLiveModel([])))
    async with talking(server.port, **query) as client:
        assert await client.closed() == (1008, "appName is required: there are 2 apps to choose from")


async def test_a_cancelled_run_closes_with_1000_and_says_why(serve: Serve) -> None:
    agent, _ = desk("ok")
    server = await ready(serve, agent)
    async with talking(server.port) as client:
        await client.say("hi")
        frames = await client.turn()
        await server.client.post(f"/runs/{frames[0]['invocationId']}/cancel")
        code, reason = await client.closed()
    assert code == 1000
    assert "was cancelled: requested by a client" in reason


async def test_a_stopping_server_closes_with_1012(serve: Serve) -> None:
    agent, model = desk("ok")
    server = await ready(serve, agent)
    async with talking(server.port) as client:
        await client.say("hi")
        await client.turn()
        server.stop()
        code, _ = await client.closed()
    assert code == 1012
    await until(lambda: model.connections[0].is_closed)


async def test_a_server_that_takes_no_runs_closes_with_1013(serve: Serve) -> None:
    server = await ready(serve, desk()[0])
    await server.app.engine.close()
    async with talking(server.port) as client:
        assert await client.closed() == (1013, "The server is shutting down")


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        ("{", "InvalidRequest"),
        ("[1]", "InvalidRequest"),
        ('"hi"', "InvalidRequest"),
        ('{"blob": {"data": "AAAA"}}', "InvalidRequest"),
        ('{"blob": {"mime_type": "audio/pcm", "data": "%%%"}}', "InvalidRequest"),
        ('{"content": {"parts": []}}', "InvalidRequest"),
        ('{"content": {"parts": [{"functionCall": {"name": "pay"}}]}}', "InvalidRequest"),
        ('{"close": "perhaps"}', "InvalidRequest"),
        ("[" * 100_000, "InvalidRequest"),
    ],
)
async def test_a_bad_frame_is_answered_and_the_conversation_continues(serve: Serve, frame: str, code: str) -> None:
    agent, model = desk("ok")
    server = await ready(serve, agent)
    async with talking(server.port) as client:
        await client.socket.send(frame)
        answer = await client.next()
        await client.say("hi")
        assert texts(await client.turn()) == ["ok"]
    assert answer["error"].startswith(code)
    assert answer["details"]["code"] == code
    assert "Traceback" not in json.dumps(answer)
    assert len(model.connections[0].received) == 1


async def test_text_that_is_no_utf_8_closes_with_1007_and_a_frame_too_large_with_1009(serve: Serve) -> None:
    agent, _ = desk("ok")
    server = await ready(serve, agent)
    async with talking(server.port) as client:
        await client.socket.send(b"\xff\xfe", text=True)
        assert (await client.closed())[0] == 1007
    async with talking(server.port) as client:
        with contextlib.suppress(ConnectionClosed):  # the server closes at the frame's head
            await client.socket.send(b"x" * (16 * 1024 * 1024 + 1))
        assert (await client.closed())[0] == 1009


async def test_a_ping_is_answered_while_the_model_is_silent(serve: Serve) -> None:
    agent, _ = desk([Listens(5)])
    server = await ready(serve, agent)
    async with talking(server.port, ping_interval=None) as client:
        await client.say("hi")
        async with asyncio.timeout(5):
            await (await client.socket.ping(b"are you there"))


async def test_a_client_that_answers_pings_stays_and_one_that_does_not_is_given_up(serve: Serve) -> None:
    agent, _ = desk("here")
    server = await ready(serve, agent, connection_limits=ConnectionLimits(ping_seconds=0.2))
    await server.new_session("desk", session="s-2")
    async with (
        talking(server.port, ping_interval=None) as alive,
        talking(server.port, session_id="s-2", ping_interval=None) as gone,
    ):
        assert gone.socket.response is not None
        run_id = gone.socket.response.headers["x-run-id"]
        gone.socket.transport.pause_reading()  # as if the cable had been cut
        await server.wait_for_status(run_id, "succeeded")
        gone.socket.transport.resume_reading()
        assert await gone.closed() == (1011, "keepalive ping timeout")
        await alive.say("hi")
        assert texts(await alive.turn()) == ["here"]


async def test_frames_of_ten_megabytes_are_taken(serve: Serve) -> None:
    agent, model = desk("ok")
    server = await ready(serve, agent)
    data = b"\x07" * (10 * 1024 * 1024)
    async with talking(server.port, compression=None) as client:
        await client.speak(data)
        await client.say("hi")
        await client.turn()
    assert model.connections[0].audio() == data


# who may come in


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:1"])
async def test_foreign_origins_are_refused_at_the_handshake(serve: Serve, origin: str) -> None:
    server = await ready(serve, desk()[0])
    with pytest.raises(InvalidStatus) as refused:
        async with talking(server.port, origin=origin):
            pass
    assert refused.value.response.status_code == 403
    assert refused.value.response.body == b"Forbidden: origin not allowed"


async def test_own_and_listed_origins_are_let_in(serve: Serve) -> None:
    agent, _ = desk("ok", "ok", "ok")
    cors = CorsSettings(origins=("https://friend.example", r"regex:https://.*\.good\.example"))
    server = await ready(serve, agent, cors=cors)
    for origin in ("https://friend.example", "https://a.good.example", server.url):
        async with talking(server.port, origin=origin) as client:
            await client.say("hi")
            assert texts(await client.turn()) == ["ok"]
    with pytest.raises(InvalidStatus):
        async with talking(server.port, origin="https://evil.example"):
            pass


async def test_the_protocol_is_chosen_and_a_key_is_never_sent_back(serve: Serve) -> None:
    agent, _ = desk("ok")
    server = await ready(serve, agent)
    async with talking(server.port, subprotocols=["greenroom", "greenroom.key.s3cret"]) as client:
        assert client.socket.subprotocol == "greenroom"
        assert client.socket.response is not None
        assert "s3cret" not in str(client.socket.response.headers)


async def test_unknown_paths_are_refused(serve: Serve) -> None:
    server = await ready(serve, desk()[0])
    with pytest.raises(InvalidStatus):
        async with talking(server.port, "/nowhere"):
            pass
    reply = await server.client.get("/run_live")
    assert reply.status_code == 404


# its place among the runs


async def test_other_runs_of_the_session_wait_for_a_live_run(serve: Serve) -> None:
    agent, _ = desk("ok")
    agent.model = ScriptedLiveModel(["ok"], text_script=["written"])
    server = await ready(serve, agent)
    async with talking(server.port) as client:
        await client.say("hi")
        await client.turn()
        busy = await server.run("desk", multitaskStrategy="reject")
        assert busy.status_code == 409
        waiting = asyncio.ensure_future(server.run("desk"))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await client.send({"close": True})
        assert texts((await waiting).json()) == ["written"]


async def test_who_comes_back_gets_what_was_missed(serve: Serve) -> None:
    gate = asyncio.Event()

    async def slow() -> str:
        """Takes its time."""
        await gate.wait()
        return "done"

    agent, _ = desk("one", FunctionCall(name="slow", args={}), "two", tools=[slow])
    server = await ready(serve, agent)

    async with talking(server.port) as first:
        await first.say("begin")
        frames = await first.turn()
        await first.say("work")
        await first.until(lambda f: "functionCall" in json.dumps(f))
        first.socket.transport.abort()

    gate.set()
    seen = max(frame["seq"] for frame in frames if "seq" in frame)
    async with talking(server.port, after=seen) as second:
        missed = await second.until(lambda f: "functionResponse" in json.dumps(f))
        assert texts(second.frames) == ["work"]
        assert missed["content"]["parts"][0]["functionResponse"]["response"] == {"result": "done"}
        assert texts(await second.turn()) == ["two"]


async def test_a_reconnect_at_an_unknown_position_gets_what_follows(serve: Serve) -> None:
    """The session may have been deleted and made again meanwhile."""
    agent, _ = desk("one")
    server = await ready(serve, agent)
    async with talking(server.port, after=1000) as client:
        await client.say("hi")
        assert texts(await client.turn()) == ["hi", "one"]


async def test_a_new_connection_takes_over_from_one_that_is_only_half_gone(serve: Serve) -> None:
    agent, _ = desk("one", "two")
    server = await ready(serve, agent)
    async with talking(server.port) as first:
        await first.say("hi")
        await first.turn()
        async with talking(server.port) as second:
            assert await first.closed() == (1000, "")
            await second.say("again")
            assert texts(await second.turn()) == ["two"]


async def test_a_client_gone_in_the_middle_leaves_nothing_behind(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    agent, model = desk([Says("a b c"), Listens(1), "never"])
    server = await ready(serve, agent)
    before = asyncio.all_tasks()
    async with talking(server.port) as client:
        assert client.socket.response is not None
        run_id = client.socket.response.headers["x-run-id"]
        await client.speak(b"xx")
        await client.send({"activity_end": {}})
        await client.until(lambda f: "outputTranscription" in f)
        client.socket.transport.abort()
    await until(lambda: model.connections[0].is_closed)
    await until(lambda: {task for task in asyncio.all_tasks() - before if "keepalive" not in str(task)} == set())
    await server.wait_for_status(run_id, "succeeded")
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_what_the_model_said_in_pieces_is_kept_when_the_client_goes(serve: Serve) -> None:
    pieces = [
        LlmResponse(output_transcription=Transcription(text=word), partial=True) for word in ("one ", "two ", "three")
    ]
    agent, model = desk([*pieces, Listens(1), "never"])
    server = await ready(serve, agent)
    async with talking(server.port) as client:
        await client.say("count")
        await client.until(lambda f: f.get("outputTranscription", {}).get("text") == "three")
        client.socket.transport.abort()
    await until(lambda: model.connections[0].is_closed)
    await server.wait_for_status((await log_of(server))[0]["invocationId"], "succeeded")
    spoken = [event["outputTranscription"] for event in await log_of(server) if "outputTranscription" in event]
    assert spoken == [{"text": "one two three", "finished": True}]


async def test_a_client_gone_cancels_the_run_where_that_is_asked_for(serve: Serve) -> None:
    async def forever() -> str:
        """Never ends."""
        await asyncio.Event().wait()
        return ""

    agent, _ = desk(FunctionCall(name="forever", args={}), tools=[forever])
    server = await ready(serve, agent, on_disconnect="cancel")
    async with talking(server.port) as client:
        await client.say("go")
        await client.until(lambda f: "functionCall" in json.dumps(f))
        client.socket.transport.abort()
    await until(lambda: _is_cancelled(server))


async def _is_cancelled(server: Serving) -> bool:
    return (await log_of(server))[-1].get("errorCode") == "INVOCATION_ABORTED"


# back-pressure


async def test_a_client_that_floods_is_read_no_faster_than_the_model_takes_it(serve: Serve) -> None:
    model = ScriptedLiveModel(["ok"])
    gate = asyncio.Event()
    agent = LlmAgent(name="desk", model=model)
    server = await ready(serve, agent)
    async with talking(server.port, compression=None) as client:
        await until(lambda: model.connections)
        connection = model.connections[0]
        original = connection.send_realtime

        async def held(data: Any) -> None:
            await gate.wait()
            await original(data)

        connection.send_realtime = held  # type: ignore[method-assign]
        sent = 0

        async def flood() -> None:
            nonlocal sent
            for _ in range(200):
                await client.socket.send(b"x" * 262_144)
                sent += 1

        flooding = asyncio.create_task(flood())
        await asyncio.sleep(0.5)
        stalled_at = sent
        await asyncio.sleep(0.3)
        assert sent == stalled_at < 100
        gate.set()
        await flooding
        await client.say("done")
        await client.turn()
    assert len(connection.audio()) == 200 * 262_144


async def test_a_client_that_does_not_read_holds_up_only_itself(serve: Serve) -> None:
    chunk = Content(role="model", parts=[Part(inline_data=Blob(data=b"\0" * 65536, mime_type="audio/pcm"))])
    agent, model = desk([LlmResponse(content=chunk)] * 300)
    server = await ready(serve, agent)
    async with talking(server.port, max_queue=1, compression=None) as client:
        await client.say("talk")
        await until(lambda: _has_ended(server))  # the run has said all, though nobody took it
        client.socket.transport.abort()
        await until(lambda: model.connections[0].is_closed)
        await server.wait_for_status((await run_of(server))["id"], "succeeded")


async def test_who_reads_again_gets_what_is_stored_but_not_all_that_was_only_to_be_heard(serve: Serve) -> None:
    chunk = Content(role="model", parts=[Part(inline_data=Blob(data=b"\0" * 262_144, mime_type="audio/pcm"))])
    agent, _ = desk([*[LlmResponse(content=chunk)] * 200, "The end."])
    server = await ready(serve, agent)
    async with talking(server.port, max_queue=1, compression=None) as client:
        await client.say("talk")
        await until(lambda: _has_ended(server))
        frames = await client.turn()
    assert texts(frames) == ["The end."]
    assert len(frames) < 150


async def _has_ended(server: Serving) -> bool:
    return any(event.get("turnComplete") for event in await log_of(server))
