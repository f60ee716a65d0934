from __future__ import annotations

from tests.cli.conftest import Cli

STORE = ("--session-service", "sqlite:///chats.db")


def test_conversations_are_listed_the_latest_last(cli: Cli) -> None:
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


def test_a_conversation_is_shown_with_its_tool_calls(cli: Cli) -> None:
    cli("run", "agents", "shout", *STORE, "--session", "s1")
    done = cli("sessions", "show", "s1", "agents", *STORE)
    assert done.stdout == "shout\nThe tool said HEY \n"
    assert done.stderr == (
        'app parrot, user user, session s1\nuser:\nparrot:\n→ shout(text="hey")\n← shout: {"shouted":"HEY"}\n'
    )


def test_the_beginning_of_an_id_is_enough_if_only_one_fits(cli: Cli) -> None:
    for session in ("abc-1", "abd-2"):
        cli("run", "agents", session, *STORE, "--session", session)
    assert cli("sessions", "show", "abc", "agents", *STORE).stdout == "abc-1\nabc-1 \n"
    assert "Several sessions fit 'ab'" in cli("sessions", "show", "ab", "agents", *STORE).stderr
    missing = cli("sessions", "show", "x", "agents", *STORE)
    assert (missing.returncode, missing.stderr) == (1, "There is no session 'x' in the apps parrot\n")


def test_a_folder_that_was_never_served_has_no_conversations(cli: Cli) -> None:
    done = cli("sessions", "list", "agents")
    assert done.returncode == 1
    assert "greenroom.db doesn't exist" in done.stderr
    assert not (cli.folder / "agents" / ".greenroom").exists()
