"""Exported spans of each kind, against the names of OpenTelemetry's semantic conventions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from opentelemetry.semconv._incubating.attributes import (
    error_attributes,
    gen_ai_attributes,
    mcp_attributes,
    session_attributes,
    user_attributes,
)
from opentelemetry.semconv._incubating.metrics import gen_ai_metrics

from greenroom.agents.llm_agent import LlmAgent
from greenroom.agents.remote_a2a.agent import RemoteA2aAgent
from greenroom.agents.workflow.workflow import Workflow
from greenroom.records.answer_metadata import GenerateContentResponseUsageMetadata
from greenroom.records.content import Content, FunctionCall, Part
from greenroom.records.generation import GenerateContentConfig
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from greenroom.telemetry import names
from greenroom.testing import ScriptedLiveModel, ScriptedModel
from greenroom.tools.functions.function_tool import FunctionTool
from greenroom.tools.mcp.connection_params import StreamableHTTPConnectionParams
from greenroom.tools.mcp.toolset import McpToolset
from tests.gates.test_traceparent import HEADERS, REQUESTS
from tests.server.agents import echo, last_text, scripted
from tests.server.conftest import Serve
from tests.server.live_client import talking
from tests.server.otlp_collector import Collector, collector, plain
from tests.server.serving import Serving, serving, until
from tests.tools.mcp.bookshop import make_server

__all__ = ["collector"]

METRICS = {
    "gen_ai.client.operation.duration",
    "gen_ai.client.operation.time_to_first_chunk",
    "gen_ai.client.token.usage",
    "gen_ai.invoke_agent.duration",
    "gen_ai.execute_tool.duration",
}
MODULES = (error_attributes, gen_ai_attributes, mcp_attributes, session_attributes, user_attributes)

OF_ALL = {"session.id", "user.id", "gen_ai.conversation.id"}
OF_AGENTS = {
    "gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.agent.name", "gen_ai.agent.id", "gen_ai.agent.description",
}  # fmt: skip
OF_MODEL_CALLS = {
    "gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.system", "gen_ai.agent.name", "gen_ai.agent.id",
    "gen_ai.request.model", "gcp.vertex.agent.invocation_id", "gcp.vertex.agent.session_id",
    "gcp.vertex.agent.event_id",
}  # fmt: skip
OF_TOOL_CALLS = {
    "gen_ai.operation.name", "gen_ai.tool.name", "gen_ai.tool.description", "gen_ai.tool.call.id",
    "gcp.vertex.agent.event_id", "gcp.vertex.agent.llm_request", "gcp.vertex.agent.llm_response",
    "gcp.vertex.agent.tool_call_args", "gcp.vertex.agent.tool_response",
}  # fmt: skip
TABLE: Mapping[str, tuple[set[str], set[str]]] = {
    "invocation": ({"gcp.vertex.agent.invocation_id"}, set()),
    "invoke_agent": (OF_AGENTS, set()),
    "invoke_workflow": ({"gen_ai.operation.name", "gen_ai.workflow.name"}, set()),
    "invoke_node": ({"gen_ai.operation.name"}, set()),
    "generate_content": (
        OF_MODEL_CALLS,
        {
            "gen_ai.request.temperature", "gen_ai.request.top_p", "gen_ai.request.max_tokens", "gen_ai.response.model",
            "gen_ai.response.finish_reasons", "gen_ai.response.time_to_first_chunk", "gen_ai.usage.input_tokens",
            "gen_ai.usage.output_tokens", "gen_ai.usage.cache_read.input_tokens",
            "gen_ai.usage.reasoning.output_tokens", "gcp.vertex.agent.llm_request", "gcp.vertex.agent.llm_response",
        },
    ),
    "execute_tool": (OF_TOOL_CALLS, {"gen_ai.tool.type", "mcp.method.name"}),
    "send_data": (
        {"gcp.vertex.agent.invocation_id", "gcp.vertex.agent.event_id", "gcp.vertex.agent.data"},
        set(),
    ),
}  # fmt: skip
"""By the first word of a span's name: the attributes that it has, besides those of all, and others that it may have."""


def constants(*modules: ModuleType) -> set[str]:
    return {value for module in modules for value in vars(module).values() if isinstance(value, str)}


def get_weather(city: str) -> str:
    """Weather of a city."""
    return f"blue over {city}"


def pay(amount: int) -> str:
    """Pays."""
    return f"paid {amount}"


def break_down() -> str:
    """Fails."""
    raise KeyError("secret words")


def desk_reply(request: LlmRequest) -> Any:
    """Does what the user's message names; says "done" to a response."""
    calls = {
        "weather": [FunctionCall(name="get_weather", args={"city": city}) for city in ("Oslo", "Rome")],
        "pay": [FunctionCall(name="pay", args={"amount": 5})],
        "help": [FunctionCall(name="transfer_to_agent", args={"agent_name": "helper"})],
        "book": [FunctionCall(name="count_books", args={"author": "Jane"})],
        "fail": [FunctionCall(name="break_down")],
        "invent": [FunctionCall(name="made_up")],
    }
    text = last_text(request)
    if text in calls:
        return calls[text]
    usage = GenerateContentResponseUsageMetadata(
        prompt_token_count=7, candidates_token_count=3, thoughts_token_count=2, cached_content_token_count=5
    )
    content = Content(role="model", parts=[Part(text="done")])
    return LlmResponse(content=content, usage_metadata=usage, finish_reason="STOP", model_version="scripted-001")


def flow() -> Workflow:
    def read_order(node_input: str) -> str:
        return node_input

    return Workflow(name="flow", edges=[("START", read_order, scripted("packer", "Packed."))])


async def run_each_kind(server: Serving, peer: Serving) -> int:
    """Runs tools, also in parallel, of an MCP server and made up; a transfer, a resumed approval, an error, a workflow,
    an agent on another server, each gate, and a live run. Returns the number of traces.
    """
    for app in ("bank", "flow", "remote", "desk"):
        await server.new_session(app)

    for message in ("weather", "invent", "book", "help"):
        await server.new_session("bank", session=message)
        reply = await server.run("bank", message, sessionId=message)
        assert reply.status_code == 200, reply.text

    asked = (await server.run("bank", "pay")).json()
    request_id = asked[1]["content"]["parts"][0]["functionCall"]["id"]
    response = {"id": request_id, "name": "adk_request_confirmation", "response": {"confirmed": True}}
    answer = {"role": "user", "parts": [{"functionResponse": response}]}
    where = {"appName": "bank", "userId": "ann", "sessionId": "s-1"}
    answered = await server.client.post("/run", json={**where, "newMessage": answer})
    assert "paid 5" in answered.text, answered.text

    assert (await server.run("bank", "fail")).status_code == 500
    assert (await server.run("flow", "tea")).status_code == 200
    assert (await server.run("remote", "hello")).status_code == 200
    for path, body in REQUESTS.values():
        reply = await peer.client.post(path, json=body, headers=HEADERS)
        assert reply.status_code == 200, reply.text

    for _ in range(2):  # the second connection gets the history
        async with talking(server.port) as client:
            await client.say("weather?")
            await client.turn()
            await client.send({"close": True})
            await client.closed()

    return 4 + 2 + 1 + 1 + 2 + len(REQUESTS) + 2


async def collect(serve: Serve, collector: Collector, **settings: Any) -> list[Span]:
    peer = await serve(echo(), gates=tuple(REQUESTS))
    async with serving(make_server().streamable_http_app()) as bookshop:  # pyright: ignore[reportArgumentType]
        books = McpToolset(
            connection_params=StreamableHTTPConnectionParams(f"{bookshop.url}/mcp", timeout=30),
            tool_filter=["count_books"],
        )
        bank = LlmAgent(
            name="bank",
            description="Knows all",
            model=ScriptedModel(desk_reply),
            tools=[get_weather, FunctionTool(pay, require_confirmation=True), break_down, books],
            sub_agents=[scripted("helper", "I help.")],
            generate_content_config=GenerateContentConfig(temperature=0.5, top_p=0.9, max_output_tokens=99),
        )
        live = LlmAgent(
            name="desk",
            model=ScriptedLiveModel([FunctionCall(name="get_weather", args={"city": "Oslo"}), "It is blue.", "Yes."]),
            tools=[get_weather],
        )
        remote = RemoteA2aAgent("remote", f"{peer.url}/a2a/echo/.well-known/agent-card.json")
        server = await serve(bank, live, flow(), remote, **settings)
        traces = await run_each_kind(server, peer)
        await until(lambda: sum(span.name == "invocation" for span in collector.spans) == traces)
        return collector.spans


async def test_each_span_has_the_attributes_of_its_kind(serve: Serve, collector: Collector) -> None:
    spans = await collect(serve, collector)

    seen: set[str] = set()
    wrong: list[tuple[str, set[str], set[str]]] = []
    for span in spans:
        kind = span.name.partition(" ")[0]
        seen.add(kind)
        always, sometimes = TABLE[kind]
        required = OF_ALL | always | ({"error.type"} if span.status.code == Status.STATUS_CODE_ERROR else set())
        found = set(plain(span))
        if not required <= found <= required | sometimes:
            wrong.append((span.name, required - found, found - required - sometimes))
        assert "" not in (plain(span)[name] for name in ("session.id", "user.id"))
    assert wrong == []
    assert seen == TABLE.keys()

    # Names and values are those of the conventions, or ADK's own.
    conventional = constants(*MODULES)
    names_found = {name for span in spans for name in plain(span)}
    assert {name for name in names_found - conventional if not name.startswith("gcp.vertex.agent.")} == set()
    operations = {plain(span).get("gen_ai.operation.name") for span in spans} - {None}
    assert operations - {each.value for each in vars(gen_ai_attributes)["GenAiOperationNameValues"]} == {"invoke_node"}


def named(spans: Sequence[Span], name: str, **values: str) -> Span:
    """The first span of that name with these values of attributes, whose dots are written `_`."""
    for span in spans:
        found = {key.replace(".", "_"): value for key, value in plain(span).items()}
        if span.name == name and values.items() <= found.items():
            return span
    raise LookupError(name)


async def test_names_kinds_and_values_are_those_of_the_conventions(
    serve: Serve, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "otlp")
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "100")
    spans = await collect(serve, collector, traced_content="everywhere")

    kinds = {span.name: span.kind for span in spans}
    clients = {name for name, kind in kinds.items() if kind == Span.SPAN_KIND_CLIENT}
    assert clients == {"generate_content scripted", "generate_content scripted-live", "invoke_agent remote"}
    assert {kinds[name] for name in kinds.keys() - clients} == {Span.SPAN_KIND_INTERNAL}

    weather = {"session_id": "weather", "user_id": "ann", "gen_ai_conversation_id": "weather"}
    agent = plain(named(spans, "invoke_agent bank", **weather))
    assert {name: value for name, value in agent.items() if not name.endswith("messages")} == {
        "session.id": "weather",
        "user.id": "ann",
        "gen_ai.conversation.id": "weather",
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": "ScriptedModel",
        "gen_ai.agent.name": "bank",
        "gen_ai.agent.id": "bank/bank",
        "gen_ai.agent.description": "Knows all",
    }
    call = plain(named(spans, "generate_content scripted", **weather, gen_ai_response_model="scripted-001"))
    expected = {
        "gen_ai.operation.name": "generate_content",
        "gen_ai.provider.name": "ScriptedModel",
        "gen_ai.system": "gcp.vertex.agent",
        "gen_ai.request.model": "scripted",
        "gen_ai.response.model": "scripted-001",
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.top_p": 0.9,
        "gen_ai.request.max_tokens": 99,
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.usage.cache_read.input_tokens": 5,
        "gen_ai.usage.reasoning.output_tokens": 2,
    }
    assert {name: call.get(name) for name in expected} == expected
    assert 0 < call["gen_ai.response.time_to_first_chunk"] < 5
    assert json.loads(call["gen_ai.input.messages"])[0] == {
        "role": "user",
        "parts": [{"type": "text", "content": "weather"}],
    }
    assert json.loads(call["gen_ai.output.messages"]) == [
        {"role": "assistant", "parts": [{"type": "text", "content": "done"}], "finish_reason": "stop"}
    ]
    assert "get_weather" in {each["name"] for each in json.loads(call["gen_ai.tool.definitions"])}

    for name in ("invocation", "invoke_agent bank"):
        conversation = plain(named(spans, name, **weather))
        assert json.loads(conversation["gen_ai.input.messages"])[0]["parts"] == [{"type": "text", "content": "weather"}]
        assert json.loads(conversation["gen_ai.output.messages"])[0] == {
            "role": "assistant",
            "parts": [{"type": "text", "content": "done"}],
        }
    assert [message["role"] for message in json.loads(call["gen_ai.input.messages"])] == ["user", "assistant", "tool"]

    tool = plain(named(spans, "execute_tool get_weather", **weather))
    assert json.loads(tool["gen_ai.tool.call.arguments"]) == {"city": "Oslo"}
    assert json.loads(tool["gen_ai.tool.call.result"]) == {"result": "blue over Oslo"}
    of_mcp = plain(named(spans, "execute_tool count_books"))["mcp.method.name"]
    assert of_mcp == vars(mcp_attributes)["McpMethodNameValues"].TOOLS_CALL.value

    paid = [plain(span)["session.id"] for span in spans if span.name == "execute_tool pay"]
    assert paid == ["s-1", "s-1"]  # asked for, and made after the approval
    failed = named(spans, "execute_tool break_down")
    assert failed.status.code == Status.STATUS_CODE_ERROR
    assert plain(failed)["error.type"] == "KeyError"

    def errors() -> dict[Any, Any]:
        """The tools' errors, as far as they have been exported."""
        points = collector.metrics["gen_ai.execute_tool.duration"].histogram.data_points
        return {plain(point)["gen_ai.tool.name"]: plain(point).get("error.type") for point in points}

    await until(lambda: set(collector.metrics) >= METRICS)
    await until(lambda: {"break_down", "get_weather", "(unknown)"} <= errors().keys())
    for name, metric in collector.metrics.items():
        assert metric.unit == ("{token}" if name == "gen_ai.client.token.usage" else "s")
        for point in metric.histogram.data_points:
            assert point.count > 0
            assert not {"session.id", "user.id", "gen_ai.conversation.id"} & plain(point).keys()

    usage = {
        plain(point)["gen_ai.token.type"]: (point.count, point.sum)
        for point in collector.metrics["gen_ai.client.token.usage"].histogram.data_points
        if plain(point).get("gen_ai.response.model") == "scripted-001"
    }
    calls = usage["input"][0]
    assert usage == {"input": (calls, 7 * calls), "output": (calls, 5 * calls)}
    assert errors()["break_down"] == "KeyError"
    assert errors()["get_weather"] is None
    assert errors()["(unknown)"] == "ToolNotFound"


def test_the_names_of_metrics_and_attributes_are_those_of_the_conventions() -> None:
    conventional = constants(*MODULES, gen_ai_metrics)
    ours = {value for name, value in vars(names).items() if name.isupper() and value.startswith(("gen_ai.", "mcp."))}
    # These two are in the newer repository of the conventions for generative AI, and ADK's.
    assert ours - conventional == {"gen_ai.invoke_agent.duration", "gen_ai.execute_tool.duration"}
