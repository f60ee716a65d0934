"""Creates the server's trace store and trace export."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from greenroom.errors import ConfigurationError, MissingExtra
from greenroom.runs.engine import postgres_uri_of
from greenroom.server.settings import TracedContent
from greenroom.sessions.service import BaseSessionService
from greenroom.traces.store import InMemoryTraceStore, TraceStore

if TYPE_CHECKING:
    from greenroom.telemetry.otlp import OtlpExport
    from greenroom.telemetry.otlp_metrics import OtlpMetrics

# Source: OpenTelemetry's specification of environment variables.
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_EXPORTERS = "OTEL_TRACES_EXPORTER"
_METRICS_ENDPOINTS = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",)
_METRICS_PROTOCOLS = ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_METRICS_EXPORTERS = "OTEL_METRICS_EXPORTER"
_DISABLED = "OTEL_SDK_DISABLED"
_PROTOCOL = "http/protobuf"

ADK_CONTENT_VARIABLE = "ADK_CAPTURE_MESSAGE_CONTENT_IN_SPANS"


class ContentPolicy(NamedTuple):
    """Tells by destination whether spans include the content of messages."""

    in_debug: bool
    in_export: bool


def content_policy(setting: TracedContent | None) -> ContentPolicy:
    """Reads the policy from the setting, else from ADK's variable. By default only the debug endpoints show content,
    since callers with access to them may read the sessions anyway."""
    if setting is None:
        text = os.environ.get(ADK_CONTENT_VARIABLE, "").strip().lower()
        if text in ("false", "0"):
            setting = "nowhere"
        elif text in ("true", "1"):
            setting = "everywhere"
        else:
            setting = "debug"
    return ContentPolicy(in_debug=setting != "nowhere", in_export=setting == "everywhere")


def trace_store_beside(sessions: BaseSessionService, *, with_content: bool, is_shared: bool = False) -> TraceStore:
    """A trace store in the database of the sessions, or in memory if they have none.

    is_shared: True if other servers may run on the database.
    """
    if sessions.server_database is not None:
        from greenroom.traces.sql import SqliteTraceStore

        return SqliteTraceStore(sessions.server_database, with_content=with_content)
    if (uri := postgres_uri_of(sessions)) is not None:
        from greenroom.traces.sql import PostgresTraceStore

        return PostgresTraceStore(uri, with_content=with_content, is_shared=is_shared)
    return InMemoryTraceStore(with_content=with_content)


def exports(*, with_content: bool) -> list[OtlpExport | OtlpMetrics]:
    """The exports of traces and of metrics that OpenTelemetry's variables enable.

    Raises ConfigurationError, MissingExtra.
    """
    exports_traces = wants_export(os.environ)
    exports_metrics = wants_metric_export(os.environ)
    enabled: list[OtlpExport | OtlpMetrics] = []
    try:
        if exports_traces:
            from greenroom.telemetry.otlp import OtlpExport

            enabled.append(OtlpExport(with_content=with_content))
        if exports_metrics:
            from greenroom.telemetry.otlp_metrics import OtlpMetrics

            enabled.append(OtlpMetrics())
    except ImportError as error:
        raise MissingExtra("telemetry", "opentelemetry-sdk") from error
    return enabled


def wants_export(environ: Mapping[str, str]) -> bool:
    """True if OpenTelemetry's variables enable the export of traces: an endpoint or the exporter `otlp` is set.

    Raises ConfigurationError for an exporter or a protocol that isn't supported.
    """
    return _is_enabled(environ, _EXPORTERS, _ENDPOINTS, _PROTOCOLS)


def wants_metric_export(environ: Mapping[str, str]) -> bool:
    """True if OpenTelemetry's variables enable the export of metrics: their own endpoint or the exporter `otlp` is set.
    The endpoint for all signals isn't enough, since many services for traces of agents refuse metrics.

    Raises ConfigurationError for an exporter or a protocol that isn't supported.
    """
    return _is_enabled(environ, _METRICS_EXPORTERS, _METRICS_ENDPOINTS, _METRICS_PROTOCOLS)


def _is_enabled(environ: Mapping[str, str], exporters: str, endpoints: Sequence[str], protocols: Sequence[str]) -> bool:
    if environ.get(_DISABLED, "").strip().lower() == "true":
        return False

    exporter = environ.get(exporters, "").strip().lower()
    if exporter == "none" or not (exporter or any(environ.get(name) for name in endpoints)):
        return False
    if exporter not in ("", "otlp"):
        raise ConfigurationError([f"variable {exporters}: must be otlp or none, not {exporter!r}"])

    for name in protocols:
        protocol = environ.get(name, "").strip().lower()
        if protocol:
            if protocol != _PROTOCOL:
                raise ConfigurationError([f"variable {name}: must be {_PROTOCOL}, not {protocol!r}"])
            break

    return True
