"""The debug endpoints: every span of a run, in the shape that ADK's web UI demands."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from greenroom.agents.workflows import ParallelAgent, SequentialAgent
from greenroom.apps.loader import StaticAppLoader
from greenroom.event_streams.stream import RunEnded
from greenroom.records.answer_metadata import GenerateContentResponseUsageMetadata
from greenroom.records.content import Content, FunctionCall, Part
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from greenroom.records.run import AgentRunRequest
from greenroom.runs.engine import run_store_beside
from greenroom.runs.in_process import InProcessRunEngine
from greenroom.server.application import create_app
from greenroom.sessions.in_memory import InMemorySessionService
from greenroom.sessions.service import BaseSessionService
from greenroom.sessions.sqlite import SqliteSessionService
from greenroom.telemetry.span import current_traceparent
from greenroom.tools.functions.function_tool import LongRunningFunctionTool
from greenroom.traces.sql import SqliteTraceStore
from greenroom.traces.store import InMemoryTraceStore, TraceStore
from tests.server.agents import HeldModel, echo, scripted
from tests.server.conftest import Serve, Store
from tests.server.security.keys import Keys, bearer
from tests.server.serving import Json, Serving, serving

SESSION_TRACE = "/dev/apps/{app}/debug/trace/session/{session}"


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def store(request: pytest.FixtureRequest) -> Store:
    return request.param


async def spans_of(server: Serving, app: str, session: str = "s-1") -> list[Json]:
    reply = await server.client.get(SESSION_TRACE.format(app=app, session=session))
    assert reply.status_code == 200, reply.text
    spans: list[Json] = reply.json()
    for span in spans:
        check_for_ui(span)
    return spans


def check_for_ui(span: Json) -> None:
    """The rules of ADK's UI; it throws the whole answer away when one span breaks one."""
    fields = {"name", "trace_id", "span_id", "parent_span_id", "start_time", "end_time", "attributes", "logs"}
    assert set(span) == fields
    for log in span["logs"]:
        assert log["event_name"] == "gen_ai.client.inference.operation.details"
    assert re.fullmatch("[0-9a-f]{32}", span["trace_id"])
    assert re.fullmatch("[0-9a-f]{16}", span["span_id"])
    assert 1.7e18 < span["start_time"] <= span["end_time"]
    attributes = span["attributes"]
    assert None not in attributes.values()
    operation = attributes.get("gen_ai.operation.name")
    if operation == "invoke_agent":
        assert isinstance(attributes["gen_ai.conversation.id"], str)
    if operation == "generate_content":
        assert isinstance(attributes["gcp.vertex.agent.event_id"], str)
        assert isinstance(attributes["gcp.vertex.agent.invocation_id"], str)
    for name in ("llm_request", "llm_response", "tool_call_args", "tool_response"):
        value = attributes.get(f"gcp.vertex.agent.{name}", "{}")
        assert isinstance(value, str)
        assert value == "N/A" or json.loads(value) is not None


def tree(spans: list[Json]) -> list[tuple[str, str | None]]:
    """Name of each span, and of its parent."""
    names = {span["span_id"]: span["name"] for span in spans}
    return [(span["name"], names.get(span["parent_span_id"])) for span in spans]


def named(spans: list[Json], name: str) -> list[Json]:
    return [span for span in spans if span["name"] == name]


def get_weather(city: str) -> dict[str, Any]:
    """Weather of a city."""
    return {"city": city, "temp": 18}


def fail() -> str:
    """Always fails."""
    raise KeyError("secret words")


def answers_calls(*calls: FunctionCall) -> Any:
    def answer(request: LlmRequest) -> Any:
        parts = request.contents[-1].parts or []
        if any(part.function_response is not None for part in parts):
            usage = GenerateContentResponseUsageMetadata(
                prompt_token_count=7, candidates_token_count=3, thoughts_token_count=2, cached_content_token_count=5
            )
            content = Content(role="model", parts=[Part(text="done")])
            return LlmResponse(content=content, usage_metadata=usage, finish_reason="STOP")
        return list(calls)

    return answer


async def test_each_step_of_a_run_is_a_span_under_the_one_that_took_it(serve: Serve) -> None:
    agent = scripted(
        "weather", answers_calls(FunctionCall(id="c1", name="get_weather", args={"city": "Oslo"})), tools=[get_weather]
    )
    agent.description = "Knows the weather"
    server = await serve(agent)
    await server.new_session("weather")
    events = (await server.run("weather", "How is Oslo?")).json()
    spans = await spans_of(server, "weather")
    assert tree(spans) == [
        ("invocation", None),
        ("invoke_agent weather", "invocation"),
        ("call_llm", "invoke_agent weather"),
        ("execute_tool get_weather", "invoke_agent weather"),
        ("call_llm", "invoke_agent weather"),
    ]
    assert len({span["trace_id"] for span in spans}) == 1
    root, agent_span, first, tool, last = (span["attributes"] for span in spans)
    run_id = events[0]["invocationId"]
    assert root == {"gcp.vertex.agent.invocation_id": run_id, "gen_ai.conversation.id": "s-1"}
    assert agent_span == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "weather",
        "gen_ai.agent.description": "Knows the weather",
        "gen_ai.conversation.id": "s-1",
    }
    request = json.loads(first["gcp.vertex.agent.llm_request"])
    response = json.loads(first["gcp.vertex.agent.llm_response"])
    [log] = spans[2]["logs"]
    assert log["attributes"] == {
        "gen_ai.system_instructions": [{"type": "text", "content": request["config"]["systemInstruction"]}],
        "gen_ai.input.messages": [{"role": "user", "parts": [{"type": "text", "content": "How is Oslo?"}]}],
        "gen_ai.tool.definitions": [
            {
                "type": "function",
                "name": "get_weather",
                "description": "Weather of a city.",
                "parameters": request["config"]["tools"][0]["functionDeclarations"][0]["parametersJsonSchema"],
            }
        ],
        "gen_ai.output.messages": [
            {
                "role": "assistant",
                "parts": [{"type": "tool_call", "id": "c1", "name": "get_weather", "arguments": {"city": "Oslo"}}],
                "finish_reason": "stop",
            }
        ],
    }
    assert spans[4]["logs"][0]["attributes"]["gen_ai.input.messages"][-1]["parts"] == [
        {"type": "tool_call_response", "id": "c1", "response": {"city": "Oslo", "temp": 18}}
    ]
    assert request["contents"] == [{"parts": [{"text": "How is Oslo?"}], "role": "user"}]
    assert request["config"]["tools"][0]["functionDeclarations"][0]["name"] == "get_weather"
    assert response["content"]["parts"][0]["functionCall"]["args"] == {"city": "Oslo"}
    assert first["gcp.vertex.agent.event_id"] == events[0]["id"]
    assert tool == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "get_weather",
        "gen_ai.tool.description": "Weather of a city.",
        "gen_ai.tool.type": "FunctionTool",
        "gen_ai.tool.call.id": "c1",
        "gcp.vertex.agent.event_id": events[1]["id"],
        "gcp.vertex.agent.llm_request": "{}",
        "gcp.vertex.agent.llm_response": "{}",
        "gcp.vertex.agent.tool_call_args": '{"city":"Oslo"}',
        "gcp.vertex.agent.tool_response": '{"city":"Oslo","temp":18}',
    }
    content = ("gcp.vertex.agent.llm_request", "gcp.vertex.agent.llm_response")
    assert {name: value for name, value in last.items() if name not in content} == {
        "gen_ai.operation.name": "generate_content",
        "gen_ai.system": "gcp.vertex.agent",
        "gen_ai.request.model": "scripted",
        "gen_ai.agent.name": "weather",
        "gen_ai.conversation.id": "s-1",
        "gcp.vertex.agent.session_id": "s-1",
        "gcp.vertex.agent.invocation_id": run_id,
        "gcp.vertex.agent.event_id": events[2]["id"],
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.usage.cache_read.input_tokens": 5,
        "gen_ai.usage.reasoning.output_tokens": 2,
    }


@pytest.mark.parametrize("prefix", ["/dev/apps/echo/debug/trace/", "/debug/trace/"])
async def test_an_events_trace_is_the_attributes_of_its_span(server: Serving, prefix: str) -> None:
    await server.new_session("echo")
    frames = await server.sse("echo", "hi", streaming=True)
    events = [frame.data for frame in frames]
    reply = await server.client.get(prefix + events[-1]["id"])
    assert reply.status_code == 200
    [call] = named(await spans_of(server, "echo"), "call_llm")
    assert reply.json() == {**call["attributes"], "trace_id": call["trace_id"], "span_id": call["span_id"]}


@pytest.mark.parametrize("path", ["/dev/apps/echo/debug/trace/", "/debug/trace/"])
async def test_what_has_no_trace_is_not_found(server: Serving, path: str) -> None:
    session = await server.new_session("echo")
    await server.run("echo")
    user_event = (await server.client.get(session)).json()["events"][0]["id"]
    assert (await server.client.get(f"{path}session/unknown")).json() == []
    for event_id in (user_event, "no-such-event"):
        reply = await server.client.get(path + event_id)
        assert reply.status_code == 404
        assert reply.headers["content-type"] == "application/problem+json"
        assert reply.json()["detail"] == "Trace not found"


async def test_traces_belong_to_their_app(serve: Serve) -> None:
    server = await serve(echo("one"), echo("two"))
    await server.new_session("one")
    [event] = (await server.run("one")).json()
    assert len(await spans_of(server, "one")) == 3
    assert await spans_of(server, "two") == []
    assert (await server.client.get(f"/dev/apps/two/debug/trace/{event['id']}")).status_code == 404
    assert len((await server.client.get("/debug/trace/session/s-1")).json()) == 3


async def test_a_session_has_the_spans_of_all_its_runs_and_takes_them_with_it(server: Serving) -> None:
    session = await server.new_session("echo")
    [first] = (await server.run("echo", "one")).json()
    await server.run("echo", "two")
    spans = await spans_of(server, "echo")
    assert [span["name"] for span in spans] == ["invocation", "invoke_agent echo", "call_llm"] * 2
    assert len({span["trace_id"] for span in spans}) == 2
    await server.client.delete(session)
    assert await spans_of(server, "echo") == []
    assert (await server.client.get(f"/dev/apps/echo/debug/trace/{first['id']}")).status_code == 404


async def test_a_run_joins_its_callers_trace_and_shows_its_root_without_parent(server: Serving) -> None:
    await server.new_session("echo")
    trace_id = "0af7651916cd43dd8448eb211c80319c"
    await server.run("echo", headers={"traceparent": f"00-{trace_id}-b7ad6b7169203331-01"})
    spans = await spans_of(server, "echo")
    assert {span["trace_id"] for span in spans} == {trace_id}
    assert spans[0]["parent_span_id"] is None


NO_TRACEPARENTS = [
    "nonsense",
    "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "00-00000000000000000000000000000000-b7ad6b7169203331-01",
    "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
    "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
    "00-0AF7651916CD43DD8448EB211C80319C-B7AD6B7169203331-01",
]


async def test_a_traceparent_that_is_none_is_ignored(server: Serving) -> None:
    for number, header in enumerate(NO_TRACEPARENTS):
        session_id = f"s-{number}"
        await server.new_session("echo", session=session_id)
        reply = await server.run("echo", headers={"traceparent": header}, sessionId=session_id)
        assert reply.status_code == 200
        spans = await spans_of(server, "echo", session_id)
        assert spans != []
        assert "0af7651916cd43dd8448eb211c80319c" not in {span["trace_id"] for span in spans}, header


async def test_a_tool_reads_the_trace_it_runs_in(serve: Serve) -> None:
    seen: list[str | None] = []

    async def call_out() -> str:
        """Calls another service."""
        seen.append(current_traceparent())
        return "ok"

    def call_out_in_a_thread() -> str:
        """Calls another service."""
        seen.append(current_traceparent())
        return "ok"

    calls = (FunctionCall(name="call_out"), FunctionCall(name="call_out_in_a_thread"))
    server = await serve(scripted("caller", answers_calls(*calls), tools=[call_out, call_out_in_a_thread]))
    await server.new_session("caller")
    await server.run("caller", headers={"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"})
    spans = await spans_of(server, "caller")
    expected = {
        f"00-{span['trace_id']}-{span['span_id']}-00"
        for span in spans
        if span["name"] in ("execute_tool call_out", "execute_tool call_out_in_a_thread")
    }
    assert len(expected) == 2
    assert set(seen) == expected
    assert current_traceparent() is None


async def test_calls_side_by_side_have_a_span_each_and_one_for_their_event(serve: Serve) -> None:
    calls = [FunctionCall(id=city, name="get_weather", args={"city": city}) for city in ("Oslo", "Rome")]
    server = await serve(scripted("weather", answers_calls(*calls), tools=[get_weather]))
    await server.new_session("weather")
    events = (await server.run("weather")).json()
    spans = await spans_of(server, "weather")
    assert [span["attributes"]["gen_ai.tool.call.id"] for span in named(spans, "execute_tool get_weather")] == [
        "Oslo",
        "Rome",
    ]
    [merged] = named(spans, "execute_tool (merged)")
    assert merged["attributes"]["gen_ai.tool.call.id"] == events[1]["id"]
    assert merged["attributes"]["gcp.vertex.agent.tool_call_args"] == "N/A"
    assert json.loads(merged["attributes"]["gcp.vertex.agent.tool_response"])["id"] == events[1]["id"]
    reply = await server.client.get(f"/dev/apps/weather/debug/trace/{events[1]['id']}")
    assert reply.json()["span_id"] == merged["span_id"]


async def test_what_fails_is_marked_all_the_way_up_by_its_class(serve: Serve) -> None:
    server = await serve(scripted("failing", answers_calls(FunctionCall(name="fail")), tools=[fail]))
    await server.new_session("failing")
    assert (await server.run("failing")).status_code == 500
    errors = {span["name"]: span["attributes"].get("error.type") for span in await spans_of(server, "failing")}
    assert errors == {
        "invocation": "KeyError",
        "invoke_agent failing": "KeyError",
        "call_llm": None,
        "execute_tool fail": "KeyError",
    }


async def test_a_call_of_a_tool_that_is_none_is_a_failed_span(serve: Serve) -> None:
    server = await serve(scripted("lost", answers_calls(FunctionCall(name="nothing")), tools=[get_weather]))
    await server.new_session("lost")
    await server.run("lost")
    [call] = named(await spans_of(server, "lost"), "execute_tool nothing")
    assert call["attributes"]["error.type"] == "ToolNotFound"


async def test_what_is_not_known_is_left_out(serve: Serve) -> None:
    """The web UI takes no null: the tool gives nothing for the time being, the model counts only what it sees."""

    def wait_for_it() -> None:
        """Gives its result later."""

    usage = GenerateContentResponseUsageMetadata(prompt_token_count=7)
    content = Content(role="model", parts=[Part(function_call=FunctionCall(name="wait_for_it"))])
    reply = LlmResponse(content=content, usage_metadata=usage)
    server = await serve(scripted("waiter", [reply], tools=[LongRunningFunctionTool(wait_for_it)]))
    await server.new_session("waiter")
    await server.run("waiter")
    spans = await spans_of(server, "waiter")
    [call] = named(spans, "call_llm")
    assert {name for name in call["attributes"] if "usage" in name} == {
        "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens",
    }  # fmt: skip
    [tool] = named(spans, "execute_tool wait_for_it")
    assert tool["attributes"]["gcp.vertex.agent.tool_call_args"] == "{}"
    assert tool["attributes"]["gcp.vertex.agent.tool_response"] == "{}"


async def run_traced_by(traces: TraceStore, sessions: BaseSessionService, *texts: str) -> list[str]:
    """Runs the echo agent. Returns the ids of its answers."""
    engine = InProcessRunEngine(
        apps=StaticAppLoader([echo()]),
        run_store=run_store_beside(sessions),
        session_service=sessions,
        trace_listeners=[traces],
    )
    answers: list[str] = []
    for text in texts:
        message = Content(role="user", parts=[Part(text=text)])
        request = AgentRunRequest(app_name="echo", user_id="ann", session_id="s-1", new_message=message)
        _, attachment = await engine.start(request)
        assert attachment is not None
        items: list[Any] = []
        async with asyncio.timeout(5):
            while not items or not isinstance(items[-1], RunEnded):
                items += await attachment.next_batch()
        answers += [item.event.id for item in items[:-1] if item.event.author == "echo"]
    await engine.close()
    return answers


async def test_of_too_many_traces_the_oldest_are_dropped() -> None:
    sessions = InMemorySessionService()
    await sessions.create_session(app_name="echo", user_id="ann", session_id="s-1")
    traces = InMemoryTraceStore(most_traces=2)
    answers = await run_traced_by(traces, sessions, "one", "two", "three")
    found = [await traces.of_event(answer, app_name="echo", user_id="ann") for answer in answers]
    assert [span is not None for span in found] == [False, True, True]


async def test_a_cancelled_run_has_all_its_spans_closed(serve: Serve) -> None:
    model = HeldModel()
    agent = scripted("held", "unused")
    agent.model = model
    server = await serve(agent)
    session = await server.new_session("held")
    body = {"newMessage": {"role": "user", "parts": [{"text": "hi"}]}, "streaming": True}
    run_id = (await server.client.post(session + "/runs", json=body)).json()["id"]
    model.let_go(1)
    async with asyncio.timeout(5):
        while not model.calls:
            await asyncio.sleep(0)
    await server.client.post(f"/runs/{run_id}/cancel")
    spans = await spans_of(server, "held")
    assert [span["name"] for span in spans] == ["invocation", "invoke_agent held", "call_llm"]
    assert {span["attributes"]["error.type"] for span in spans} == {"CancelledError"}


async def test_agents_below_agents_nest(serve: Serve) -> None:
    team = SequentialAgent(
        name="team", sub_agents=[ParallelAgent(name="both", sub_agents=[echo("left"), echo("right")]), echo("last")]
    )
    server = await serve(team)
    await server.new_session("team")
    await server.run("team")
    assert set(tree(await spans_of(server, "team"))) == {
        ("invocation", None),
        ("invoke_agent team", "invocation"),
        ("invoke_agent both", "invoke_agent team"),
        ("invoke_agent left", "invoke_agent both"),
        ("invoke_agent right", "invoke_agent both"),
        ("invoke_agent last", "invoke_agent team"),
        ("call_llm", "invoke_agent left"),
        ("call_llm", "invoke_agent right"),
        ("call_llm", "invoke_agent last"),
    }


async def test_a_long_prompt_is_shown_by_its_end_and_without_files(serve: Serve) -> None:
    server = await serve(scripted("reader", lambda request: "ok " * 10_000))
    session = await server.new_session("reader")
    for _ in range(4):
        await server.run("reader", "hi")
    body: Json = {
        "appName": "reader",
        "userId": "ann",
        "sessionId": "s-1",
        "newMessage": {
            "parts": [{"text": "look"}, {"inlineData": {"mimeType": "image/png", "data": "AAAA" * 100_000}}]
        },
    }
    [event] = (await server.client.post("/run", json=body)).json()
    trace = (await server.client.get(f"/dev/apps/reader/debug/trace/{event['id']}")).json()
    text = trace["gcp.vertex.agent.llm_request"]
    assert len(text) <= 64 * 1024
    request = json.loads(text)
    assert request["contents"][-1] == {"parts": [{"text": "look"}], "role": "user"}
    stored = len((await server.client.get(session)).json()["events"]) - 1
    assert request["contentsLeftOut"] + len(request["contents"]) == stored
    assert len(request["contents"]) >= 2


@pytest.mark.parametrize(
    ("setting", "variable", "is_shown"),
    [
        (None, None, True),
        (None, "true", True),
        (None, "false", False),
        (None, "0", False),
        ("nowhere", "true", False),
        ("debug", "false", True),
    ],
)
async def test_what_was_said_is_shown_unless_switched_off(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, setting: str | None, variable: str | None, is_shown: bool
) -> None:
    monkeypatch.delenv("ADK_CAPTURE_MESSAGE_CONTENT_IN_SPANS", raising=False)
    if variable is not None:
        monkeypatch.setenv("ADK_CAPTURE_MESSAGE_CONTENT_IN_SPANS", variable)
    server = await serve(traced_content=setting)
    await server.new_session("echo")
    await server.run("echo", "the password")
    assert ("the password" in json.dumps(await spans_of(server, "echo"))) is is_shown
    [call] = named(await spans_of(server, "echo"), "call_llm")
    assert (call["attributes"]["gcp.vertex.agent.llm_request"] == "{}") is not is_shown
    assert bool(call["logs"]) is is_shown


async def test_two_users_with_the_same_session_id_are_kept_apart(serve: Serve, tmp_path: Path) -> None:
    keys = Keys(tmp_path / "keys.db")
    server = await serve(auth=keys.auth)
    as_user = {user: bearer(keys(user, "run", "read", "manage", "debug")) for user in ("ann", "bob")}
    spans: dict[str, list[Json]] = {}
    answers: dict[str, str] = {}
    for user, headers in as_user.items():
        server.client.headers.update(headers)
        await server.new_session("echo", user=user)
        answers[user] = (await server.run("echo", f"I am {user}", userId=user)).json()[-1]["id"]
    for user, headers in as_user.items():
        server.client.headers.update(headers)
        spans[user] = await spans_of(server, "echo")
        assert len(spans[user]) == 3
        for owner, event_id in answers.items():
            reply = await server.client.get(f"/dev/apps/echo/debug/trace/{event_id}")
            assert reply.status_code == (200 if owner == user else 404)
    assert not {span["span_id"] for span in spans["ann"]} & {span["span_id"] for span in spans["bob"]}


async def test_traces_survive_a_restart_and_the_oldest_go_first(tmp_path: Any) -> None:
    path = tmp_path / "sessions.db"
    async with serving(create_app(agents=[echo()], session_service=SqliteSessionService(path))) as server:
        await server.new_session("echo")
        await server.run("echo", "remember me")
    async with serving(create_app(agents=[echo()], session_service=SqliteSessionService(path))) as server:
        before = await spans_of(server, "echo")
        assert [span["name"] for span in before] == ["invocation", "invoke_agent echo", "call_llm"]
        assert "remember me" in before[-1]["attributes"]["gcp.vertex.agent.llm_request"]
    sessions = SqliteSessionService(path)
    small = SqliteTraceStore(path, max_rows=1)
    await run_traced_by(small, sessions, "again")
    after = await small.of_session("s-1", app_name="echo", user_id="ann")
    await small.close()
    await sessions.close()
    assert [span.name for span in after] == ["invocation", "invoke_agent echo", "call_llm"]
    assert after[0].start_time > before[-1]["end_time"]
