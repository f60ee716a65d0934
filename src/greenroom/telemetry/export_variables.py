"""Whether OpenTelemetry's variables ask for traces to be sent. What they say further is read by its exporter.

Source: OpenTelemetry's specification of environment variables.
"""

from __future__ import annotations

from collections.abc import Mapping

from greenroom.errors import ConfigurationError

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_EXPORTERS = "OTEL_TRACES_EXPORTER"
_DISABLED = "OTEL_SDK_DISABLED"
_PROTOCOL = "http/protobuf"


def wants_export(environ: Mapping[str, str]) -> bool:
    """When an endpoint is named, or the exporter `otlp`; unless it is switched off.

    Raises ConfigurationError for an exporter or a protocol that there isn't here.
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
