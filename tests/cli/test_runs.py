"""`greenroom runs`, against a server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cli.conftest import Cli
from tests.cli.test_serve import served

_AGENT = """
    from greenroom import Agent
    from greenroom.testing.scripted_model import ScriptedModel

    replies = [ValueError("overloaded"), KeyError("gone"), "Fine.", "Fine.", "Fine."]
    root_agent = Agent(name="desk", model=ScriptedModel(replies))
"""


@pytest.fixture
def desk(cli: Cli) -> Iterator[Cli]:
    cli.write("agents/desk/agent.py", _AGENT)
    with served(cli, "agents") as (url, _, _):
        cli.environment["GREENROOM_URL"] = url
        for session in ("one", "two"):
            cli("run", "desk", "hello", "--session", session)
        yield cli


def test_failed_runs_are_listed_and_retried(desk: Cli) -> None:
    listed = desk("runs", "list", "--status", "failed").stdout.splitlines()
    assert [line.split()[3] for line in listed[1:]] == ["two", "one"]
    assert listed[2].endswith("ValueError: overloaded")
    first = listed[2].split()[0]

    retried = desk("runs", "retry", "--error-code", "ValueError")
    assert (retried.returncode, retried.stdout) == (0, f"{first}\n"), retried.stderr
    forked = desk("runs", "retry", listed[1].split()[0], "--fork")
    assert forked.returncode == 0

    refused = desk("runs", "retry", first)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert first in refused.stderr
    assert desk("runs", "list", "--error-code", "ValueError").stderr == "No runs.\n"
    assert len(desk("runs", "list", "--limit", "1").stdout.splitlines()) == 2


def test_a_server_and_runs_have_to_be_named(cli: Cli) -> None:
    for arguments, said in (
        (("list",), "Name the server with --url"),
        (("retry", "e-1"), "Name the server with --url"),
        (("retry",), "Name the runs to retry, or a filter"),
        (("retry", "e-1", "--app", "desk"), "Name the runs to retry, or a filter"),
    ):
        refused = cli("runs", *arguments)
        assert (refused.returncode, said in refused.stderr) == (1, True), refused.stderr
