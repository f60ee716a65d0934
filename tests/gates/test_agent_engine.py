"""Agent Engine's endpoints: what google-adk 2.13's server answered to the same requests."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from greenroom import LlmAgent, ToolContext, types
from greenroom.records.content import FunctionCall
from greenroom.records.model_exchange import LlmRequest
from tests.server.agents import echo, last_text, scripted
from tests.server.conftest import Serve
from tests.server.serving import Serving


async def query(server: Serving, class_method: str, **given: Any) -> Any:
    reply = await server.client.post("/api/reasoning_engine", json={"class_method": class_method, "input": given})
    assert reply.status_code == 200, reply.text
    return reply.json()["output"]


async def stream(server: Serving, class_method: str, **given: Any) -> list[Any]:
    reply = await server.client.post(
        "/api/stream_reasoning_engine", json={"class_method": class_method, "input": given}
    )
    assert reply.status_code == 200, reply.text
    assert reply.headers["content-type"] == "application/json"
    return [json.loads(line) for line in reply.text.splitlines()]


async def refused(server: Serving, path: str, body: Any) -> httpx.Response:
    reply = await server.client.post(path, json=body)
    assert reply.status_code in (400, 404, 422), reply.text
    return reply


@pytest.mark.parametrize("prefix", ["", "async_"])
async def test_sessions(serve: Serve, prefix: str) -> None:
    server = await serve(echo(), gates=("agent_engine",))
    made = await query(server, f"{prefix}create_session", user_id="ann", session_id="s", state={"a": 1})
    assert made == {
        "id": "s", "app_name": "echo", "user_id": "ann", "state": {"a": 1}, "events": [],
        "last_update_time": made["last_update_time"],
    }  # fmt: skip
    found = await query(server, f"{prefix}get_session", user_id="ann", session_id="s")
    assert (found["appName"], found["userId"], found["state"]) == ("echo", "ann", {"a": 1})
    listed = await query(server, f"{prefix}list_sessions", user_id="ann")
    assert [one["id"] for one in listed["sessions"]] == ["s"]
    assert await query(server, f"{prefix}delete_session", user_id="ann", session_id="s") is None
    body = {"class_method": f"{prefix}get_session", "input": {"user_id": "ann", "session_id": "s"}}
    assert (await refused(server, "/api/reasoning_engine", body)).status_code == 404


@pytest.mark.parametrize("method", ["stream_query", "async_stream_query"])
async def test_events_are_lines_in_adks_spelling(serve: Serve, method: str) -> None:
    server = await serve(echo(), gates=("agent_engine",))
    await query(server, "create_session", user_id="ann", session_id="s")
    [event] = await stream(server, method, user_id="ann", session_id="s", message="hi")
    assert event["content"] == {"parts": [{"text": "You said hi"}], "role": "model"}
    assert event["invocation_id"].startswith("e-")
    assert {"author", "id", "timestamp", "actions"} <= event.keys()
    content = {"role": "user", "parts": [{"text": "again"}]}
    config = {"streaming_mode": "SSE", "max_llm_calls": 3}
    events = await stream(server, method, user_id="ann", session_id="s", message=content, run_config=config)
    assert [one.get("partial") for one in events] == [True] * (len(events) - 1) + [None]
    assert events[-1]["content"]["parts"][0]["text"] == "You said again"
    found = await query(server, "get_session", user_id="ann", session_id="s")
    assert [one["author"] for one in found["events"]] == ["user", "echo"] * 2


def history(request: LlmRequest) -> str:
    return " | ".join(content.text() for content in request.contents)


async def test_a_session_of_given_events_is_deleted_at_the_end(serve: Serve) -> None:
    server = await serve(scripted("echo", history), gates=("agent_engine",))
    events = [
        {"author": "user", "content": {"role": "user", "parts": [{"text": "one"}]}},
        {"author": "echo", "content": {"role": "model", "parts": [{"text": "two"}]}},
    ]
    [event] = await stream(server, "async_stream_query", user_id="ann", message="three", session_events=events)
    assert event["content"]["parts"][0]["text"] == "one | two | three"
    assert await query(server, "list_sessions", user_id="ann") == {"sessions": []}
    [event] = await stream(server, "async_stream_query", user_id="ann", message="four")
    [kept] = (await query(server, "list_sessions", user_id="ann"))["sessions"]
    found = await query(server, "get_session", user_id="ann", session_id=kept["id"])
    assert len(found["events"]) == 2


async def test_a_run_with_artifacts_and_tokens_of_the_user(serve: Serve) -> None:
    async def read(tool_context: ToolContext) -> str:
        part = await tool_context.load_artifact("notes.txt")
        await tool_context.save_artifact("copy.txt", types.Part(text="copied"))
        return f"{part.text if part else None} {tool_context.state['temp:mail']}"

    def script(request: LlmRequest) -> Any:
        response = request.contents[-1].parts[-1].function_response if request.contents[-1].parts else None
        return FunctionCall(name="read") if response is None else str((response.response or {})["result"])

    server = await serve(scripted("echo", script, tools=[read]), gates=("agent_engine",))
    asked = {
        "message": {"role": "user", "parts": [{"text": "read"}]},
        "user_id": "ann",
        "session_id": "unknown",
        "authorizations": {"mail": {"accessToken": "a-token"}},
        "artifacts": [{"file_name": "notes.txt", "versions": [{"version": "0", "data": {"text": "noted"}}]}],
    }
    replies = await stream(server, "streaming_agent_run_with_events", request_json=json.dumps(asked))
    assert [list(one) for one in replies] == [
        ["events", "session_id"],
        ["events", "session_id", "artifacts"],
        ["events", "session_id"],
    ]
    assert replies[-1]["events"][0]["content"]["parts"] == [{"text": "noted a-token"}]
    [artifact] = replies[1]["artifacts"]
    assert (artifact["file_name"], artifact["versions"][0]["data"]["text"]) == ("copy.txt", "copied")
    session = await query(server, "get_session", user_id="ann", session_id=replies[0]["session_id"])
    assert session["state"] == {"agent_engine:upstream_session_id": "unknown"}
    del asked["session_id"]
    await stream(server, "streaming_agent_run_with_events", request_json=json.dumps(asked))
    assert len((await query(server, "list_sessions", user_id="ann"))["sessions"]) == 1


async def test_memory_and_artifacts(serve: Serve) -> None:
    server = await serve(echo(), gates=("agent_engine",))
    await query(server, "create_session", user_id="ann", session_id="s")
    await stream(server, "stream_query", user_id="ann", session_id="s", message="remember the tram")
    session = await query(server, "get_session", user_id="ann", session_id="s")
    await query(server, "async_add_session_to_memory", session={**session, "events": []})
    found = await query(server, "async_search_memory", user_id="ann", query="tram")
    assert "remember the tram" in json.dumps(found["memories"])
    where = {"user_id": "ann", "session_id": "s", "filename": "f.txt"}
    assert await query(server, "async_save_artifact", **where, artifact="hello") == 0
    assert await query(server, "async_save_artifact", **where, artifact={"text": "bye"}) == 1
    assert (await query(server, "async_load_artifact", **where, version=0))["text"] == "hello"
    assert await query(server, "async_list_artifact_keys", user_id="ann", session_id="s") == ["f.txt"]
    assert await query(server, "async_list_versions", **where) == [0, 1]
    assert [one["version"] for one in await query(server, "async_list_artifact_versions", **where)] == [0, 1]
    assert (await query(server, "async_get_artifact_version", **where))["version"] == 1
    await query(server, "async_delete_artifact", **where)
    assert await query(server, "async_load_artifact", **where) is None


async def test_a_failed_run_ends_with_its_error(serve: Serve) -> None:
    def fails(request: LlmRequest) -> str:
        raise RuntimeError(last_text(request))

    server = await serve(scripted("echo", fails), gates=("agent_engine",))
    *_, error = await stream(server, "stream_query", user_id="ann", message="broken")
    assert error["error_code"]
    assert "broken" in error["error_message"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("reasoning_engine", {}),
        ("reasoning_engine", {"class_method": "stream_query", "input": {"user_id": "ann", "message": "hi"}}),
        ("reasoning_engine", {"class_method": "clone"}),
        ("reasoning_engine", {"class_method": "get_session", "input": {"user_id": "ann"}}),
        ("reasoning_engine", {"class_method": "create_session", "input": {"user_id": "ann", "ttl": "60s"}}),
        ("reasoning_engine", {"class_method": "async_load_artifact", "input": {"user_id": "ann", "filename": "f"}}),
        ("stream_reasoning_engine", {"class_method": "get_session"}),
        ("stream_reasoning_engine", {"class_method": "stream_query", "input": {"user_id": "ann", "message": 5}}),
        (
            "stream_reasoning_engine",
            {
                "class_method": "stream_query",
                "input": {"user_id": "ann", "message": "", "run_config": {"labels": {"a": "b"}}},
            },
        ),
        (
            "stream_reasoning_engine",
            {"class_method": "streaming_agent_run_with_events", "input": {"request_json": "{"}},
        ),
        (
            "stream_reasoning_engine",
            {"class_method": "streaming_agent_run_with_events", "input": {"request_json": "[" * 1000}},
        ),
    ],
)
async def test_wrong_requests_are_refused(serve: Serve, path: str, body: Any) -> None:
    server = await serve(echo(), gates=("agent_engine",))
    assert (await refused(server, f"/api/{path}", body)).json()["detail"]
    assert await query(server, "list_sessions", user_id="ann") == {"sessions": []}


async def test_one_of_several_apps_is_named_by_the_setting(serve: Serve) -> None:
    agents: list[LlmAgent] = [echo(), echo("other")]
    server = await serve(*agents, gates=("agent_engine",), default_app="other")
    assert (await query(server, "create_session", user_id="ann"))["app_name"] == "other"
    server = await serve(*agents, gates=("agent_engine",))
    body = {"class_method": "create_session", "input": {"user_id": "ann"}}
    assert (await refused(server, "/api/reasoning_engine", body)).status_code == 400
