"""A live conversation with the server as the command starts it."""

from __future__ import annotations

import asyncio
import signal

from tests.cli.conftest import Cli
from tests.cli.test_serve import post, served
from tests.server.live_client import talking

DESK = """
from greenroom import LlmAgent
from greenroom.testing import Hears, Says, ScriptedLiveModel

root_agent = LlmAgent(name="desk", model=ScriptedLiveModel([[Hears("good day"), Says("hello")], "Written."]))
"""


async def test_a_live_conversation_with_a_served_agent(cli: Cli) -> None:
    cli.write("agents/desk/agent.py", DESK)
    with served(cli, "agents", "--session-service", "memory://") as (url, _, process):
        await asyncio.to_thread(post, f"{url}/apps/desk/users/ann/sessions/s-1", {})
        async with talking(int(url.rpartition(":")[2]), "/run-live", ping_interval=None) as client:
            assert client.socket.protocol.extensions == []  # no compression
            await client.socket.send(b"\x01\x02" * 160)
            await client.send({"activity_end": {}})
            spoken = await client.turn()
            await (await client.socket.ping())
            await client.say("And in writing?")
            written = await client.turn()
            process.send_signal(signal.SIGTERM)
            assert (await client.closed())[0] == 1012
        assert await asyncio.to_thread(process.wait, 10) == 0
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()
    assert [f["inputTranscription"]["text"] for f in spoken if "inputTranscription" in f][-1] == "good day"
    assert [f["outputTranscription"]["text"] for f in spoken if "outputTranscription" in f][-1] == "hello"
    assert written[-2]["content"]["parts"] == [{"text": "Written."}]
