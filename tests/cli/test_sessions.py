from __future__ import annotations

import json

from greenroom.records.base import JsonObject
from greenroom.records.event import Event
from greenroom.records.feedback import Feedback, FeedbackFilter
from greenroom.records.session import GetSessionConfig
from greenroom.runs.engine import run_store_beside
from greenroom.sessions.sqlite import SqliteSessionService
from tests.cli.conftest import Cli

STORE = ("--session-service", "sqlite:///chats.db")


def test_sessions_are_listed_newest_last(cli: Cli) -> None:
    for session, user in (("s1", "ada"), ("s2", "grace"), ("s3", "ada")):
        cli("run", "agents", "hello", *STORE, "--session", session, "--user", user)

    def listed(*args: str) -> list[list[str]]:
        return [line.split()[:3] for line in cli("sessions", "list", *args, *STORE).stdout.splitlines()[1:]]

    everything = [["parrot", "ada", "s1"], ["parrot", "grace", "s2"], ["parrot", "ada", "s3"]]
    assert listed("agents") == everything
    assert listed("--app", "parrot") == everything
    assert listed("agents", "--limit", "2") == everything[1:]
    assert listed("agents", "--user", "grace") == everything[1:2]
    assert listed("--app", "other") == []


def test_a_session_is_shown_with_its_tool_calls(cli: Cli) -> None:
    cli("run", "agents", "shout", *STORE, "--session", "s1")
    done = cli.run_process("sessions", "show", "s1", "agents", *STORE)
    assert done.stdout == "shout\nThe tool said HEY \n"
    assert done.stderr == (
        'app parrot, user user, session s1\nuser:\nparrot:\n→ shout(text="hey")\n← shout: {"shouted":"HEY"}\n'
    )


def test_the_beginning_of_an_id_is_enough_if_it_is_unique(cli: Cli) -> None:
    for session in ("abc-1", "abd-2"):
        cli("run", "agents", session, *STORE, "--session", session)
    assert cli("sessions", "show", "abc", "agents", *STORE).stdout == "abc-1\nabc-1 \n"
    assert "Several sessions match 'ab'" in cli("sessions", "show", "ab", "agents", *STORE).stderr
    missing = cli("sessions", "show", "x", "agents", *STORE)
    assert (missing.returncode, missing.stderr) == (1, "There is no session 'x' in the apps parrot\n")


def test_a_folder_that_was_never_served_has_no_sessions(cli: Cli) -> None:
    done = cli.run_process("sessions", "list", "agents")
    assert done.returncode == 1
    assert "greenroom.db doesn't exist" in done.stderr
    assert not (cli.folder / "agents" / ".greenroom").exists()


def test_the_store_of_the_configuration_is_read(cli: Cli) -> None:
    cli("run", "agents", "hello", *STORE, "--session", "s1", "--user", "ada")
    (cli.folder / "agents" / "greenroom.toml").write_text('session_service = "sqlite:///chats.db"\n')
    assert cli("sessions", "list", "agents").stdout.split()[-5:-2] == ["parrot", "ada", "s1"]


def test_sessions_are_exported_and_imported(cli: Cli) -> None:
    for session, user in (("s1", "ada"), ("s2", "grace")):
        cli("run", "agents", "hello", *STORE, "--session", session, "--user", user)
    done = cli("sessions", "export", "agents", *STORE, "--output", "chats.jsonl")
    assert (done.stdout, done.stderr) == ("", "2 sessions exported\n")
    file = cli.folder / "chats.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    assert cli.run_process("sessions", "export", "agents", *STORE).stdout == "".join(lines)
    first = json.loads(lines[0])
    assert (first["id"], first["userId"], len(first["events"]), first["initialState"]) == ("s1", "ada", 2, {})

    file.write_text(lines[0] + lines[1][:50])  # as after a crash
    cli("sessions", "export", "agents", *STORE, "--output", "chats.jsonl")
    assert file.read_text() == "".join(lines)

    copy = ("--session-service", "sqlite:///copy.db")
    for expected in ("2 sessions imported, 0 already existed\n", "0 sessions imported, 2 already existed\n"):
        assert cli("sessions", "import", "chats.jsonl", *copy).stderr == expected
    copied = cli("sessions", "export", "--app", "parrot", *copy).stdout
    assert copied == "".join(lines)
    file.write_text("{}\n")
    assert "Line 1 is not an exported session" in cli.run_process("sessions", "import", "chats.jsonl", *copy).stderr


async def test_feedback_is_exported_and_imported_with_its_session(cli: Cli) -> None:
    cli("run", "agents", "hello", *STORE, "--session", "s1", "--user", "ada")
    sessions = SqliteSessionService(str(cli.folder / "chats.db"))
    runs = run_store_beside(sessions)
    given = [
        Feedback(
            id=f"f-{number}",
            app_name="parrot",
            user_id="ada",
            session_id="s1",
            event_id=f"v-{number}",
            run_id="e-1",
            name="helpful",
            score=False,
            label="odd",
            comment="Too short.",
            source="user",
            subject="ada",
            created_at=float(number),
        )
        for number in range(3)
    ]
    for feedback in given:
        await runs.feedback.save(feedback)
    await runs.close()
    await sessions.close()

    assert cli("sessions", "export", "agents", *STORE, "--output", "chats.jsonl").stderr == "1 sessions exported\n"
    for _ in range(2):
        assert cli("sessions", "import", "chats.jsonl", "--session-service", "sqlite:///copy.db").returncode == 0
    sessions = SqliteSessionService(str(cli.folder / "copy.db"))
    runs = run_store_beside(sessions)
    where = FeedbackFilter(app_name="parrot", label="odd")
    assert (await runs.feedback.list(where)).feedback == given[::-1]
    await runs.close()
    await sessions.close()


def test_sessions_of_removed_apps_are_included(cli: Cli) -> None:
    cli("run", "agents", "hello", *STORE, "--session", "s1")
    (cli.folder / "agents" / "parrot").rename(cli.folder / "agents" / "budgie")
    assert cli("sessions", "export", "agents", *STORE).stderr == "1 sessions exported\n"
    assert "s1" in cli("sessions", "list", "agents", *STORE).stdout
    assert cli("sessions", "show", "s1", "agents", *STORE).stdout == "hello\nhello \n"


async def test_an_import_restores_the_exported_state(cli: Cli) -> None:
    service = SqliteSessionService(cli.folder / "chats.db")
    owner: JsonObject = {"app_name": "parrot", "user_id": "ada"}
    for number in (1, 2):
        session = await service.create_session(**owner, session_id=f"s{number}", state={"n": 0, "kept": [number]})
        event = Event(author="user", timestamp=float(3 - number))
        event.actions.state_delta = {"n": number, "user:last": number, "app:last": number}
        await service.append(session, event)
    expected = {s.id: s.state for s in (await service.list_sessions(app_name="parrot")).sessions}
    await service.close()
    cli("sessions", "export", "agents", *STORE, "--output", "chats.jsonl")
    cli("sessions", "import", "chats.jsonl", "--session-service", "sqlite:///copy.db")
    service = SqliteSessionService(cli.folder / "copy.db")
    assert {s.id: s.state for s in (await service.list_sessions(app_name="parrot")).sessions} == expected
    past = await service.get_session(**owner, session_id="s1", config=GetSessionConfig(until_seq=0))
    assert past is not None
    assert (past.state["n"], past.state["kept"]) == (0, [1])
    await service.close()
