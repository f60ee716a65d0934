"""The dentist's telephone over a real WebSocket: the caller's audio goes in as binary frames, speech comes out."""

from __future__ import annotations

import math
import struct
from pathlib import Path

from greenroom.records.content import Blob
from greenroom.testing import Hears, Says, ScriptedLiveModel
from tests.agents.talk import call
from tests.examples.gallery import check_transcript, served, transcript
from tests.server.live_client import LiveClient, talking
from tests.server.serving import Json

PLACE = {"app_name": "voice_agent", "user_id": "user", "session_id": "s-1"}


def phone_model() -> ScriptedLiveModel:
    return ScriptedLiveModel(
        [
            [Hears("Hello, do you have something on Thursday?"), call("free_appointments", day="Thursday")],
            [Says("At half past eight, or at four o'clock.")],
            [Hears("Four is fine. My name is Ada."), call("book", day="Thursday", time="16:00", name="Ada")],
            [Says("Thank you, Ada. We see you on Thursday at four.")],
        ]
    )


def tone(seconds: float) -> list[bytes]:
    """Pieces of a tone, 100 ms each, as a microphone gives them: 16-bit mono PCM, 16 kHz."""
    samples = [int(8000 * math.sin(at * 0.17)) for at in range(int(16_000 * seconds))]
    data = struct.pack(f"<{len(samples)}h", *samples)
    return [data[at : at + 3200] for at in range(0, len(data), 3200)]


async def speak(client: LiveClient) -> list[Json]:
    """Speaks for half a second. Returns the events of the answer."""
    await client.send({"activity_start": {}})
    for piece in tone(0.5):
        await client.socket.send(piece)
    await client.send({"activity_end": {}})
    return await client.turn()


async def test_a_caller_gets_an_appointment_by_voice(tmp_path: Path) -> None:
    model = phone_model()
    async with served("voice_agent", model, tmp_path) as server:
        await server.new_session("voice_agent", user="user")
        async with talking(server.port, **PLACE) as client:
            frames = await speak(client)
            frames += await speak(client)
            await client.send({"close": True})
            assert (await client.closed())[0] == 1000
        session = (await server.client.get("/apps/voice_agent/users/user/sessions/s-1")).json()

    heard = [blob for blob in model.connections[0].received if isinstance(blob, Blob)]
    assert b"".join(blob.data or b"" for blob in heard) == b"".join(tone(0.5)) * 2
    spoken = [part["inlineData"] for frame in frames for part in _parts(frame) if "inlineData" in part]
    assert {blob["mimeType"] for blob in spoken} == {"audio/pcm;rate=24000"}
    assert session["state"]["appointment"] == "Thursday 16:00"
    check_transcript("voice_agent", transcript(session["events"]))


def _parts(frame: Json) -> list[Json]:
    return frame.get("content", {}).get("parts", [])
