"""`greenroom eval collect --feedback`: a thumb down becomes a case, which fails until the agent is better."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest

from greenroom.records.feedback import Feedback, feedback_id
from greenroom.runs.engine import run_store_beside
from greenroom.sessions.sqlite import SqliteSessionService
from tests.cli.conftest import PARROT, Cli

STORE = ("--session-service", "sqlite:///chats.db")

JUDGE = """
from greenroom.evaluation.metrics.metric import EvaluationResult
from greenroom.evaluation.records import EvalStatus


def quiet(metric, actual, expected, scenario):
    assert expected is None
    is_quiet = "HEY" not in (actual[-1].text() or "")
    return EvaluationResult(
        overall_score=float(is_quiet), overall_eval_status=EvalStatus.PASSED if is_quiet else EvalStatus.FAILED
    )
"""
CONFIG = {"criteria": {"quiet": 1}, "customMetrics": {"quiet": {"codeConfig": {"name": "judges.quiet"}}}}
QUIET_PARROT = PARROT.replace("f\"The tool said {last.function_response.response['shouted']}\"", "'It said something.'")


async def _judge(folder: Path) -> None:
    """Gives the answer to "shout" a thumb down with a comment, and the others thumbs up."""
    sessions = SqliteSessionService(str(folder / "chats.db"))
    runs = run_store_beside(sessions)
    session = await sessions.get_session(app_name="parrot", user_id="user", session_id="holiday")
    assert session is not None
    for event in session.events:
        if event.is_final_response() and event.author != "user":
            is_bad = "HEY" in (event.content.text() if event.content else "")
            feedback = Feedback(
                **session.key._asdict(),
                id=feedback_id(session.key, event.id, "helpful", "user"),
                event_id=event.id,
                run_id=event.invocation_id,
                name="helpful",
                score=not is_bad,
                comment="Too loud." if is_bad else None,
                source="user",
                subject="user",
                created_at=time.time(),
            )
            await runs.feedback.save(feedback)
    await runs.close()
    await sessions.close()


@pytest.fixture
def judged(cli: Cli) -> Cli:
    for text in ("hello", "shout", "bye"):
        assert cli("run", "agents", text, "--session", "holiday", *STORE).returncode == 0
    asyncio.run(_judge(cli.folder))
    return cli


def test_a_thumb_down_becomes_a_case_that_fails_until_the_agent_is_better(
    judged: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli = judged
    done = cli("eval", "collect", "agents:parrot", "complaints", "--feedback", "helpful", "--days", "1", *STORE)
    assert done.returncode == 0, done.stderr
    assert "Added 1 case to complaints" in done.stderr
    [case] = json.loads((cli.folder / "agents/parrot/complaints.evalset.json").read_text())["eval_cases"]
    assert [turn["user_content"]["parts"][0]["text"] for turn in case["conversation"]] == ["hello", "shout"]
    assert case["given_turns"] == 1
    assert case["tool_results"] == {"shout": [{"args": {"text": "hey"}, "response": {"shouted": "HEY"}}]}
    assert "Too loud." in case["rubrics"][0]["rubric_content"]["text_property"]
    assert case["source"]["feedback"][0]["comment"] == "Too loud."
    assert case["source"]["answer"]["final_response"]["parts"][0]["text"] == "The tool said HEY "

    again = cli("eval", "collect", "agents:parrot", "complaints", "--feedback", "helpful", *STORE)
    assert "Added 0 cases" in again.stderr
    assert "Skipped holiday: The answer has a case in the set already" in again.stderr

    # The case fails on the agent as it is, without its tool, and passes on a better one.
    monkeypatch.syspath_prepend(cli.folder)  # pyright: ignore[reportUnknownMemberType]
    cli.write("judges.py", JUDGE)
    cli.write("config.json", json.dumps(CONFIG))
    broken_tool = PARROT.replace('return {"shouted"', 'raise RuntimeError("ran")  #')
    run = ("eval", "agents:parrot", "complaints", "--config_file_path", "config.json")
    cli.write("agents/parrot/agent.py", broken_tool)
    failed = cli(*run)
    assert (failed.returncode, failed.stdout.count("quiet: 0, at least 1")) == (1, 1), failed.stderr
    assert "complaints@1: 0% of 1" in failed.stdout
    cli.write("agents/parrot/agent.py", QUIET_PARROT)
    passed = cli(*run)
    assert passed.returncode == 0, passed.stdout + passed.stderr

    results = sorted((cli.folder / "agents/parrot/.adk/eval_history").glob("*.json"))
    compared = cli("eval", "compare", *(str(one.relative_to(cli.folder)) for one in results))
    assert "1 better" in compared.stdout, compared.stdout + compared.stderr


def test_an_earlier_version_of_a_set_is_run(judged: Cli) -> None:
    cli = judged
    assert cli("eval", "collect", "agents:parrot", "talk", *STORE).returncode == 0
    good = cli("eval", "collect", "agents:parrot", "talk", "--feedback", "helpful", "--min-score", "1", *STORE)
    assert "Added 2 cases to talk" in good.stderr
    done = cli("eval", "versions", "agents:parrot", "talk")
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["version", "1", "2"]
    assert "added holiday" in done.stdout

    metrics = ("--metrics", "tool_trajectory_avg_score=1")
    assert "talk@1: 100% of 1" in cli("eval", "agents:parrot", "talk@1", *metrics).stdout
    for wanted, error in (("talk@9", "has no version 9"), ("talk@x", "A version of a set is a number")):
        refused = cli("eval", "agents:parrot", wanted, *metrics)
        assert refused.returncode != 0
        assert error in refused.stderr


@pytest.mark.parametrize("given", [("--max-score", "1"), ("--feedback", "helpful", "--session", "holiday")])
def test_options_that_contradict_each_other_are_refused(cli: Cli, given: tuple[str, ...]) -> None:
    done = cli("eval", "collect", "agents:parrot", "talk", *given)
    assert done.returncode != 0
    assert "--feedback" in done.stderr
