"""A server's log as text and as JSON, without keys and passwords."""

from __future__ import annotations

import json
import logging
import signal
import urllib.error
from datetime import datetime
from typing import Any

import pytest

from greenroom.cli.server_log import JsonFormatter, TextFormatter
from greenroom.server.app_logs import hide_secrets
from tests.cli.conftest import Cli
from tests.cli.test_serve import post, served

AGENT = """
    import asyncio
    import logging
    from greenroom import LlmAgent
    from greenroom.testing import ScriptedModel
    from greenroom.types import FunctionCall

    log = logging.getLogger("weather.tools")

    def in_a_thread(city: str) -> str:
        '''Looks.'''
        log.info("in a thread")
        return "seen"

    async def breaks(city: str) -> str:
        '''Breaks.'''
        log.warning("about to\\nbreak %s", 1)
        await asyncio.gather(later())
        try:
            raise KeyError("secret " + city)
        except KeyError as error:
            raise ValueError("secret of " + city) from error

    async def later():
        log.info("in a task %s", "\\udc80 é")

    def answer(request):
        answered = [part for content in request.contents for part in content.parts if part.function_response]
        return FunctionCall(name=("in_a_thread", "breaks")[len(answered)], args={"city": "Oslo"})

    root_agent = LlmAgent(name="weather", model=ScriptedModel(answer), tools=[in_a_thread, breaks])
"""


def lines_of(cli: Cli, *flags: str) -> tuple[list[dict[str, Any]], str, str]:
    """The log of a server with a run in which a tool breaks, the run's id and the whole text."""
    cli.write("agents/weather/agent.py", AGENT)
    with served(cli, "agents", "--log-format", "json", *flags) as (url, _, process):
        post(f"{url}/apps/weather/users/ada/sessions/s1", {})
        message = {"role": "user", "parts": [{"text": "How is Bergen?"}]}
        body = {"appName": "weather", "userId": "ada", "sessionId": "s1", "newMessage": message}
        with pytest.raises(urllib.error.HTTPError) as failed:
            post(f"{url}/run", body)
        run_id = failed.value.headers["x-run-id"]
        failed.value.close()
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=10)
    return [json.loads(line) for line in errors.splitlines()], run_id, errors


def test_each_json_line_names_its_run(cli: Cli) -> None:
    lines, run_id, text = lines_of(cli)
    run = {"appName": "weather", "sessionId": "s1", "runId": run_id}
    for line in lines:
        assert datetime.fromisoformat(line.pop("time")).utcoffset() is not None
    own = [line for line in lines if line["logger"] == "weather.tools"]
    assert own == [
        {"level": "info", "logger": "weather.tools", "message": "in a thread", **run},
        {"level": "warning", "logger": "weather.tools", "message": "about to\nbreak 1", **run},
        {"level": "info", "logger": "weather.tools", "message": "in a task \udc80 é", **run},
    ]
    errors = [line for line in lines if "error" in line]
    assert errors
    for line in errors:
        assert line.items() >= run.items()
        assert "agent.py" in line["traceback"]
        assert "KeyError\nThe direct cause of:\n" in line["traceback"]
    for said in ("Oslo", "Bergen", "ada"):
        assert said not in text


def test_texts_of_errors_are_logged_if_content_is_traced_everywhere(cli: Cli) -> None:
    lines, _, _ = lines_of(cli, "--traced-content", "everywhere")
    [traceback, *_] = [line["traceback"] for line in lines if "error" in line]
    assert "KeyError: 'secret Oslo'" in traceback
    assert traceback.endswith("ValueError: secret of Oslo")


def test_warnings_about_variables_are_logged_as_json(cli: Cli) -> None:
    cli.environment["GREENROOM_PROT"] = "1"
    lines, _, _ = lines_of(cli)
    assert lines[0]["level"] == "warning"
    assert lines[0]["message"].startswith("GREENROOM_PROT is not a setting of greenroom.")
    assert "runId" not in lines[0]


OURS = "gr_0123456789_" + "a" * 43

REFUSED = """
    import os
    from greenroom import LlmAgent
    from greenroom.testing import ScriptedModel

    def answer(request):
        raise RuntimeError("Incorrect API key provided: " + os.environ["VENDOR_API_KEY"])

    root_agent = LlmAgent(name="weather", model=ScriptedModel(answer))
"""


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("Authorization: Bearer abc.def-123", "Authorization: Bearer ***"),
        ("postgres://ann:hunter2@db:5432/x is down", "postgres://ann:***@db:5432/x is down"),
        ("GET https://v/models?key=abcd1234&alt=sse", "GET https://v/models?key=***&alt=sse"),
        ("Incorrect API key provided: sk-proj-abcdefgh1234.", "Incorrect API key provided: ***."),
        (f"key {OURS} is revoked", "key *** is revoked"),
        ("token eyJhbGciOiJS.eyJzdWIi.c2ln expired", "token *** expired"),
        ("the bearer of bad news, at http://localhost:8000/x?page=2", None),
        ("task-force sk-i lifts; a key= is missing", None),
    ],
)
def test_texts_that_look_like_secrets_are_hidden(said: str, expected: str | None) -> None:
    assert hide_secrets(said) == (expected or said)


def test_secrets_of_the_environment_are_hidden_in_messages_and_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VENDOR_API_KEY", "plain words 1234")
    monkeypatch.setenv("GREETING", "good morning to you")
    try:
        raise ValueError("plain words 1234 are wrong")
    except ValueError as error:
        exc_info = (type(error), error, error.__traceback__)
    record = logging.LogRecord(
        "x", logging.ERROR, __file__, 1, "%s, %s", ("good morning to you", "plain words 1234"), exc_info
    )
    for formatter in (TextFormatter(), JsonFormatter(with_content=True)):
        line = formatter.format(record)
        assert "plain words" not in line
        assert "good morning to you, ***" in line
        assert "*** are wrong" in line


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_key_quoted_by_a_vendor_is_hidden(cli: Cli, form: str) -> None:
    cli.environment["VENDOR_API_KEY"] = "very-private-0123456789"
    cli.write("agents/weather/agent.py", REFUSED)
    flags = ("--log-format", form, "--traced-content", "everywhere")
    with served(cli, "agents", *flags) as (url, _, process):
        post(f"{url}/apps/weather/users/ada/sessions/s1", {})
        body = {"appName": "weather", "userId": "ada", "sessionId": "s1", "newMessage": {"parts": [{"text": "hi"}]}}
        with pytest.raises(urllib.error.HTTPError) as failed:
            post(f"{url}/run", body)
        failed.value.close()
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=20)
    assert "Incorrect API key provided: ***" in log
    assert "very-private" not in log
