"""Traces sent to a collector, by OpenTelemetry's own exporter and its variables. Needs the extra `telemetry`."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import Token

from opentelemetry import context as otel_context
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from greenroom.telemetry import names
from greenroom.telemetry import span as spans
from greenroom.telemetry.span import AttributeValue, Span, Trace, TracedRun
from greenroom.telemetry.span_record import all_attributes, content_attributes
from greenroom.version import __version__

_SCOPE = InstrumentationScope(names.SCOPE, __version__)
_UNNAMED = "unknown_service"


class OtlpExport:
    """A listener that hands ended traces to the exporter's thread, where their attributes are made.
    Spans that a slow collector doesn't take are dropped, from `OTEL_BSP_MAX_QUEUE_SIZE` on.

    While it is open, spans that tools begin with OpenTelemetry are children of ours.
    """

    def __init__(self, *, with_content: bool) -> None:
        """Creates an exporter.

        with_content: True to send requests, replies, arguments and results.
        """
        self._with_content = with_content
        self._resource = service_resource()
        self._processor = BatchSpanProcessor(OTLPSpanExporter())
        self._sampler = TracerProvider(shutdown_on_exit=False).sampler
        spans.bridge = self

    def trace_ended(self, trace: Trace) -> None:
        if not self._is_sampled(trace.run):
            return
        for span, parent in trace.spans():
            self._processor.on_end(
                _ExportedSpan(span, trace.parent_id(parent), self._resource, with_content=self._with_content),
            )

    def close(self) -> None:
        """Sends the remaining spans; takes up to `OTEL_EXPORTER_OTLP_TIMEOUT`."""
        if spans.bridge is self:
            spans.bridge = None
        self._processor.shutdown()

    def attach(self, span: Span) -> Token[Context]:
        parent = NonRecordingSpan(_context(span.run, span.span_id, is_sampled=self._is_sampled(span.run)))
        return otel_context.attach(set_span_in_context(parent))

    def detach(self, token: Token[Context]) -> None:
        otel_context.detach(token)

    def _is_sampled(self, run: TracedRun) -> bool:
        """Samples as `OTEL_TRACES_SAMPLER` and `OTEL_TRACES_SAMPLER_ARG` say: the caller's decision, else
        all, by default. The same for a run on each call."""
        caller = run.remote_parent
        context = Context()
        if caller is not None:
            parent = _context(run, caller.span_id, is_sampled=run.is_sampled, is_remote=True)
            context = set_span_in_context(NonRecordingSpan(parent), context)
        return self._sampler.should_sample(context, run.trace_id, names.INVOCATION).decision.is_sampled()


class _ExportedSpan(ReadableSpan):
    def __init__(self, span: Span, parent_id: int | None, resource: Resource, *, with_content: bool) -> None:
        run = span.run
        is_remote = run.remote_parent is not None and parent_id == run.remote_parent.span_id
        super().__init__(
            name=span.exported_name,
            kind=SpanKind.CLIENT if span.is_client else SpanKind.INTERNAL,
            context=_context(run, span.span_id),
            parent=None if parent_id is None else _context(run, parent_id, is_remote=is_remote),
            resource=resource,
            status=Status() if span.error is None else Status(StatusCode.ERROR, span.error),
            start_time=span.start_time,
            end_time=span.end_time,
            instrumentation_scope=_SCOPE,
        )
        self._span = span
        self._with_content = with_content

    @property
    def attributes(self) -> Mapping[str, AttributeValue]:
        span = self._span
        attributes = {**all_attributes(span, with_content=self._with_content), **span.exported_attributes()}
        if self._with_content:
            attributes.update(content_attributes(span, attributes))
        return attributes


def _context(run: TracedRun, span_id: int, *, is_sampled: bool = True, is_remote: bool = False) -> SpanContext:
    flags = TraceFlags(TraceFlags.SAMPLED if is_sampled else TraceFlags.DEFAULT)
    return SpanContext(run.trace_id, span_id, is_remote=is_remote, trace_flags=flags)


def service_resource() -> Resource:
    """Builds the resource that `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` say."""
    resource = Resource.create()
    if not str(resource.attributes[SERVICE_NAME]).startswith(_UNNAMED):
        return resource
    return resource.merge(Resource({SERVICE_NAME: "greenroom", SERVICE_VERSION: __version__}))
