"""Clients of `/run_live` that send anything and disconnect at any time: the conversation continues, and nothing leaks.

As many of them as a tenth of GREENROOM_FUZZ, GREENROOM_SEED repeats them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from hypothesis import HealthCheck, given, seed, settings
from websockets.exceptions import ConnectionClosed

from tests.durability.server_process import ServerProcess, server_in
from tests.fuzz.counts import back_to, tasks
from tests.fuzz.extent import REQUESTS
from tests.fuzz.live_frames import TALKS, Goodbye, Message, Talk
from tests.seed import SEED
from tests.server.live_client import LiveClient, talking, texts

TALKED = REQUESTS // 10
PATIENCE_SECONDS = 60
PLACE = "/apps/desk/users/ann/sessions"
HEALTH = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much, HealthCheck.large_base_example]

FENCE = 7000
"""Blanks before the second, broken message: the position in its error identifies it."""

OVER = ("succeeded", "cancelled", "failed")


@pytest.mark.fuzz
async def test_the_conversation_continues_whatever_is_sent_and_nothing_stays(tmp_path: Path) -> None:
    tally = Counter[str]()
    async with server_in(tmp_path, module="tests.fuzz.served") as server:
        await server.start()
        await asyncio.to_thread(_talk_and_talk, server, tally)
        print(f"\nseed {SEED}: {dict(sorted(tally.items()))}")
    assert tally["talks"] >= TALKED
    assert {"taken", "refused"} <= set(tally)


def _talk_and_talk(server: ServerProcess, tally: Counter[str]) -> None:
    @seed(SEED)
    @settings(max_examples=TALKED, database=None, deadline=None, suppress_health_check=HEALTH)
    @given(talk=TALKS)
    def talks(talk: Talk) -> None:
        before = len(server.log())
        asyncio.run(asyncio.wait_for(_talk(server, talk, tally), PATIENCE_SECONDS))
        assert "Traceback" not in (log := server.log()[before:]), log

    talks()


async def _talk(server: ServerProcess, talk: Talk, tally: Counter[str]) -> None:
    async with httpx.AsyncClient(base_url=server.url, timeout=PATIENCE_SECONDS) as http:
        before = await tasks(http)
        session = (await http.post(PLACE)).raise_for_status().json()["id"]
        run_id = await _converse(server, session, talk, tally)
        await back_to(before, http)
        run = (await http.get(f"/runs/{run_id}")).raise_for_status().json()
        assert run["status"] in OVER, run
    tally["talks"] += 1
    tally[f"run {run['status']}"] += 1


async def _converse(server: ServerProcess, session: str, talk: Talk, tally: Counter[str]) -> str:
    port = urlsplit(server.url).port or 0
    async with talking(port, session_id=session, compression=None, ping_interval=None) as client:
        assert client.socket.response is not None
        for number, message in enumerate(talk.messages):
            is_refused = await _is_refused(client, message, number)
            tally["refused" if is_refused else "taken"] += 1
            if not is_refused and message.says_close:
                assert await client.closed() == (1000, "")
                tally["closed by a message"] += 1
                break
        else:
            await client.say("still there?")
            while "You said still there?" not in texts([await client.next()]):
                pass
            tally["went on"] += 1
            await _leave(client, talk.goodbye, tally)
        return client.socket.response.headers["x-run-id"]


async def _is_refused(client: LiveClient, message: Message, number: int) -> bool:
    """A second message, known by where it is broken, shows that the first one has been dealt with."""
    place = FENCE + number
    is_refused = False
    await client.socket.send(message.data)
    with contextlib.suppress(ConnectionClosed) if message.says_close else contextlib.nullcontext():
        await client.socket.send(" " * place + "!")
        while True:
            frame = await client.next()
            if "error" not in frame:
                continue
            assert (frame["details"]["code"], frame["details"]["status"]) == ("InvalidRequest", 422), frame
            if f"(byte {place})" in frame["error"]:
                break
            assert not is_refused, f"{message} is answered twice"
            is_refused = True
    assert message.verdict in ("either", "refused" if is_refused else "taken"), message
    return is_refused


async def _leave(client: LiveClient, goodbye: Goodbye, tally: Counter[str]) -> None:
    if goodbye.close:
        await client.send({"close": True})
        assert await client.closed() == (1000, "")
    elif goodbye.code is not None:
        await client.socket.close(goodbye.code, _cut(goodbye.reason))
        assert client.socket.close_code == goodbye.code
    else:
        client.socket.transport.write(goodbye.raw)
        if goodbye.codes:
            assert (await client.closed())[0] in goodbye.codes, goodbye
            tally[f"closed with {client.socket.close_code}"] += 1
        client.socket.transport.abort()


def _cut(reason: str) -> str:
    return reason.encode()[:120].decode(errors="ignore")
