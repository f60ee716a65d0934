"""google-adk's A2A server and client, in an environment of its own, with ours. Only in `make conformance`."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from benchmarks.peers import tuned_adk_environment
from greenroom.agents.llm_agent import LlmAgent
from greenroom.agents.remote_a2a.agent import RemoteA2aAgent
from greenroom.records.content import FunctionCall
from greenroom.records.event import Event
from greenroom.records.model_exchange import LlmRequest
from greenroom.testing.scripted_model import ScriptedModel
from tests.agents.talk import STREAMED, Talk, call
from tests.processes import END_WITH_PARENT
from tests.server.conftest import Serve

pytestmark = pytest.mark.skipif("GREENROOM_CONFORMANCE" not in os.environ, reason="only in `make conformance`")
ADK = Path(__file__).parent / "adk"


@pytest.fixture(scope="module")
def python() -> str:
    return str(tuned_adk_environment() / "python")


@asynccontextmanager
async def adk_server(python: str) -> AsyncGenerator[str]:
    """The URL of the agent's card."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}/.well-known/agent-card.json"
    command = [*END_WITH_PARENT, python, str(ADK / "server.py"), str(port)]
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.DEVNULL)
    try:
        async with asyncio.timeout(60), httpx.AsyncClient() as client:
            while True:
                try:
                    await client.get(url)
                    break
                except httpx.ConnectError:
                    assert process.returncode is None
                    await asyncio.sleep(0.1)
        yield url
    finally:
        process.kill()
        await process.wait()


def texts(events: list[Event]) -> list[str]:
    return [event.content.text() for event in events if event.content is not None and not event.partial]


@pytest.mark.parametrize("run_config", [None, STREAMED], ids=["whole", "streamed"])
async def test_our_agent_talks_with_adks_server(python: str, run_config: Any) -> None:
    async with adk_server(python) as card:
        talk = Talk(RemoteA2aAgent("remote", card))
        events = await talk.say("hello", run_config=run_config)
        assert texts(events) == ["HELLO"]
        assert texts(await talk.say("again", run_config=run_config)) == ["HELLO | HELLO | AGAIN"]  # one session there
    calls = [made for event in events for made in event.get_function_calls()]
    assert [made.name for made in calls] == (["shout"] if run_config is STREAMED else [])


def shout(text: str) -> str:
    """Says it louder."""
    return text.upper()


def reply(request: LlmRequest) -> FunctionCall | str:
    """As the model of ADK's server."""
    newest = request.contents[-1].parts[-1] if request.contents[-1].parts else None
    if newest is not None and newest.function_response is not None:
        return str((newest.function_response.response or {})["result"])
    said = [text for content in request.contents if (text := content.text())]
    return call("shout", text=" | ".join(said))


@pytest.mark.parametrize("version", ["legacy", "new"])
async def test_adks_agent_talks_with_our_server(python: str, serve: Serve, version: str) -> None:
    agent = LlmAgent(name="peer", description="Says it louder.", model=ScriptedModel(reply), tools=[shout])
    server = await serve(agent, gates=("a2a",))
    card = f"{server.url}/a2a/peer/.well-known/agent-card.json"
    process = await asyncio.create_subprocess_exec(
        python, str(ADK / "client.py"), version, card, "hello", "again", stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    assert process.returncode == 0
    turns = [json.loads(line) for line in output.splitlines()]
    for events, text in zip(turns, ("HELLO", "HELLO | HELLO | AGAIN"), strict=True):
        parts = [
            part for event in events if not event.get("partial") for part in event.get("content", {}).get("parts", [])
        ]
        made, answered, said = parts
        assert made["functionCall"]["name"] == "shout"
        assert answered["functionResponse"]["response"] == {"result": text}
        assert said["text"] == text
        pieces = [event["content"]["parts"][0]["text"] for event in events if event.get("partial")]
        assert "".join(pieces) == text
        assert not any(event.get("errorMessage") for event in events)
