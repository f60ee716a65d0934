"""The commands that ask a server instead of a folder."""

from __future__ import annotations

import json
import os
import signal
import zipfile
from collections.abc import Iterator

import pytest

from greenroom.client.client import Client
from greenroom.records.event import Event
from tests.cli.conftest import CTRL_C, CTRL_D, Cli, Terminal
from tests.cli.test_serve import served


@pytest.fixture(scope="module")
def served_cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    """A folder whose agents are served, and the server named to every command."""
    cli = Cli(tmp_path_factory.mktemp("served"))
    with served(cli, "agents") as (url, _, _):
        cli.environment["GREENROOM_URL"] = url
        yield cli


def test_an_agent_on_a_server_answers(served_cli: Cli) -> None:
    done = served_cli("run", "parrot", "hello there", "--session", "talk")
    assert (done.returncode, done.stdout, done.stderr) == (0, "hello there \n", "session talk\nparrot:\n")
    again = served_cli("run", "parrot", "shout", "--session", "talk")
    assert again.stdout == "The tool said HEY \n"
    output = 'parrot:\n→ shout(text="hey")\n← shout: {"shouted":"HEY"}\n'
    assert again.stderr == "Continuing session 'talk'\n" + output

    shown = served_cli("sessions", "show", "tal")
    assert shown.stdout == "hello there\nhello there \nshout\nThe tool said HEY \n"
    assert shown.stderr == f"app parrot, user user, session talk\nuser:\nparrot:\nuser:\n{output}"


def test_an_app_that_keeps_its_sessions_says_so(served_cli: Cli) -> None:
    done = served_cli("retention", "parrot")
    assert (done.returncode, done.stderr) == (0, "The app keeps its sessions for ever.\n")


def test_expired_sessions_are_listed(cli: Cli) -> None:
    with served(cli, "agents", "--session-ttl-seconds", "86400") as (url, _, _), Client(url) as client:
        event = Event(author="user", timestamp=1_700_000_000.0)
        client.create_session(app_name="parrot", user_id="ada", session_id="old", events=[event])
        client.create_session(app_name="parrot", user_id="ada", session_id="new")
        done = cli("retention", "parrot", "--url", url)
    assert done.returncode == 0, done.stderr
    [_, row] = done.stdout.splitlines()
    assert row.split()[:2] == ["ada", "old"]
    assert done.stderr == "1 sessions without an update for 1 days would be deleted, 0 kept.\n"


def test_the_data_of_a_user_is_exported_and_erased(served_cli: Cli) -> None:
    assert served_cli("run", "parrot", "hello there", "--session", "mine", "--user", "ada").returncode == 0
    done = served_cli("users", "export", "parrot", "ada")
    assert (done.returncode, done.stderr) == (0, "exported to parrot-ada.zip\n"), done.stderr
    with zipfile.ZipFile(served_cli.folder / "parrot-ada.zip") as export:
        [session] = [json.loads(line) for line in export.read("sessions.jsonl").splitlines()]
        assert json.loads(export.read("manifest.json"))["counts"]["sessions"] == 1
    assert session["id"] == "mine"

    refused = served_cli("users", "erase", "parrot", "ada")
    assert refused.returncode == 1
    assert "Nothing was erased" in refused.stderr
    erased = served_cli("users", "erase", "parrot", "ada", "--yes")
    assert erased.returncode == 0, erased.stderr
    assert erased.stdout.splitlines()[1].split()[:5] == ["sessions", "1", "1", "0", "0"]
    again = served_cli("users", "erase", "parrot", "ada", "--yes", "--json")
    report = json.loads(again.stdout)
    assert report["isComplete"]
    assert {one["found"] for one in report["data"]} == {0}


def test_a_root_agent_of_any_kind_answers(cli: Cli) -> None:
    workflow = """
        from greenroom import Event, Workflow


        def answer(node_input: str) -> Event:
            return Event(message=node_input.upper())


        root_agent = Workflow(name="flow", edges=[("START", answer)])
    """
    cli.write("agents/flow/agent.py", workflow)
    with served(cli, "agents") as (url, _, _):
        done = cli("run", "flow", "hello", "--session", "s", "--url", url)
    assert (done.returncode, done.stdout, done.stderr) == (0, "HELLO\n", "session s\nflow:\n")


def test_conversations_of_a_server_are_listed_by_user(served_cli: Cli) -> None:
    for session in ("one", "two"):
        served_cli("run", "parrot", "hi", "--session", session, "--user", "ada")

    def listed(*args: str) -> list[list[str]]:
        return [line.split()[:3] for line in served_cli("sessions", "list", *args).stdout.splitlines()[1:]]

    assert listed("--user", "ada") == [["parrot", "ada", "one"], ["parrot", "ada", "two"]]
    assert listed("--user", "ada", "--limit", "1") == [["parrot", "ada", "two"]]
    assert listed("--user", "bob") == []
    assert listed("--user", "ada", "--app", "other") == []
    assert "There is no session 'one' in the apps parrot" in served_cli("sessions", "show", "one").stderr


def test_failures_on_the_server_are_reported(served_cli: Cli) -> None:
    failed = served_cli("run", "parrot", "boom", "--session", "b")
    assert (failed.returncode, failed.stdout) == (1, "")
    assert failed.stderr == "session b\nparrot:\nRuntimeError: the model is on fire\n"
    missing = served_cli("run", "other", "hi")
    assert (missing.returncode, missing.stderr) == (1, "App not found: 'other'. Known apps: parrot.\n")


def test_ctrl_c_stops_an_answer_of_a_server(served_cli: Cli) -> None:
    terminal = Terminal(served_cli, "run", "parrot", "--session", "chat")
    try:
        terminal.expect("you> ")
        terminal.type("wait forever now\n")
        terminal.expect("parrot:\r\nwait forever ")
        terminal.type(CTRL_C)
        terminal.expect("stopped")
        terminal.expect("you> ")
        terminal.type("still here\n")  # it would be queued behind a run that continues
        terminal.expect("parrot:\r\nstill here ")
        terminal.expect("you> ")
        terminal.type(CTRL_D)
        assert terminal.exit_code() == 0
    finally:
        terminal.close()
    assert served_cli("sessions", "show", "chat").stdout == "wait forever now\nwait forever \nstill here\nstill here \n"


def test_flags_of_a_folder_are_refused_with_a_server(served_cli: Cli) -> None:
    for args, name in (
        (("run", "parrot", "hi", "--session-service", "sqlite:///x.db"), "--session-service"),
        (("sessions", "list", "agents"), "DIR"),
        (("sessions", "show", "one", "--session-service", "sqlite:///x.db"), "--session-service"),
    ):
        done = served_cli(*args)
        assert done.returncode == 1
        assert done.stderr == f"{name} can't be combined with a server (--url or GREENROOM_URL)\n"


def test_an_empty_url_variable_counts_as_unset(served_cli: Cli) -> None:
    assert served_cli("run", "agents", "hi", GREENROOM_URL="").stderr == "parrot:\n"


def test_an_address_without_a_server_is_reported(cli: Cli) -> None:
    wrong = cli("run", "parrot", "hi", "--url", "localhost:8000")
    expected = "'localhost:8000' is not the URL of a server, such as http://127.0.0.1:8000\n"
    assert (wrong.returncode, wrong.stderr) == (1, expected)


def test_a_chat_continues_after_a_restart_of_the_server(cli: Cli) -> None:
    with served(cli, "agents") as (url, _, process):
        port = int(url.rpartition(":")[2])
        terminal = Terminal(cli, "run", "parrot", "--url", url)
        try:
            terminal.expect("you> ")
            terminal.type("one\n")
            terminal.expect("parrot:\r\none ")
            terminal.expect("you> ")
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            with served(cli, "agents", port=port):
                terminal.type("two\n")
                terminal.expect("parrot:\r\ntwo ")
                terminal.expect("you> ")
        finally:
            terminal.close()


def test_the_api_key_is_sent_to_the_server(cli: Cli) -> None:
    made = cli("keys", "create", "agents", "--user", "ada")
    assert made.returncode == 0, made.stderr
    key = made.stdout.split()[-1]
    with served(cli, "agents") as (url, _, _):
        named = {"GREENROOM_URL": url, "GREENROOM_API_KEY": key}
        assert cli("run", "parrot", "hi", "--user", "ada", **named).stdout == "hi \n"
        assert cli("run", "parrot", "hi", "--user", "ada", "--url", url, "--api-key", key).stdout == "hi \n"
        assert len(cli("sessions", "list", "--user", "ada", **named).stdout.splitlines()) == 3
        refused = cli("sessions", "list", "--user", "ada", "--url", url)
        assert (refused.returncode, refused.stdout) == (1, "")
        foreign = cli("run", "parrot", "hi", "--user", "bob", **named)
        assert (foreign.returncode, foreign.stdout) == (1, "")
        assert key not in foreign.stderr + refused.stderr


def test_schedules_of_a_server_are_managed(served_cli: Cli) -> None:
    added = served_cli(
        *("schedules", "add", "parrot", "--user", "ada", "--id", "daily", "--message", "hello", "--cron", "0 9 * * *")
    )
    assert added.stdout == "daily\n"
    assert added.stderr.startswith("next run: ")
    wrong = served_cli("schedules", "add", "parrot", "--user", "ada", "--message", "hello", "--at", "2026-03-01")
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert "has no offset" in wrong.stderr

    assert served_cli("schedules", "pause", "parrot", "daily").stderr == "Paused schedule 'daily'.\n"
    header, row = served_cli("schedules", "list", "parrot").stdout.splitlines()
    assert header.split() == ["id", "user", "times", "next", "run"]
    assert row.split() == ["daily", "ada", "0", "9", "*", "*", "*", "UTC", "paused"]
    times = served_cli("schedules", "times", "parrot", "daily")
    assert [line[10:] for line in times.stdout.splitlines()] == [" 09:00:00+00:00"] * 5
    assert times.stderr == "The schedule is paused.\n"
    assert "next run: 2" in served_cli("schedules", "resume", "parrot", "daily").stderr

    run = served_cli("schedules", "run", "parrot", "daily")
    assert run.stdout.startswith("e-")
    session = run.stderr.split()[1]
    assert session.startswith("daily-")
    assert "hello" in served_cli("sessions", "show", session, "--user", "ada").stdout

    assert served_cli("schedules", "delete", "parrot", "daily").returncode == 0
    gone = served_cli("schedules", "delete", "parrot", "daily")
    assert "App 'parrot' has no schedule 'daily'" in gone.stderr
    assert served_cli("schedules", "list", "parrot").stderr == "No schedules found.\n"
