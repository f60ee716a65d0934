"""An instruction is kept only if cases pass more that it was not made for."""

from __future__ import annotations

from typing import Any

import pytest

from greenroom import App, LlmAgent
from greenroom.errors import AgentConfigError, InvalidRequest
from greenroom.evaluation.config import EvalConfig
from greenroom.evaluation.optimize import MAX_IN_VAIN, OptimizerConfig, SamplerConfig, Search
from greenroom.evaluation.records import EvalCase, EvalSet, Invocation
from greenroom.records.content import ModelContent, UserContent
from greenroom.records.model_exchange import LlmRequest
from greenroom.testing.scripted_model import ScriptedModel

CONFIG = EvalConfig(criteria={"response_match_score": 0.9})


def case(name: str, answer: str) -> EvalCase:
    turn = Invocation(user_content=UserContent(name), final_response=ModelContent(answer))
    return EvalCase(eval_id=name, conversation=[turn])


def cases(*names: str) -> EvalSet:
    return EvalSet(eval_set_id="s", eval_cases=[case(name, f"Dear {name}") for name in names])


def polite(request: LlmRequest) -> str:
    """It says "dear" if its instruction has it, and the name unless it is instructed not to."""
    system, name = request.config.system_text(), request.contents[-1].text()
    return f"{'Dear' if 'dear' in system else 'Hey'} {'nobody' if name in system else name}"


def app(**fields: Any) -> App:
    options: dict[str, Any] = {"instruction": "Greet.", **fields}
    agent = LlmAgent(name="desk", model=ScriptedModel(polite), **options)
    return App(name="desk", root_agent=agent)


def proposing(*instructions: str) -> ScriptedModel:
    return ScriptedModel([f"Better: <instruction>{one}</instruction>" for one in instructions])


def search(model: ScriptedModel, **options: Any) -> Search:
    config = OptimizerConfig(optimizer_model=model, **options)
    return Search(app(), cases("ada", "bob"), cases("cy", "dan"), CONFIG, config)


async def test_what_passes_more_of_the_held_out_cases_is_kept() -> None:
    model = proposing("Say hey.", "Greet; say dear, but not to cy and dan.", "Greet, say dear.")
    found = search(model)
    best = await found.run()
    assert best.instruction == "Greet, say dear."
    assert [
        (one.is_kept, one.minibatch and one.minibatch.passed, one.held_out and one.held_out.passed)
        for one in found.candidates
    ] == [
        (True, None, 0),
        (False, 0, None),
        (False, 2, 0),
        (True, 2, 2),
    ]
    assert len(model.requests) == 3
    prompt = model.requests[0].contents[0].text()
    assert "# Present instruction\nGreet.\n" in prompt
    assert "-agent: Dear ada\n+agent: Hey ada" in prompt
    assert "cy" not in prompt


async def test_the_search_ends_with_its_calls_or_after_proposals_in_vain() -> None:
    found = search(proposing(*(f"Say hey {number}." for number in range(9))))
    await found.run()
    assert len(found.candidates) == 1 + MAX_IN_VAIN
    found = search(proposing("Say hey.", "Never tried."), max_metric_calls=8)
    assert (await found.run()).instruction == "Greet."
    assert len(found.candidates) == 2
    with pytest.raises(InvalidRequest, match="at least 4"):
        await search(proposing(), max_metric_calls=3).run()


async def test_nothing_is_proposed_when_nothing_fails() -> None:
    fine = Search(
        app(instruction="dear"), cases("ada"), cases("bob"), CONFIG, OptimizerConfig(optimizer_model=proposing())
    )
    best = await fine.run()
    assert best.held_out is not None
    assert (best.instruction, best.held_out.rate, len(fine.candidates)) == ("dear", 1, 1)


async def test_a_proposal_without_marks_changes_nothing() -> None:
    found = search(ScriptedModel(["I can't."] * MAX_IN_VAIN))
    assert (await found.run()).instruction == "Greet."
    assert all(one.minibatch is None for one in found.candidates[1:])


def test_instructions_made_by_code_are_not_optimized() -> None:
    with pytest.raises(AgentConfigError, match="whose instruction is a text"):
        Search(app(instruction=lambda _: "x"), cases("a"), cases("b"), CONFIG)


def test_adks_sampler_file_says_which_cases_are_held_out() -> None:
    written = {"app_name": "desk", "train_eval_set": "s", "eval_config": {"criteria": {"response_match_score": 0.9}}}
    sets = {"s": cases("a", "b", "c"), "v": cases("x", "y")}

    def chosen(**more: Any) -> tuple[list[str], list[str]]:
        train, held_out = SamplerConfig.model_validate({**written, **more}).cases(sets)
        return [one.eval_id for one in train.eval_cases], [one.eval_id for one in held_out.eval_cases]

    assert chosen(validation_eval_set="v") == (["a", "b", "c"], ["x", "y"])
    ids = {"train_eval_case_ids": ["a"], "validation_eval_case_ids": ["c"]}
    assert chosen(**ids) == (["a"], ["c"])
    train, held_out = chosen()
    assert (sorted(train + held_out), len(held_out)) == (["a", "b", "c"], 1)
    assert chosen() == (train, held_out)
    with pytest.raises(InvalidRequest, match="no cases q"):
        chosen(train_eval_case_ids=["q"])
    with pytest.raises(InvalidRequest, match="at least two"):
        chosen(train_eval_case_ids=["a"])
