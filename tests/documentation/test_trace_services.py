"""The variables of docs/trace-services.md, against a server that takes OTLP as the services document it."""

from __future__ import annotations

import base64
import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.server.conftest import Serve, connection_limits, serve, store
from tests.server.otlp_collector import Collector, collector, plain
from tests.server.serving import until
from tests.server.test_trace_export import weather

__all__ = ["collector", "connection_limits", "serve", "store"]

PAGE = Path(__file__).parents[2] / "docs" / "trace-services.md"
LANGFUSE_KEY = base64.b64encode(b"pk-lf-1:sk-lf-2").decode()
SERVICES = {
    "Langfuse": (
        "https://cloud.langfuse.com",
        "/api/public/otel/v1/traces",
        {"authorization": f"Basic {LANGFUSE_KEY}", "x-langfuse-ingestion-version": "4"},
    ),
    "Phoenix": ("http://localhost:6006", "/v1/traces", {}),
    "Logfire": ("https://logfire-us.pydantic.dev", "/v1/traces", {"authorization": "WRITE-TOKEN"}),
}
"""By heading: the service's address, the path and the headers of its requests."""


def variables_of(service: str) -> dict[str, str]:
    """The environment after the service's block of shell commands."""
    (block,) = re.findall(rf"^## {service}\n.*?^```bash\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    done = subprocess.run(
        ["bash", "-ec", f"{block}\nenv -0"],
        capture_output=True,
        check=True,
        text=True,
        env={"PATH": os.environ["PATH"]},
    )
    pairs = (pair.partition("=") for pair in done.stdout.split("\0") if pair)
    return {name: value for name, _, value in pairs if name.startswith(("OTEL_", "GREENROOM_"))}


@pytest.mark.parametrize("service", SERVICES)
async def test_a_service_gets_traces_where_and_as_it_wants_them(
    serve: Serve, collector: Collector, monkeypatch: pytest.MonkeyPatch, service: str
) -> None:
    address, path, headers = SERVICES[service]
    variables = variables_of(service)
    assert variables["OTEL_EXPORTER_OTLP_ENDPOINT"].startswith(address)
    for name, value in variables.items():
        monkeypatch.setenv(name, value.replace(address, collector.url))

    content = variables["GREENROOM_TRACED_CONTENT"]
    server = await serve(weather(), traced_content=content)
    await server.new_session("weather")
    assert (await server.run("weather", "How is Oslo?")).status_code == 200
    await until(lambda: len(collector.spans) == 5)

    got_path, got_headers, request = collector.requests[0]
    assert got_path == path
    assert {name: got_headers.get(name) for name in headers} == headers
    assert got_headers["content-type"] == "application/x-protobuf"
    assert all(plain(span)["session.id"] == "s-1" for span in collector.spans)
    assert all(plain(span)["user.id"] == "ann" for span in collector.spans)
    assert "How is Oslo?" in str(plain(collector.spans[2])["gen_ai.input.messages"])
    resource = plain(request.resource_spans[0].resource)
    assert resource.get("openinference.project.name") == ("weather-desk" if service == "Phoenix" else None)
    server.stop()
    await until(lambda: bool(collector.metrics) or service != "Logfire")
