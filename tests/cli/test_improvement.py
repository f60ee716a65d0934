"""`greenroom eval compare` and `scenarios`, and `greenroom optimize`."""

from __future__ import annotations

import json

import msgspec
import pytest

from greenroom.evaluation.records import EvalSetResult
from tests.cli.conftest import PARROT, Cli
from tests.cli.test_evaluation import _history, _write_set
from tests.documentation.pages import ROOT, blocks_of
from tests.evaluation.made import result

CONFIG = '{"criteria": {"response_match_score": 0.9}}'
QUIET = PARROT.replace("text = last.text or", 'text = "no" if last.text == "hello" else last.text or')

PROPOSER = """
from greenroom import BaseLlm, LLMRegistry, LlmAgent, LlmResponse, types


class Scripted(BaseLlm):
    async def generate_content_async(self, llm_request, stream=False):
        said = llm_request.contents[-1].parts[-1].text
        if "# Failed tests" in said:
            text = "<instruction>Say dear.</instruction>"
        elif "Invent 2 " in said:
            one = '{"starting_prompt": "%s", "conversation_plan": "p"}'
            text = f'{{"scenarios": [{one % "a"}, {one % "b"}]}}'
        else:
            text = f"Dear {said}" if "dear" in llm_request.config.system_text() else said
        yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text=text)]))


LLMRegistry.register("scripted", lambda name: Scripted(model=name))
root_agent = LlmAgent(name="parrot", model=Scripted(model="scripted"), instruction="Greet.")
"""


def test_results_are_compared(cli: Cli) -> None:
    _write_set(cli, "talk", "hello", "good")
    cli.write("config.json", CONFIG)
    for source, failed in ((PARROT, 0), (QUIET, 1)):
        cli.write("agents/parrot/agent.py", source)
        assert cli("eval", "agents", "talk", "--config_file_path", "config.json").returncode == failed
    before, after = map(str, sorted(_history(cli), key=lambda path: path.stat().st_mtime))
    done = cli("eval", "compare", before, after, "--report", "change.md")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    counts = lines.index("1 worse, 1 unchanged")
    assert lines[0] == "worse: c0"
    assert "-agent: hello " in lines
    assert "+agent: no " in lines
    assert lines[counts + 1].startswith("pass rate: -50.0 points (")
    assert lines[counts + 1].endswith(", 2 pairs, p = 1.000: may be chance; about 16 pairs of results would tell")
    assert "worse: c0" in (cli.folder / "change.md").read_text()
    assert cli.run_process("eval", "compare", before, "none.json").returncode == 1


def test_two_versions_of_an_agent_are_run_side_by_side(cli: Cli) -> None:
    _write_set(cli, "talk", *(["hello"] * 8))
    cli.write("config.json", CONFIG)
    cli.write("changed/parrot/agent.py", QUIET)
    cli.write("changed/parrot/talk.evalset.json", (cli.folder / "agents/parrot/talk.evalset.json").read_text())
    done = cli("eval", "compare", "agents", "changed", "--set", "talk", "--config-file-path", "config.json")
    assert done.returncode == 1, done.stderr
    assert (
        "\n8 worse\npass rate: -100.0 points (-100.0 points to -100.0 points), 8 pairs, p = 0.008: more than chance\n"
        in done.stdout
    )
    done = cli("eval", "compare", "changed", "agents", "--set", "talk:c0,c1", "--config-file-path", "config.json")
    assert done.returncode == 0, done.stderr
    assert "\n2 better\n" in done.stdout


def test_scenarios_are_added_once_from_a_file_or_a_model(cli: Cli) -> None:
    scenario = {"starting_prompt": "Hi", "conversation_plan": "Say bye.", "user_persona": "NOVICE"}
    cli.write("scenarios.json", json.dumps({"scenarios": [scenario]}))
    cli.write("session.json", '{"app_name": "parrot", "user_id": "ada", "state": {"n": 1}}')
    add = ("eval", "scenarios", "agents", "wishes", "--scenarios-file", "scenarios.json")
    done = cli(*add, "--session-input-file", "session.json")
    assert done.stdout == "1 scenarios added to wishes, 0 already existed\n", done.stderr
    assert cli(*add).stdout == "0 scenarios added to wishes, 1 already existed\n"
    cli.write("agents/parrot/agent.py", PROPOSER)
    done = cli("eval", "scenarios", "agents", "wishes", "--generate", "2", "--model", "scripted")
    assert done.stdout == "2 scenarios added to wishes, 0 already existed\n", done.stderr
    written = json.loads((cli.folder / "agents/parrot/wishes.evalset.json").read_text())["eval_cases"]
    assert [one["conversation_scenario"]["starting_prompt"] for one in written] == ["Hi", "a", "b"]
    assert written[0]["session_input"]["user_id"] == "ada"
    assert "either" in cli.run_process("eval", "scenarios", "agents", "wishes").stderr


@pytest.mark.parametrize("more", [(), ("--max-metric-calls", "5")])
def test_an_instruction_is_optimized(cli: Cli, more: tuple[str, ...]) -> None:
    cli.write("agents/parrot/agent.py", PROPOSER)
    _write_set(cli, "talk", "ada|Dear ada", "bob|Dear bob", "cy|Dear cy", "dan|Dear dan")
    sampler = {"app_name": "parrot", "train_eval_set": "talk", "eval_config": json.loads(CONFIG)}
    cli.write("sampler.json", json.dumps(sampler))
    cli.write("optimizer.json", '{"optimizer_model": "scripted", "reflection_minibatch_size": 2}')
    files = ("sampler.json", "--optimizer-config-file-path", "optimizer.json", "--to", "best.txt")
    done = cli.run_process("optimize", "agents", *files, *more)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("✓ 0% of 2 (0%–66%) held-out cases: Greet.")
    best = (cli.folder / "best.txt").read_text()
    if more:
        assert best == "Greet."
    else:
        assert lines[1].startswith(
            "✓ 100% of 2 (34%–100%) failed cases, 100% of 2 (34%–100%) held-out cases: Say dear."
        )
        assert best == lines[-1] == "Say dear."


def test_the_page_on_simulation_shows_what_a_comparison_prints(cli: Cli) -> None:
    def results(path: str, passed: list[bool], digest: str) -> None:
        numbered = [
            msgspec.structs.replace(result(f"c{number}", float(is_passed)), eval_case_digest="same")
            for number, is_passed in enumerate(passed)
        ]
        edited = msgspec.structs.replace(result("edited", 1.0), eval_case_digest=digest)
        whole = EvalSetResult(
            eval_set_result_id=path, eval_set_result_name=path, eval_set_id="s", eval_case_results=[*numbered, edited]
        )
        cli.write(path, msgspec.json.encode(whole).decode())

    results("first.json", [False] * 7 + [True] * 7 + [False] * 6, "1")
    results("second.json", [True] * 7 + [False] + [True] * 6 + [False] * 6, "2")
    printed = cli("eval", "compare", "first.json", "second.json").stdout
    [shown] = [block.text for block in blocks_of(ROOT / "docs/simulation.md") if block.language == "text"]
    assert shown in printed
