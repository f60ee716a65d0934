"""What a server that logs JSON tells of its runs."""

from __future__ import annotations

import json
import signal
import urllib.error
from datetime import datetime
from typing import Any

import pytest

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


def test_each_line_is_an_object_that_names_its_run(cli: Cli) -> None:
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
    told = [line for line in lines if "error" in line]
    assert told
    for line in told:
        assert line.items() >= run.items()
        assert "agent.py" in line["traceback"]
        assert "KeyError\nThe direct cause of:\n" in line["traceback"]
    for said in ("Oslo", "Bergen", "ada"):
        assert said not in text


def test_what_errors_say_is_logged_when_content_may_be_seen_everywhere(cli: Cli) -> None:
    lines, _, _ = lines_of(cli, "--traced-content", "everywhere")
    [told, *_] = [line["traceback"] for line in lines if "error" in line]
    assert "KeyError: 'secret Oslo'" in told
    assert told.endswith("ValueError: secret of Oslo")


def test_what_is_no_setting_is_told_as_an_object_too(cli: Cli) -> None:
    cli.environment["GREENROOM_PROT"] = "1"
    lines, _, _ = lines_of(cli)
    assert lines[0]["level"] == "warning"
    assert lines[0]["message"].startswith("GREENROOM_PROT is not a setting of greenroom.")
    assert "runId" not in lines[0]
