"""A server that is stopped answers those who wait: where their run is, and how to resume."""

from __future__ import annotations

import json
import logging

import pytest

from greenroom.agents.llm_agent import LlmAgent
from tests.server.agents import Gate, HeldModel, gated
from tests.server.conftest import Serve
from tests.server.serving import Serving, frames_of, run_body, until


@pytest.fixture
async def server(serve: Serve) -> Serving:
    return await serve(gated(Gate()), LlmAgent(name="held", model=HeldModel()), grace_seconds=0)


async def test_a_waiting_run_is_answered_by_503_with_its_id(server: Serving, caplog: pytest.LogCaptureFixture) -> None:
    await server.new_session("gated")
    waiting = await server.connect()
    await waiting.post("/run", run_body("gated"))
    await until(lambda: server.tasks)
    with caplog.at_level(logging.INFO):
        server.cancel_requests()
        status, headers = await waiting.head()
        body = json.loads(await waiting.reader.readexactly(int(headers["content-length"])))
    assert (status, body["code"], headers["retry-after"]) == (503, "Unavailable", "1")
    assert headers["content-type"] == "application/problem+json"
    assert headers["x-run-id"] in body["detail"]
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize("prefix", ["", "/agents"])
async def test_a_stream_ends_with_a_frame_that_says_where_to_resume(
    serve: Serve, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = await serve(gated(Gate()), url_prefix=prefix or None, grace_seconds=0)
    await server.new_session("gated")
    streaming = await server.connect()
    watching = await server.connect()
    await streaming.post("/run_sse", run_body("gated"))
    _, headers = await streaming.head()
    call = await streaming.chunk()
    run_id = headers["x-run-id"]
    await watching.request("GET", f"/runs/{run_id}/events", {"accept": "text/event-stream"})
    await watching.head()
    await watching.chunk()
    server.cancel_requests()
    (last,) = frames_of(b"".join(await streaming.chunks()))
    assert frames_of(call)[0].id == 2
    assert last.data["error"].startswith("Unavailable: ")
    assert last.data["problem"]["status"] == 503
    assert last.data["problem"]["resume"] == {"path": f"{prefix}/runs/{run_id}/events", "lastEventId": "2"}
    assert b": the stream ends here; resume with Last-Event-ID: 2\n\n" in b"".join(await watching.chunks())
    assert "Traceback" not in caplog.text
