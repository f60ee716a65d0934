from __future__ import annotations

import json
import urllib.error
import urllib.request

import pytest

from tests.cli.conftest import Cli
from tests.cli.test_serve import served


def test_each_value_is_shown_with_where_it_comes_from(cli: Cli) -> None:
    cli.write("agents/greenroom.toml", "port = 9000\nsession_service = 'postgresql://ada:hunter2@db/x'\n")
    done = cli("config", "show", "agents", "--on-disconnect", "cancel", GREENROOM_LOG_LEVEL="error")
    assert done.returncode == 0, done.stderr
    rows = {line.split()[0]: line.strip().split(maxsplit=2)[1:] for line in done.stdout.splitlines()}
    assert rows["port"] == ["9000", "agents/greenroom.toml:1"]
    assert rows["session_service"] == ["postgresql://ada:********@db/x", "agents/greenroom.toml:2"]
    assert rows["on_disconnect"] == ["cancel", "flag --on-disconnect"]
    assert rows["log_level"] == ["error", "variable GREENROOM_LOG_LEVEL"]
    assert rows["host"] == ["127.0.0.1", "default"]
    assert "hunter2" not in done.stdout + done.stderr


def test_the_file_of_the_current_folder_and_another_one(cli: Cli) -> None:
    cli.write("greenroom.toml", "port = 1")
    cli.write("other.toml", "port = 2")
    assert " 1 " in cli("config", "show", "agents").stdout
    for done in (
        cli("config", "show", "agents", "--config", "other.toml"),
        cli("config", "show", "agents", GREENROOM_CONFIG="other.toml"),
    ):
        assert "other.toml:1" in done.stdout
    done = cli("config", "show", "--config", "none.toml")
    assert (done.returncode, done.stderr) == (1, "There is no configuration file none.toml\n")


def test_a_fault_keeps_the_server_from_starting(cli: Cli) -> None:
    cli.write("agents/greenroom.toml", "prot = 1\nlog_level = 'loud'\n")
    for command in ("serve", "config show"):
        done = cli(*command.split(), "agents")
        assert done.returncode == 1
        assert done.stderr.splitlines() == [
            "agents/greenroom.toml:1: there is no setting prot. Did you mean port?",
            "agents/greenroom.toml:2: log_level must be debug, info, warning or error, not 'loud'",
        ]


def test_an_unknown_variable_is_warned_of(cli: Cli) -> None:
    done = cli("config", "show", GREENROOM_HOTS="x")
    assert done.returncode == 0
    assert done.stderr == "GREENROOM_HOTS is not a setting of greenroom. Did you mean GREENROOM_HOST?\n"


def test_the_server_does_what_the_file_says(cli: Cli) -> None:
    cli.write("agents/greenroom.toml", "max_body_bytes = 100\n[cors]\norigins = ['https://a.example']\n")
    with served(cli, "agents", "--session-service", "memory://") as (url, _, _):
        request = urllib.request.Request(f"{url}/list-apps", headers={"origin": "https://a.example"})
        with urllib.request.urlopen(request, timeout=10) as reply:
            assert json.load(reply) == ["parrot"]
            assert reply.headers["access-control-allow-origin"] == "https://a.example"
        large = urllib.request.Request(f"{url}/run", b" " * 101, {"content-type": "application/json"})
        with pytest.raises(urllib.error.HTTPError, match="413") as refused:
            urllib.request.urlopen(large, timeout=10)
        refused.value.close()
