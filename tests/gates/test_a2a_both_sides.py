"""Our A2A client against our A2A server: an agent of one server is an agent of another."""

from __future__ import annotations

import httpx
import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.agents.remote_a2a.agent import RemoteA2aAgent
from greenroom.records.content import FunctionCall
from greenroom.testing.scripted_model import ScriptedModel
from tests.agents.talk import Talk
from tests.server.agents import echo
from tests.server.conftest import Serve


@pytest.mark.parametrize("app", ["echo", "desk"])
async def test_an_agent_of_another_server_answers(serve: Serve, app: str) -> None:
    """Twice in one session, in which the other server keeps one session of its own."""
    server = await serve(echo(), gates=("a2a",))
    async with httpx.AsyncClient() as http:
        remote = RemoteA2aAgent("echo", f"{server.url}/a2a/echo/.well-known/agent-card.json", httpx_client=http)
        desk = LlmAgent(
            name="desk",
            model=ScriptedModel([FunctionCall(name="transfer_to_agent", args={"agent_name": "echo"})], loop=True),
            sub_agents=[remote],
        )
        talk = Talk(remote if app == "echo" else desk)
        for text in ("hello", "again"):
            events = [event for event in await talk.say(text) if event.content is not None and not event.partial]
            assert text in events[-1].content.text()  # type: ignore[union-attr]
            assert (events[-1].author, events[-1].error_code) == ("echo", None)
    users = (await server.client.get("/runs?app_name=echo")).json()["runs"]
    assert len(users) == 2
    assert len({run["sessionId"] for run in users}) == 1
