"""No key gets into a log, whoever quotes it."""

from __future__ import annotations

import logging
import signal
import urllib.error

import pytest

from greenroom.cli.json_log import JsonFormatter
from greenroom.cli.log_secrets import TextFormatter, hide_secrets
from tests.cli.conftest import Cli
from tests.cli.test_serve import post, served

OURS = "gr_0123456789_" + "a" * 43

AGENT = """
    import os
    from greenroom import LlmAgent
    from greenroom.testing import ScriptedModel

    def answer(request):
        raise RuntimeError("Incorrect API key provided: " + os.environ["VENDOR_API_KEY"])

    root_agent = LlmAgent(name="weather", model=ScriptedModel(answer))
"""


@pytest.mark.parametrize(
    ("said", "told"),
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
def test_what_has_the_form_of_a_secret_is_hidden(said: str, told: str | None) -> None:
    assert hide_secrets(said) == (told or said)


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
def test_a_served_agents_vendor_may_quote_its_key(cli: Cli, form: str) -> None:
    cli.environment["VENDOR_API_KEY"] = "very-private-0123456789"
    cli.write("agents/weather/agent.py", AGENT)
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
