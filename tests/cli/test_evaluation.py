"""`greenroom eval`: scores, exit codes, reports, and a run that is killed and continued."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

from tests.cli.conftest import Cli


def _write_set(cli: Cli, name: str, *replies: str) -> None:
    """Cases in which the user says what the parrot is expected to repeat."""
    cases = [
        {
            "eval_id": f"c{number}",
            "conversation": [
                {
                    "user_content": {"role": "user", "parts": [{"text": reply.partition("|")[0]}]},
                    "final_response": {"role": "model", "parts": [{"text": reply.rpartition("|")[2]}]},
                }
            ],
        }
        for number, reply in enumerate(replies)
    ]
    cli.write(f"agents/parrot/{name}.evalset.json", json.dumps({"eval_set_id": name, "eval_cases": cases}))


def _history(cli: Cli) -> list[Path]:
    return sorted((cli.folder / "agents/parrot/.adk/eval_history").iterdir())


def test_a_set_is_scored_and_its_result_stored(cli: Cli) -> None:
    _write_set(cli, "talk", "hello there", "good|bad")
    done = cli("eval", "agents", "talk", "--metrics", "response_match_score=0.8")
    assert done.returncode == 1, done.stderr
    assert done.stdout == (
        "✓ c0\n✗ c1\n    response_match_score: 0, at least 0.8\ntalk@1: 50% of 2 (9%–91%) passed, 1 failed\n"
    )
    [result] = _history(cli)
    assert json.loads(result.read_text())["eval_case_results"][1]["final_eval_status"] == 2


@pytest.mark.parametrize(("given", "code"), [("talk", 1), ("talk:c0", 0), ("agents/parrot/talk.evalset.json:c0", 0)])
def test_too_few_passes_end_with_1(cli: Cli, given: str, code: int) -> None:
    _write_set(cli, "talk", "hello there", "good|bad")
    done = cli("eval", "agents:parrot", given, "--fail-under", "0.9", "--report", "r.xml", "--report", "r.html")
    assert done.returncode == code, done.stderr
    assert ("50.0% passed, 90.0% required" in done.stderr) is bool(code)
    assert "<testsuites>" in (cli.folder / "r.xml").read_text()
    assert "</html>" in (cli.folder / "r.html").read_text()


def test_a_configuration_file_is_used_and_mistakes_are_reported(cli: Cli) -> None:
    _write_set(cli, "talk", "hello there")
    cli.write("config.json", '{"criteria": {"response_match_score": 1}}')
    cli.write("broken.json", "{")
    cli.write("empty.json", "{}")
    done = cli("eval", "agents", "talk", "--config_file_path", "config.json", "--print_detailed_results")
    assert "    response_match_score: 1.0\n" in done.stdout
    for wrong, words in (
        (["talk:c9"], "no cases c9"),
        (["nope"], "'nope' not found"),
        (["talk", "--metrics", "nope"], "no metric 'nope'"),
        (["talk", "--config-file-path", "nope.json"], "can't be read"),
        (["talk", "--config-file-path", "broken.json"], "broken.json: "),
        (["talk", "broken.json"], "broken.json: The file is not valid JSON"),
        (["talk", "empty.json"], "empty.json: "),
        (["talk", "--samples", "0"], "samples is from 1"),
        ([], "Name an evaluation set"),
    ):
        done = cli("eval", "agents", *wrong)
        assert done.returncode != 0
        assert words in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--report", "r.pdf"), "A report ends with .xml, .md, .html, not 'r.pdf'"),
        (("--fail-under", "90"), "--fail-under must be from 0 to 1, not 90"),
    ],
)
def test_mistakes_in_options_are_reported_before_any_case_is_run(cli: Cli, given: tuple[str, str], said: str) -> None:
    _write_set(cli, "talk", "hello there")
    done = cli("eval", "agents", "talk", *given)
    assert (done.returncode, done.stdout) == (1, "")
    assert said in done.stderr
    assert not (cli.folder / "agents/parrot/.adk").exists()


def test_errors_of_tools_are_reported_without_a_traceback(cli: Cli) -> None:
    agent = (cli.folder / "agents/parrot/agent.py").read_text()
    cli.write("agents/parrot/agent.py", agent.replace("return {", "raise ValueError('hoarse')  # {"))
    _write_set(cli, "talk", "shout")
    done = cli("eval", "agents", "talk")
    assert (done.returncode, "ValueError: hoarse" in done.stdout, "Traceback" in done.stderr) == (1, True, False)
    debugged = cli.run_process("eval", "agents", "talk", "--debug")
    assert "Traceback" in debugged.stderr


def test_stored_conversations_become_cases(cli: Cli) -> None:
    store = ("--session-service", "sqlite:///chats.db")
    for number in range(3):
        said = cli("run", "agents", f"hello {number}", *store, "--session", f"talk-{number}", "--user", "ada")
        assert said.returncode == 0, said.stderr
    done = cli.run_process("eval", "collect", "agents", "talks", *store, "--user", "bob")
    assert "Added 0 cases" in done.stderr
    done = cli("eval", "collect", "agents", "talks", *store, "--session", "talk-1")
    assert "Added 1 case " in done.stderr
    done = cli("eval", "collect", "agents", "talks", *store)
    assert "Added 2 cases" in done.stderr
    done = cli("eval", "agents", "talks:talk_0,talk_2")
    assert "talks@2: 100% of 2" in done.stdout, done.stderr


@pytest.mark.kill
def test_a_killed_run_is_continued(cli: Cli) -> None:
    """The last case waits for ever, until the agent is replaced by one that answers: that is another version, so the
    model is configured by a file outside of the app."""
    _write_set(cli, "many", *(f"case {number}" for number in range(20)), "wait")
    agent = (cli.folder / "agents/parrot/agent.py").read_text()
    waiting = (
        '        with open("said.txt", "a") as said:\n'
        '            said.write(str(last.text) + "\\n")\n'
        '        if last.text == "wait" and not __import__("os").path.exists("go"):\n'
        "            await asyncio.Event().wait()\n"
    )
    line = "        last = llm_request.contents[-1].parts[-1]\n"
    assert line in agent
    cli.write("agents/parrot/agent.py", agent.replace(line, line + waiting))
    process = cli.start("eval", "agents", "many")
    said = cli.folder / "said.txt"
    give_up_at = time.monotonic() + 30
    while not (said.exists() and "wait" in said.read_text() and len(_journal(cli)) == 20):
        assert time.monotonic() < give_up_at
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    cli.write("go", "")
    done = cli("eval", "agents", "many", "--metrics", "response_match_score=0.8")
    assert "100% of 21" in done.stdout  # other metrics: from the start
    said.unlink()
    done = cli("eval", "agents", "many")
    assert "100% of 21" in done.stdout, done.stderr
    assert said.read_text() == "wait\n"
    assert _journal(cli) == []


def _journal(cli: Cli) -> list[bytes]:
    files = [path for path in _history(cli) if path.name.endswith(".jsonl")]
    return files[0].read_bytes().splitlines() if files else []
