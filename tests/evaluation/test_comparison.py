"""Comparisons of results: better and worse cases, by metric."""

from __future__ import annotations

import msgspec
import pytest

from greenroom.evaluation.comparison import compare_results, conversation_lines, counted, metric_summaries
from greenroom.evaluation.records import EvalCaseResult, IntermediateData, Invocation
from greenroom.records.content import Content, FunctionCall, Part
from tests.evaluation.made import result, turn


def test_cases_are_better_worse_unchanged_added_or_removed() -> None:
    first = [result("a", 0.1), result("b", 0.9), result("c", 0.9), result("d", 0.2), result("old", 1.0)]
    second = [result("a", 0.9), result("b", 0.1), result("c", 0.8), result("d", None), result("new", 1.0)]
    found = compare_results(first, second)
    assert {one.eval_id: one.verdict for one in found.cases} == {
        "a": "better",
        "b": "worse",
        "c": "unchanged",
        "d": "unchanged",
        "old": "removed",
        "new": "added",
    }
    assert [one.eval_id for one in found.of("better", "worse")] == ["a", "b"]
    assert found.passed is not None
    assert (found.passed.pairs, found.passed.difference, found.passed.is_significant) == (3, 0, False)
    assert found.scores["response_match_score"].pairs == 3
    assert found.cases[0].first_scores == {"response_match_score": 0.1, "tool_call_count_v1": 1.0}


def test_a_diff_shows_calls_and_texts_of_one_that_passed_and_one_that_failed() -> None:
    first = [result("a", 0.9), result("a", 0.1, said="No idea.")]
    second = [result("a", 0.1, said="Sorry,\nno.", city="Rome"), result("a", 0.1, said="Eh?")]
    [case] = compare_results(first, second).cases
    assert case.verdict == "worse"
    assert case.diff.splitlines()[1:] == [
        " user: Where to?",
        '-call find {"city":"Oslo"}',
        '+call find {"city":"Rome"}',
        ' result find {"n":1}',
        "-agent: Done.",
        "+agent: Sorry,",
        "+  no.",
    ]
    assert compare_results(first, first).cases[0].diff == ""


def test_many_cases_that_got_better_are_more_than_chance() -> None:
    first = [result(f"c{number}", 0.9 if number % 2 else 0.1) for number in range(40)]
    second = [result(f"c{number}", 0.9) for number in range(40)]
    found = compare_results(first, second)
    assert found.passed is not None
    assert found.passed.difference == pytest.approx(0.5)
    assert found.passed.is_significant
    assert found == compare_results(first, second)


def test_a_case_that_was_edited_in_between_is_not_compared() -> None:
    def digested(eval_id: str, score: float, digest: str | None) -> EvalCaseResult:
        return msgspec.structs.replace(result(eval_id, score), eval_case_digest=digest)

    first = [digested("a", 0.9, "1"), digested("b", 0.9, "2"), digested("c", 0.9, None)]
    second = [digested("a", 0.1, "1"), digested("b", 0.1, "3"), digested("c", 0.1, "4")]
    found = compare_results(first, second)
    assert {one.eval_id: one.verdict for one in found.cases} == {"a": "worse", "b": "edited", "c": "worse"}
    assert found.passed is not None
    assert found.passed.pairs == 2


def test_results_with_nothing_in_common_have_no_difference() -> None:
    found = compare_results([result("a", 0.9)], [result("b", 0.9)])
    assert (found.passed, found.scores) == (None, {})


def test_an_error_is_a_failure_and_what_was_not_evaluated_does_not_count() -> None:
    results = [result("a", 0.9), result("b", None), result("c", 0.9, error="down"), result("a", 0.7)]
    assert (counted(results).passed, counted(results).total) == (1, 3)
    matched, calls = metric_summaries(results)
    assert (matched.metric_name, matched.threshold, matched.scores) == ("response_match_score", 0.8, [0.9, 0.7])
    assert matched.passed is not None
    assert matched.passed.total == 2
    assert (calls.passed, calls.mean) == (None, 1.0)
    [case] = compare_results(results[2:3], results[2:3]).cases
    assert case.first is not None
    assert case.first.rate == 0


def test_the_order_of_arguments_does_not_matter_and_older_trajectories_are_shown() -> None:
    one, other = turn("a", "b", x=1, y=2), turn("a", "b", y=2, x=1)
    assert conversation_lines([one]) == conversation_lines([other])
    older = Invocation(
        user_content=Content(role="user", parts=[Part(text="hi")]),
        intermediate_data=IntermediateData(tool_uses=[FunctionCall(name="find", args={"n": 1})]),
    )
    assert conversation_lines([older]) == ["user: hi", 'call find {"n":1}']
