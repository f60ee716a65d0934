"""What watches the runs of a server: the store of traces, their export, the metrics."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

from greenroom.errors import ConfigurationError, MissingExtra
from greenroom.server.settings import TracedContent
from greenroom.sessions.service import BaseSessionService
from greenroom.telemetry.run_metrics import RunMetrics
from greenroom.traces.store import InMemoryTraceStore, TraceStore

if TYPE_CHECKING:
    from greenroom.telemetry.otlp import OtlpExport

# Source: OpenTelemetry's specification of environment variables.
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_EXPORTERS = "OTEL_TRACES_EXPORTER"
_DISABLED = "OTEL_SDK_DISABLED"
_PROTOCOL = "http/protobuf"

ADK_CONTENT_VARIABLE = "ADK_CAPTURE_MESSAGE_CONTENT_IN_SPANS"


class ContentPolicy(NamedTuple):
    """Who gets to see what was said, in spans."""

    in_debug: bool
    in_export: bool


def content_policy(setting: TracedContent | None) -> ContentPolicy:
    """The setting, else ADK's variable. Neither: whoever may debug an app may read its sessions anyway, so the debug
    endpoints show it; what leaves the server doesn't hold it."""
    if setting is None:
        said = os.environ.get(ADK_CONTENT_VARIABLE, "").strip().lower()
        setting = "nowhere" if said in ("false", "0") else "everywhere" if said in ("true", "1") else "debug"
    return ContentPolicy(in_debug=setting != "nowhere", in_export=setting == "everywhere")


def trace_store_beside(sessions: BaseSessionService, *, with_content: bool) -> TraceStore:
    """In the same database where there is one."""
    if "greenroom.sessions.sqlite" in sys.modules:  # a service of it may have been made
        from greenroom.sessions.sqlite import SqliteSessionService
        from greenroom.traces.sqlite import SqliteTraceStore

        if isinstance(sessions, SqliteSessionService):
            return SqliteTraceStore(sessions.path, with_content=with_content)
    return InMemoryTraceStore(with_content=with_content)


def run_metrics() -> RunMetrics | None:
    """None where nothing could show them."""
    return RunMetrics() if find_spec("prometheus_client") is not None else None


def trace_export(*, with_content: bool) -> OtlpExport | None:
    """None unless OpenTelemetry's variables ask for it. Raises ConfigurationError, and MissingExtra."""
    if not wants_export(os.environ):
        return None
    try:
        from greenroom.telemetry.otlp import OtlpExport
    except ImportError as error:
        raise MissingExtra("telemetry", "opentelemetry-sdk") from error
    return OtlpExport(with_content=with_content)


def wants_export(environ: Mapping[str, str]) -> bool:
    """Whether OpenTelemetry's variables ask for traces to be sent: by an endpoint or the exporter `otlp`.

    Raises ConfigurationError for an exporter or a protocol that isn't supported.
    """
    if environ.get(_DISABLED, "").strip().lower() == "true":
        return False
    exporter = environ.get(_EXPORTERS, "").strip().lower()
    if exporter == "none" or not (exporter or any(environ.get(name) for name in _ENDPOINTS)):
        return False
    if exporter not in ("", "otlp"):
        raise ConfigurationError([f"variable {_EXPORTERS}: must be otlp or none, not {exporter!r}"])
    for name in _PROTOCOLS:
        protocol = environ.get(name, "").strip().lower()
        if protocol:
            if protocol != _PROTOCOL:
                raise ConfigurationError([f"variable {name}: must be {_PROTOCOL}, not {protocol!r}"])
            break
    return True
