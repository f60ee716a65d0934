from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from greenroom import types
from greenroom.agents.llm_agent import LlmAgent
from greenroom.apps.load_directory import DirectoryAppLoader
from greenroom.errors import ToolError
from greenroom.server.application import create_app
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.tools.openapi.toolset import OpenAPIToolset
from tests.agents.talk import Talk
from tests.server.agents import echo
from tests.server.serving import Serving, serving

EXAMPLES = Path(__file__).parents[2] / "examples"
PLACE = {"app_name": "echo", "user_id": "ada"}


@pytest.fixture
async def server() -> AsyncIterator[Serving]:
    async with serving(create_app(agents=(echo(),))) as server:
        yield server


def load(monkeypatch: pytest.MonkeyPatch, url: str) -> tuple[LlmAgent, OpenAPIToolset]:
    monkeypatch.setenv("GREENROOM_URL", url)
    agent = DirectoryAppLoader(EXAMPLES / "openapi_client").load("openapi_client").root_agent
    assert isinstance(agent, LlmAgent)
    (toolset,) = agent.tools
    assert isinstance(toolset, OpenAPIToolset)
    return agent, toolset


def call(name: str, **args: Any) -> types.FunctionCall:
    return types.FunctionCall(id=name, name=name, args=args)


async def test_the_agent_operates_a_server_by_its_own_document(
    server: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, toolset = load(monkeypatch, f"{server.url}/")
    message = {"role": "user", "parts": [{"text": "How are you?"}]}
    model = ScriptedModel(
        [
            call("list_apps"),
            call("create_session", **PLACE, session_id="s-1"),
            call("run", **PLACE, session_id="s-1", new_message=message),
            call("list_sessions", **PLACE),
            call("delete_session", **PLACE, session_id="s-1"),
            "It echoed.",
        ]
    )
    agent.model = model
    events = await Talk(agent).say("Ask echo how it is.")
    answers = {r.id: r.response or {} for event in events for r in event.get_function_responses()}
    assert answers["list_apps"] == {"result": ["echo"]}
    assert answers["create_session"]["id"] == "s-1"
    assert answers["run"]["result"][-1]["content"]["parts"] == [{"text": "You said How are you?"}]
    assert [session["id"] for session in answers["list_sessions"]["result"]] == ["s-1"]
    assert (await server.client.get("/apps/echo/users/ada/sessions")).json() == []
    assert sorted(str(d.name) for d in model.requests[0].function_declarations()) == sorted(toolset.tool_filter or ())  # pyright: ignore[reportArgumentType]
    await toolset.close()


async def test_the_app_loads_without_a_server_and_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    _, toolset = load(monkeypatch, "http://127.0.0.1:1")
    with pytest.raises(ToolError, match="could not be reached"):
        await toolset.get_tools()
    await toolset.close()
