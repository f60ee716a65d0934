"""Logs of an app's runs, for callers who may debug them."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from _pytest.logging import LogCaptureHandler

from greenroom.records.content import FunctionCall
from greenroom.server import app_logs
from tests.server.agents import scripted
from tests.server.conftest import Serve
from tests.server.security.conftest import keys as keys
from tests.server.security.keys import Keys, bearer
from tests.server.serving import frames_of

_log = logging.getLogger("weather.tools")


def look(city: str) -> str:
    """Looks."""
    _log.warning("looking at %s with sk-abcdefgh12345", city)
    try:
        raise ValueError("no " + city)
    except ValueError:
        _log.exception("failed")
    return "seen"


def weather(name: str = "weather") -> Any:
    return scripted(name, [FunctionCall(name="look", args={"city": "Oslo"}), "done"] * 9, tools=[look])


async def test_lines_of_runs_are_listed_and_streamed_without_secrets(serve: Serve) -> None:
    server = await serve(weather(), weather("other"))
    for app in ("weather", "other"):
        await server.new_session(app)

    run_id = (await server.run("weather")).headers["x-run-id"]
    first, second = (await server.client.get("/apps/weather/logs")).json()["lines"]
    assert (first["message"], first["level"], first["logger"]) == (
        "looking at Oslo with ***",
        "warning",
        "weather.tools",
    )
    assert (first["runId"], first["sessionId"], first["userId"]) == (run_id, "s-1", "ann")
    assert "ValueError: no Oslo" in second["error"]
    page = await server.client.get("/apps/weather/logs", params={"after": first["number"]})
    assert page.json()["lines"] == [second]
    assert (await server.client.get("/apps/weather/logs?limit=1")).json()["lines"] == [second]
    assert (await server.client.get("/apps/other/logs")).json() == {"lines": []}
    assert (await server.client.get("/apps/none/logs")).status_code == 404
    connection = await server.connect()
    headers = {"accept": "text/event-stream", "last-event-id": str(first["number"])}
    await connection.request("GET", "/apps/weather/logs", headers)
    assert (await connection.head())[0] == 200
    seen = frames_of(await connection.chunk())
    await server.run("weather")
    while len(seen) < 3:
        seen += frames_of(await connection.chunk())
    assert [frame.data["message"] for frame in seen] == ["failed", "looking at Oslo with ***", "failed"]
    assert seen[0].id == second["number"]


async def test_callers_see_lines_of_their_own_runs(serve: Serve, keys: Keys) -> None:
    server = await serve(weather(), auth=keys.auth)
    server.client.headers.update(bearer(keys("root", "admin")))
    for user in ("ann", "bob"):
        await server.new_session("weather", user)
        await server.run("weather", userId=user)
    for key, users in (
        (keys("root", "admin"), {"ann", "bob"}),
        (keys("ann", "debug"), {"ann"}),
        (keys("ann", "debug", "app:weather"), {"ann", "bob"}),
        (keys("ann", "read", "run"), None),
        (keys("ann", "debug", apps=["other"]), None),
    ):
        reply = await server.client.get("/apps/weather/logs", headers=bearer(key))
        found = {line["userId"] for line in reply.json()["lines"]} if reply.status_code == 200 else None
        assert found == users


async def test_a_log_is_bounded_and_has_no_content_unless_it_is_traced(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app_logs, "MAX_BYTES", 1000)
    server = await serve(weather(), traced_content="nowhere")
    await server.new_session("weather")
    for _ in range(4):
        await server.run("weather")
    lines = (await server.client.get("/apps/weather/logs")).json()["lines"]
    assert [line["number"] for line in lines] == [6, 7, 8]
    assert lines[-1]["error"] == "ValueError"


async def test_lines_that_cannot_be_encoded_or_formatted_fail_no_run(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    for handler in logging.getLogger().handlers:
        if isinstance(handler, LogCaptureHandler):  # what it keeps must be encoded, too, to be reported
            monkeypatch.setattr(handler, "emit", lambda record: None)

    def list_files() -> str:
        """Lists."""
        _log.warning("file %s", "\udc80.txt")
        _log.warning("%d files", "no number")
        return "done"

    server = await serve(scripted("files", [FunctionCall(name="list_files"), "listed"], tools=[list_files]))
    await server.new_session("files")
    assert (await server.run("files")).status_code == 200
    [line] = (await server.client.get("/apps/files/logs")).json()["lines"]
    assert line["message"] == "file ?.txt"
