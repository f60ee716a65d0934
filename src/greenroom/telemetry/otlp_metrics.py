"""Metrics of models, agents and tools sent to a collector, by OpenTelemetry's conventions for generative AI. Needs the
extra `telemetry`.
"""

from __future__ import annotations

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.metrics import Histogram
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

from greenroom.telemetry import names
from greenroom.telemetry.agent_spans import ModelCallSpan, PlainSpan, ToolCallSpan
from greenroom.telemetry.otlp import service_resource
from greenroom.telemetry.run_metrics import NO_TOOL
from greenroom.telemetry.span import AttributeValue, Span, Trace
from greenroom.version import __version__

SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864)
"""The buckets that the conventions recommend."""

_NANOSECONDS = 1e9


class OtlpMetrics:
    """A listener that records ended traces in OpenTelemetry's histograms, which a thread sends at intervals of
    `OTEL_METRIC_EXPORT_INTERVAL`. No attribute names a user, a session or a run.
    """

    def __init__(self) -> None:
        reader = PeriodicExportingMetricReader(OTLPMetricExporter())
        self._provider = MeterProvider([reader], resource=service_resource(), shutdown_on_exit=False)
        meter = self._provider.get_meter(names.SCOPE, __version__)

        def seconds(name: str, description: str) -> Histogram:
            return meter.create_histogram(name, "s", description, explicit_bucket_boundaries_advisory=SECONDS)

        self._model_seconds = seconds(names.MODEL_SECONDS, "Duration of calls of models.")
        self._first_chunk_seconds = seconds(names.FIRST_CHUNK_SECONDS, "Time to the first chunk of a model's reply.")
        self._agent_seconds = seconds(names.AGENT_SECONDS, "Duration of agents' runs.")
        self._tool_seconds = seconds(names.TOOL_SECONDS, "Duration of calls of tools.")
        self._tokens = meter.create_histogram(
            names.TOKEN_USAGE,
            "{token}",
            "Tokens of calls of models, as models report them.",
            explicit_bucket_boundaries_advisory=TOKENS,
        )

    def trace_ended(self, trace: Trace) -> None:
        for span, _ in trace.spans():
            if isinstance(span, ModelCallSpan):
                self._record_model_call(span)
            elif isinstance(span, ToolCallSpan):
                self._record_tool_call(span)
            elif isinstance(span, PlainSpan):
                self._record_agent(span)

    def close(self) -> None:
        """Sends the newest numbers."""
        self._provider.shutdown()

    def _record_model_call(self, span: ModelCallSpan) -> None:
        shared: dict[str, AttributeValue] = {
            names.OPERATION: names.GENERATE_CONTENT,
            names.PROVIDER: span.provider_name,
            names.REQUEST_MODEL: span.model,
        }
        if span.response_model is not None:
            shared[names.RESPONSE_MODEL] = span.response_model

        self._model_seconds.record(_seconds_of(span), _with_error(shared, span))
        if span.first_reply_time:
            self._first_chunk_seconds.record((span.first_reply_time - span.start_time) / _NANOSECONDS, shared)
        if span.usage is not None:
            self._tokens.record(span.usage.input_tokens, {**shared, names.TOKEN_TYPE: "input"})
            self._tokens.record(span.usage.output_tokens, {**shared, names.TOKEN_TYPE: "output"})

    def _record_tool_call(self, span: ToolCallSpan) -> None:
        tool = span.tool_name if span.is_of_a_tool else NO_TOOL
        described: dict[str, AttributeValue] = {names.OPERATION: names.EXECUTE_TOOL, names.TOOL_NAME: tool}
        self._tool_seconds.record(_seconds_of(span), _with_error(described, span))

    def _record_agent(self, span: PlainSpan) -> None:
        attributes = span.attributes()
        if attributes.get(names.OPERATION) == names.INVOKE_AGENT:
            described = {name: attributes[name] for name in (names.OPERATION, names.AGENT_NAME)}
            self._agent_seconds.record(_seconds_of(span), _with_error(described, span))


def _seconds_of(span: Span) -> float:
    return (span.end_time - span.start_time) / _NANOSECONDS


def _with_error(attributes: dict[str, AttributeValue], span: Span) -> dict[str, AttributeValue]:
    return attributes if span.error is None else {**attributes, names.ERROR_TYPE: span.error}
