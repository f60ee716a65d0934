"""`greenroom versions`, against a server."""

from __future__ import annotations

import time

from tests.cli.conftest import Cli
from tests.cli.test_serve import served

_AGENT = """
    from greenroom import Agent
    from greenroom.testing.scripted_model import ScriptedModel

    root_agent = Agent(name="desk", instruction="Say {0}.\\nOnly that.", model=ScriptedModel(lambda request: "{0}"))
"""


def test_versions_are_published_compared_and_rolled_back(cli: Cli) -> None:
    cli.write("agents/desk/agent.py", _AGENT.format("one"))
    with served(cli, "agents") as (url, _, _):
        cli.environment["GREENROOM_URL"] = url
        published = cli("versions", "publish", "desk", "--message", "the first")
        assert (published.returncode, published.stdout) == (0, "v1\n"), published.stderr
        assert cli("versions", "publish", "desk").stdout == "v1\n"
        assert cli("versions", "compare", "desk", "v1").stderr == "v1 and source are equal.\n"

        cli.write("agents/desk/agent.py", _AGENT.format("two"))
        until = time.monotonic() + 20
        while "+Say two." not in (compared := cli("versions", "compare", "desk", "v1", "--files")).stdout:
            assert time.monotonic() < until, compared.stderr
        assert compared.stdout.startswith("changed agent desk\n  instruction:\n")
        assert "changed file desk/agent.py\n" in compared.stdout
        assert cli("versions", "publish", "desk").stdout == "v2\n"

        assert cli("versions", "traffic", "desk").stdout == "source 100 %\n"
        assert cli("versions", "traffic", "desk", "v1=0", "v2=100").stdout == "v1 0 %\nv2 100 %\n"
        assert cli("run", "desk", "hi", "--session", "s-1").stdout == "two\n"
        assert cli("versions", "rollback", "desk", "v1").returncode == 0
        assert cli("run", "desk", "hi", "--session", "s-1").stdout == "one\n"
        header, second, first = cli("versions", "list", "desk").stdout.splitlines()
        assert header.split() == ["version", "published", "share", "runs", "failed", "feedback", "message"]
        assert second.split()[0] == "v2"
        assert first.split()[0] == "v1"
        assert first.endswith("the first")
        assert "100 %" in first

        for arguments, said in (
            (("traffic", "desk", "v1"), "'v1' is no share"),
            (("traffic", "desk", "v1=90"), "must be 100"),
            (("rollback", "desk", "v9"), "App 'desk' has no version 'v9'"),
            (("delete", "desk", "v1"), "has a share of the traffic"),
        ):
            refused = cli("versions", *arguments)
            assert (refused.returncode, said in refused.stderr) == (1, True), refused.stderr
        assert cli("versions", "delete", "desk", "v2").returncode == 0
