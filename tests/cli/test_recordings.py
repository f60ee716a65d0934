"""`greenroom record` and `greenroom replay`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import PARROT, Cli

CASE = "recordings/talk/shouting"


@pytest.fixture
def recorded(cli: Cli) -> Cli:
    """The parrot got two messages; it has no model any more."""
    done = cli("record", "agents", "hello  there", "shout", "--to", CASE)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "hello there \nThe tool said HEY \n"
    cli.write("agents/parrot/agent.py", PARROT.replace("last = llm", "raise RuntimeError('asked') #"))
    return cli


def test_a_recording_is_a_spec_the_answers_and_the_session(recorded: Cli) -> None:
    folder = recorded.folder / CASE
    assert sorted(path.name for path in folder.iterdir()) == [
        "generated-recordings.yaml",
        "generated-session.yaml",
        "spec.yaml",
    ]
    assert (folder / "spec.yaml").read_text() == (
        "description: ''\nagent: parrot\ninitial_state: {}\nuser_messages:\n- text: hello  there\n- text: shout\n"
    )
    assert "_adk_recordings_config" not in (folder / "generated-session.yaml").read_text()


def test_a_recording_is_replayed_without_the_model(recorded: Cli) -> None:
    done = recorded.run_process("replay", "agents:parrot", "recordings")
    assert (done.returncode, done.stdout) == (0, "✓ talk/shouting\n1 passed, 0 failed\n"), done.stderr


def test_a_difference_is_shown_and_ends_with_1(recorded: Cli) -> None:
    parrot = (recorded.folder / "agents/parrot/agent.py").read_text()
    recorded.write("agents/parrot/agent.py", parrot.replace("tools=[shout]", "tools=[shout], instruction='Be loud.'"))
    done = recorded("replay", "agents", CASE)
    assert (done.returncode, done.stdout) == (1, "✗ talk/shouting\n0 passed, 1 failed\n")
    assert "ReplayVerificationError: Agent 'parrot': model request 1 is not the one that was recorded" in done.stderr
    assert "\n+    Be loud.\n" in done.stderr
    done = recorded("replay", "agents", CASE, "--no-verify-requests")
    assert done.returncode == 0, done.stderr


def test_events_and_state_must_be_the_same(recorded: Cli) -> None:
    parrot = (recorded.folder / "agents/parrot/agent.py").read_text()
    recorded.write("agents/parrot/agent.py", parrot.replace("tools=[shout]", "tools=[shout], output_key='said'"))
    done = recorded("replay", "agents", CASE)
    assert done.returncode == 1
    assert "+  said: 'The tool said HEY '" in done.stderr


def test_streamed_chunks_are_recorded_in_a_second_file(recorded: Cli) -> None:
    recorded.write("agents/parrot/agent.py", PARROT)
    assert recorded("record", "agents", "hello  there", "shout", "--to", CASE, "--stream").returncode == 0
    recorded.write("agents/parrot/agent.py", PARROT.replace("last = llm", "raise RuntimeError('asked') #"))
    assert (recorded.folder / CASE / "generated-recordings-sse.yaml").exists()
    done = recorded("replay", "agents", "recordings")
    assert done.stdout == "✓ talk/shouting\n✓ talk/shouting (streamed)\n2 passed, 0 failed\n", done.stderr


def test_a_replay_without_tools_has_no_side_effects(cli: Cli) -> None:
    noisy = PARROT.replace('return {"shouted"', 'print("a side effect"); return {"shouted"')
    cli.write("agents/parrot/agent.py", noisy)
    assert "a side effect" in cli("record", "agents", "shout", "--to", CASE).stdout
    assert "a side effect" in cli("replay", "agents", CASE).stdout
    done = cli("replay", "agents", CASE, "--no-run-tools")
    assert (done.returncode, done.stdout) == (0, "✓ talk/shouting\n1 passed, 0 failed\n"), done.stderr


def test_an_earlier_recording_is_replaced(recorded: Cli) -> None:
    recorded.write("agents/parrot/agent.py", PARROT)
    assert recorded.run_process("record", "agents", "bye", "--to", CASE).returncode == 0
    assert recorded("replay", "agents", CASE).returncode == 0
    assert "hello" not in (recorded.folder / CASE / "generated-recordings.yaml").read_text()


def test_a_conversation_that_fails_is_not_recorded(cli: Cli) -> None:
    done = cli("record", "agents", "boom", "--to", CASE)
    assert done.returncode == 1
    assert "the model is on fire" in done.stderr
    assert cli("replay", "agents", CASE).returncode == 1


def test_a_stored_conversation_becomes_a_recording(cli: Cli) -> None:
    store = ("--session-service", "sqlite:///chats.db")
    for text in ("hello", "shout", "bye"):
        assert cli("run", "agents", text, "--session", "holiday", *store).returncode == 0
    done = cli("record", "agents", "--session", "holi", "--to", CASE, *store)
    assert done.returncode == 0, done.stderr
    cli.write("agents/parrot/agent.py", PARROT.replace("last = llm", "raise RuntimeError('asked') #"))
    done = cli("replay", "agents", CASE)
    assert (done.returncode, done.stdout) == (0, "✓ talk/shouting\n1 passed, 0 failed\n"), done.stderr


def test_a_stored_conversation_is_exported_up_to_a_run(cli: Cli) -> None:
    store = ("--session-service", "sqlite:///chats.db")
    for text in ("hello", "shout"):
        cli("run", "agents", text, "--session", "holiday", *store)
    assert cli("record", "agents", "--session", "holiday", "--to", CASE, *store).returncode == 0
    session = (cli.folder / CASE / "generated-session.yaml").read_text()
    first = next(line.split()[-1] for line in session.splitlines() if "invocation_id" in line)
    assert cli("record", "agents", "--session", "holiday", "--run", first, "--to", CASE, *store).returncode == 0
    assert "shout" not in (cli.folder / CASE / "spec.yaml").read_text()
    done = cli("record", "agents", "--session", "holiday", "--run", "e-none", "--to", CASE, *store)
    assert "There is no run 'e-none'" in done.stderr


def test_an_answer_to_an_open_call_finds_it_by_name(cli: Cli) -> None:
    waiting = PARROT.replace("tools=[shout]", "tools=[LongRunningFunctionTool(shout)]")
    cli.write("agents/parrot/agent.py", waiting.replace("import BaseLlm", "import LongRunningFunctionTool, BaseLlm"))
    assert cli("record", "agents", "shout", "--to", CASE).returncode == 0
    spec = cli.folder / CASE / "spec.yaml"
    answer = "{function_response: {name: shout, response: {shouted: LATER}}}"
    spec.write_text(f"agent: parrot\nuser_messages:\n- text: shout\n- content: {{role: user, parts: [{answer}]}}\n")
    recordings = cli.folder / CASE / "generated-recordings.yaml"
    reply = "{content: {role: model, parts: [{text: finally}]}}"
    recordings.write_text(
        recordings.read_text()
        + f"- user_message_index: 1\n  agent_name: parrot\n  llm_recording: {{llm_responses: [{reply}]}}\n"
    )
    (cli.folder / CASE / "generated-session.yaml").unlink()
    done = cli("replay", "agents", CASE)
    assert (done.returncode, done.stdout) == (0, "✓ talk/shouting\n1 passed, 0 failed\n"), done.stderr


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("agent: other\n", "recorded with the app 'other', not with 'parrot'"),
        ("agent: parrot\nmood: good\n", "unknown field `mood`"),
        ("agent: parrot\nuser_messages: [{text: hello, tone: x}]\n", "unknown field `tone`"),
        ("agent: parrot\nuser_messages: [{content: {parts: 7}}]\n", "parts"),
        ("agent: [", "not valid YAML"),
    ],
)
def test_an_invalid_spec_is_refused(recorded: Cli, spec: str, why: str) -> None:
    (recorded.folder / CASE / "spec.yaml").write_text(spec)
    done = recorded("replay", "agents", CASE)
    assert done.returncode == 1
    assert "ReplayConfigError" in done.stderr
    assert why in done.stderr


def test_missing_and_contradictory_arguments_are_reported(cli: Cli) -> None:
    done = cli("replay", "agents", "nowhere")
    assert (done.returncode, done.stderr) == (1, "There are no recordings in nowhere\n")
    assert "Give either messages to record" in cli("record", "agents", "--to", CASE).stderr
    assert "Give either messages to record" in cli("record", "agents", "hi", "--session", "s", "--to", CASE).stderr
    assert "no chunks" in cli("record", "agents", "--session", "s", "--stream", "--to", CASE).stderr
    assert not Path(cli.folder / CASE).exists()


def test_a_changed_agent_differs_from_stored_conversations(cli: Cli) -> None:
    store = ("--session-service", "sqlite:///chats.db")
    for session, text in (("one", "hello"), ("two", "shout")):
        assert cli("run", "agents", text, "--session", session, *store).returncode == 0
    silent = PARROT.replace("last = llm", "raise RuntimeError('asked') #")
    cli.write("agents/parrot/agent.py", silent)
    done = cli("replay", "agents", "--newest", "10", *store)
    assert (done.returncode, done.stdout) == (0, "✓ two\n✓ one\n2 passed, 0 failed\n"), done.stderr
    cli.write("agents/parrot/agent.py", silent.replace("tools=[shout]", "tools=[shout], output_key='said'"))
    done = cli("replay", "agents", "--session", "tw", *store)
    assert (done.returncode, done.stdout) == (1, "✗ two\n0 passed, 1 failed\n")
    assert "Event 4 of 4" in done.stderr
    cli.write("agents/parrot/agent.py", PARROT.replace('"hey"', '"hoy"').replace("['shouted']", ".get('shouted')"))
    done = cli("replay", "agents", "--newest", "2", "--own-model", *store)
    assert (done.returncode, done.stdout) == (1, "✗ two\n✓ one\n1 passed, 1 failed\n"), done.stderr
    assert '-call shout {"text":"hey"}\n' in done.stderr
    assert '+call shout {"text":"hoy"}\n' in done.stderr
    assert cli("replay", "agents", CASE, "--newest", "2", *store).returncode == 1
