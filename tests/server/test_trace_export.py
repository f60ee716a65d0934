"""Traces as a collector gets them: OpenTelemetry's own exporter against a server that reads OTLP."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from greenroom.errors import ConfigurationError, MissingExtra
from greenroom.records.content import FunctionCall
from greenroom.server.inspection import wants_export
from greenroom.telemetry import span as spans
from tests.server.agents import scripted
from tests.server.conftest import Serve
from tests.server.otlp_collector import Collector, collector, plain
from tests.server.serving import until
from tests.server.test_traces import answers_calls, fail, get_weather, spans_of

__all__ = ["collector"]

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
CONTENT = ("llm_request", "llm_response", "tool_call_args", "tool_response")


def weather() -> Any:
    call = FunctionCall(id="c1", name="get_weather", args={"city": "Oslo"})
    return scripted("weather", answers_calls(call), tools=[get_weather])


async def arrived(collector: Collector, count: int) -> list[Span]:
    await until(lambda: len(collector.spans) >= count)
    return collector.spans


async def test_a_collector_gets_what_the_debug_endpoints_show(
    serve: Serve, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "weather-desk")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=blue")
    server = await serve(weather(), traced_content="nowhere")
    await server.new_session("weather")
    await server.run("weather", "How is Oslo?", headers={"traceparent": CALLER})
    sent = await arrived(collector, 5)
    shown = await spans_of(server, "weather")
    _, trace_id, caller_id, _ = CALLER.split("-")
    assert [
        {
            "name": "call_llm" if span.name.startswith("generate_content") else span.name,
            "trace_id": span.trace_id.hex(),
            "span_id": span.span_id.hex(),
            "parent_span_id": None if span.parent_span_id.hex() == caller_id else span.parent_span_id.hex(),
            "start_time": span.start_time_unix_nano,
            "end_time": span.end_time_unix_nano,
            "attributes": {name: value for name, value in plain(span).items() if name in each["attributes"]},
            "logs": [],  # content isn't traced
        }
        for span, each in zip(sent, shown, strict=True)
    ] == shown
    assert {span.trace_id.hex() for span in sent} == {trace_id}
    assert sent[0].parent_span_id.hex() == caller_id
    assert {span.status.code for span in sent} == {Status.STATUS_CODE_UNSET}
    path, headers, request = collector.requests[0]
    assert path == "/v1/traces"
    assert headers["x-tenant"] == "blue"
    assert headers["content-type"] == "application/x-protobuf"
    [resource] = request.resource_spans
    assert plain(resource.resource)["service.name"] == "weather-desk"  # type: ignore[arg-type]
    assert resource.scope_spans[0].scope.name == "gcp.vertex.agent"


@pytest.mark.parametrize("setting", [None, "debug", "nowhere", "everywhere"])
async def test_what_was_said_is_sent_only_when_it_may_be_seen_everywhere(
    serve: Serve, collector: Collector, setting: Any
) -> None:
    server = await serve(weather(), traced_content=setting)
    await server.new_session("weather")
    await server.run("weather", "How is Oslo?")
    sent = await arrived(collector, 5)
    values = [
        plain(span)[f"gcp.vertex.agent.{name}"]
        for span in sent
        for name in CONTENT
        if f"gcp.vertex.agent.{name}" in plain(span)
    ]
    assert values
    said = b"".join(request.SerializeToString() for _, _, request in collector.requests)
    if setting == "everywhere":
        assert b"How is Oslo?" in said
        assert b'"temp":18' in said
    else:
        assert set(values) == {"{}"}
        assert b"Oslo" not in said
        assert b"temp" not in said


async def test_what_failed_says_so_by_its_class_only(serve: Serve, collector: Collector) -> None:
    server = await serve(scripted("failing", answers_calls(FunctionCall(name="fail")), tools=[fail]))
    await server.new_session("failing")
    await server.run("failing")
    sent = await arrived(collector, 4)
    assert {span.name: (span.status.code, span.status.message) for span in sent} == {
        "invocation": (Status.STATUS_CODE_ERROR, "KeyError"),
        "invoke_agent failing": (Status.STATUS_CODE_ERROR, "KeyError"),
        "generate_content scripted": (Status.STATUS_CODE_UNSET, ""),
        "execute_tool fail": (Status.STATUS_CODE_ERROR, "KeyError"),
    }
    assert b"secret words" not in b"".join(request.SerializeToString() for _, _, request in collector.requests)


async def test_spans_that_a_tool_begins_are_children_of_its_call(serve: Serve, collector: Collector) -> None:
    kept = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(kept))
    tracer = provider.get_tracer("of a tool")

    def look() -> str:
        """Looks."""
        with tracer.start_as_current_span("looking"):
            return "seen"

    server = await serve(scripted("looker", answers_calls(FunctionCall(name="look")), tools=[look]))
    await server.new_session("looker")
    await server.run("looker")
    [call] = [span for span in await arrived(collector, 5) if span.name == "execute_tool look"]
    [looking] = kept.get_finished_spans()
    assert looking.parent is not None
    assert looking.context is not None
    assert f"{looking.parent.span_id:016x}" == call.span_id.hex()
    assert f"{looking.context.trace_id:032x}" == call.trace_id.hex()


async def test_a_trace_that_its_caller_does_not_sample_is_not_sent(serve: Serve, collector: Collector) -> None:
    server = await serve()
    await server.new_session("echo")
    await server.run("echo", headers={"traceparent": CALLER[:-2] + "00"})
    second = (await server.run("echo")).headers["x-run-id"]
    await arrived(collector, 3)
    runs = {plain(span).get("gcp.vertex.agent.invocation_id") for span in collector.spans}
    assert runs - {None} == {second}


@pytest.mark.parametrize(
    ("sampler", "argument", "sent"),
    [
        ("always_off", None, 0),
        ("always_on", None, 2),
        ("parentbased_always_on", None, 1),
        ("parentbased_always_off", None, 0),
        ("parentbased_traceidratio", "0.0", 0),
        ("traceidratio", "1.0", 2),
    ],
)
async def test_the_sampler_is_chosen_by_opentelemetrys_variables(
    serve: Serve, collector: Collector, monkeypatch: pytest.MonkeyPatch, sampler: str, argument: str | None, sent: int
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
    if argument is not None:
        monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", argument)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "600000")
    server = await serve()
    await server.new_session("echo")
    await server.run("echo", headers={"traceparent": CALLER[:-2] + "00"})
    await server.run("echo")
    server.stop()
    await until(lambda: spans.bridge is None)
    if sent:
        await arrived(collector, 3 * sent)
    assert len(collector.spans) == 3 * sent


async def test_what_is_left_is_sent_when_the_server_stops(
    serve: Serve, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "600000")
    server = await serve()
    assert spans.bridge is not None
    await server.new_session("echo")
    await server.run("echo")
    assert collector.spans == []
    server.stop()
    assert [span.name for span in await arrived(collector, 3)] == [
        "invocation",
        "invoke_agent echo",
        "generate_content scripted",
    ]
    await until(lambda: spans.bridge is None)


@pytest.mark.parametrize(
    "variables", [{"OTEL_SDK_DISABLED": "true"}, {"OTEL_TRACES_EXPORTER": "none"}, {"OTEL_EXPORTER_OTLP_ENDPOINT": ""}]
)
async def test_nothing_is_sent_when_it_is_switched_off(
    serve: Serve, collector: Collector, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    server = await serve()
    assert spans.bridge is None
    await server.new_session("echo")
    await server.run("echo")
    server.stop()
    await asyncio.sleep(0)
    assert collector.requests == []


def test_the_variables_switch_it_on() -> None:
    assert not wants_export({})
    assert wants_export({"OTEL_TRACES_EXPORTER": "otlp"})
    assert wants_export(
        {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://x", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}
    )
    assert wants_export(
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "x", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
         "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf"}
    )  # fmt: skip
    for variables, name in (
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "OTEL_TRACES_EXPORTER"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "x", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "OTEL_EXPORTER_OTLP_PROTOCOL"),
    ):
        with pytest.raises(ConfigurationError) as refused:
            wants_export(variables)
        assert name in refused.value.detail


async def test_without_the_package_a_server_that_should_export_does_not_start(
    serve: Serve, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "greenroom.telemetry.otlp", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(MissingExtra) as refused:
        await serve()
    assert refused.value.extra == "telemetry"
