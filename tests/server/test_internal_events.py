"""ADK's clients get no checkpoints and no inner events of agent tools; the log has them."""

from __future__ import annotations

from typing import Any

from greenroom.agents.agent_tool import AgentTool
from greenroom.agents.llm_agent import LlmAgent
from greenroom.agents.workflows import SequentialAgent
from greenroom.client.async_client import AsyncClient
from greenroom.invocation.user_context import ToolContext
from greenroom.records.content import FunctionCall, Part
from greenroom.testing import ScriptedModel
from tests.server.agents import echo, scripted
from tests.server.conftest import Serve


def team() -> SequentialAgent:
    expert = echo("expert")
    desk = LlmAgent(
        name="desk",
        model=ScriptedModel([FunctionCall(name="expert", args={"request": "x"}), "done"]),
        tools=[AgentTool(agent=expert)],
    )
    return SequentialAgent(name="team", sub_agents=[desk, echo("last")])


def authors(events: list[dict[str, Any]]) -> list[str]:
    return [event["author"] for event in events]


async def test_the_same_rule_holds_for_all_that_adk_clients_read(serve: Serve) -> None:
    server = await serve(team())
    path = await server.new_session("team")
    run = (await server.run("team")).json()
    shown = ["desk", "desk", "desk", "last"]
    assert authors(run) == shown
    assert authors((await server.client.get(path)).json()["events"]) == ["user", *shown]
    patched = await server.client.patch(path, json={"stateDelta": {"a": 1}})
    assert authors(patched.json()["events"]) == ["user", *shown, "user"]
    log = (await server.client.get(path, params={"events": "all"})).json()["events"]
    assert "expert" in authors(log)
    assert [event["author"] for event in (await server.client.get(f"{path}/events")).json()["events"]] == authors(log)
    async with AsyncClient(server.url) as client:
        session = await client.get_session(app_name="team", user_id="ann", session_id="s-1")
        assert [event.author for event in session.events] == authors(log)
    assert (await server.client.get(path, params={"events": "some"})).status_code == 422


async def test_streams_leave_the_same_out(serve: Serve) -> None:
    server = await serve(team())
    await server.new_session("team")
    assert [frame.data["author"] for frame in await server.sse("team")] == ["desk", "desk", "desk", "last"]


async def test_an_event_with_artifacts_comes_in_two_frames(serve: Serve) -> None:
    async def draw(tool_context: ToolContext) -> str:
        """Draw."""
        await tool_context.save_artifact("a.txt", Part(text="x"))
        return "drawn"

    calls = iter([FunctionCall(name="draw", args={}), "done"])
    server = await serve(scripted("painter", lambda _: next(calls), tools=[draw]))
    await server.new_session("painter")
    _, content, artifacts, last = await server.sse("painter")
    assert content.data["id"] == artifacts.data["id"] != last.data["id"]
    assert content.id == artifacts.id
    assert content.data["content"]["parts"][0]["functionResponse"]["name"] == "draw"
    assert content.data["actions"]["artifactDelta"] == {}
    assert "content" not in artifacts.data
    assert artifacts.data["actions"]["artifactDelta"] == {"a.txt": 0}


async def test_a_message_without_parts_is_stored_as_it_is(serve: Serve) -> None:
    server = await serve(scripted("polite", ["hello", "hello"]))
    path = await server.new_session("polite")
    for message in ({"parts": []}, {"role": "user", "parts": []}):
        reply = await server.run("polite", None, newMessage=message)
        assert reply.status_code == 200, reply.text
    assert authors((await server.client.get(path)).json()["events"]) == ["user", "polite", "user", "polite"]
