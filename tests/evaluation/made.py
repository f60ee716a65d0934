"""Results as runs have them."""

from __future__ import annotations

from typing import Any

from greenroom.evaluation.records import (
    EvalCaseResult,
    EvalMetricResult,
    EvalMetricResultPerInvocation,
    EvalStatus,
    IntermediateData,
    Invocation,
    InvocationEvent,
)
from greenroom.records.content import Content, FunctionCall, FunctionResponse, ModelContent, Part, UserContent


def turn(asked: str, said: str, **args: Any) -> Invocation:
    """args: of the call of `find` before the answer."""
    call, response = (
        FunctionCall(id="1", name="find", args=args),
        FunctionResponse(id="1", name="find", response={"n": 1}),
    )
    return Invocation(
        user_content=UserContent(asked),
        final_response=ModelContent(said),
        duration=0.5,
        intermediate_data=IntermediateData(
            invocation_events=[
                InvocationEvent(author="desk", content=Content(role="model", parts=[Part(function_call=call)])),
                InvocationEvent(author="desk", content=Content(role="user", parts=[Part(function_response=response)])),
            ]
        ),
    )


def result(
    eval_id: str, score: float | None, *, said: str = "Done.", city: str = "Oslo", error: str | None = None
) -> EvalCaseResult:
    """It passes with a score of 0.8; without a score it is not evaluated, with an error it fails."""
    status = EvalStatus.NOT_EVALUATED if score is None else EvalStatus.PASSED if score >= 0.8 else EvalStatus.FAILED
    metrics = [
        EvalMetricResult(metric_name="response_match_score", threshold=0.8, score=score, eval_status=status),
        EvalMetricResult(metric_name="tool_call_count_v1", score=1.0, eval_status=EvalStatus.INFORMATIONAL),
    ]
    per_turn = EvalMetricResultPerInvocation(
        actual_invocation=turn("Where to?", said, city=city),
        expected_invocation=turn("Where to?", "Done.", city="Oslo"),
        eval_metric_results=metrics,
    )
    return EvalCaseResult(
        eval_set_id="travel",
        eval_id=eval_id,
        final_eval_status=EvalStatus.FAILED if error else status,
        overall_eval_metric_results=[] if error else metrics,
        eval_metric_result_per_invocation=[] if error else [per_turn],
        user_id="u",
        session_id=f"s-{eval_id}",
        error=error,
    )
