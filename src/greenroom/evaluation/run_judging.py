"""Scores a live run by a metric, within the budget of its judge."""

from __future__ import annotations

import time
from decimal import Decimal

from greenroom.apps.app import App
from greenroom.evaluation.invocations import invocations_of
from greenroom.evaluation.metrics.by_name import metrics_of
from greenroom.evaluation.metrics.judge import replies_asked
from greenroom.evaluation.metrics.metric import EvaluationResult, ScoredConversation
from greenroom.evaluation.records import EvalMetric, EvalStatus
from greenroom.evaluation.run import SESSION_PREFIX, app_details
from greenroom.records.event import Event
from greenroom.records.feedback import MAX_COMMENT_LENGTH, FeedbackRequest
from greenroom.records.model_exchange import LlmResponse
from greenroom.records.run import Run
from greenroom.records.run_judge import RunJudge
from greenroom.sessions.service import BaseSessionService
from greenroom.usage.prices import Amount
from greenroom.usage.store import Account, Reservation, UsageStore, day_of

_PAGE = 500


async def judge_run(
    judge: RunJudge, run: Run, app: App, *, sessions: BaseSessionService
) -> tuple[str, FeedbackRequest] | None:
    """The id of the run's answer, and what the judge says about it; None if the judge has used up its budget, or there
    is nothing to judge, as in sessions of evaluations.

    What the judge uses is counted at once, as the usage of a user `judge:NAME`, so that a day's budget is exceeded by
    judgements that are under way at most.

    Raises InvalidRequest for a wrong metric, and the errors of models and stores.
    """
    if run.session_id.startswith(SESSION_PREFIX) or await _is_spent(judge, run, sessions.usage):
        return None

    criterion = {**judge.criterion, "threshold": judge.threshold}
    metric = metrics_of([EvalMetric(metric_name=judge.metric, threshold=judge.threshold, criterion=criterion)])[0]
    events = await _events_of(run, sessions)
    answer = next((one for one in reversed(events) if one.author != "user" and one.is_final_response()), None)
    turns = invocations_of(events, await app_details(app))
    if answer is None or not turns:
        return None

    replies: list[LlmResponse] = []
    before = replies_asked.set(replies)
    try:
        result = await metric.evaluate(ScoredConversation(turns))
    finally:
        replies_asked.reset(before)
        await _count(judge, run, replies, sessions.usage)

    if result.overall_score is None:
        return None
    label = {EvalStatus.PASSED: "passed", EvalStatus.FAILED: "failed"}.get(result.overall_eval_status)
    comment = _rationale(result)[:MAX_COMMENT_LENGTH] or None
    return answer.id, FeedbackRequest(name=judge.name, score=result.overall_score, label=label, comment=comment)


async def _is_spent(judge: RunJudge, run: Run, usage: UsageStore) -> bool:
    now = time.time()
    spent, _ = await usage.balance(Account("run", (_account(judge, run),), day_of(now)), now=now)
    tokens = judge.max_tokens_per_day
    cost = judge.max_cost_per_day
    return (tokens is not None and spent.tokens >= tokens) or (cost is not None and spent.money >= Decimal(str(cost)))


async def _count(judge: RunJudge, run: Run, replies: list[LlmResponse], usage: UsageStore) -> None:
    now = time.time()
    for reply in replies:
        model = reply.model_version or "unknown"
        call = Reservation(
            app_name=run.app_name,
            user_id=f"judge:{judge.name}",
            session_id="",
            run_id=_account(judge, run),
            key="",
            model=model,
            day=day_of(now),
            amount=Amount(),
        )
        await usage.settle(call, reply.usage_metadata, model=model, price=usage.prices.find(model), now=now)


def _account(judge: RunJudge, run: Run) -> str:
    """The id under which usage counts what a judge has used, in place of a run's."""
    return f"judge:{run.app_name}:{judge.name}"


async def _events_of(run: Run, sessions: BaseSessionService) -> list[Event]:
    found: list[Event] = []
    after = run.after_seq
    while True:
        page = await sessions.list_events(**run.session_key._asdict(), after=after, limit=_PAGE)
        found += [event for event in page.events if event.invocation_id == run.id]
        after += len(page.events)
        if not page.events or after >= page.last_seq:
            return found


def _rationale(result: EvaluationResult) -> str:
    """The reasons of the verdicts on rubrics; empty for other metrics, which give none."""
    turns = [turn.details.rubric_scores or [] for turn in result.per_invocation_results]
    return "\n".join(f"{score.rubric_id}: {score.rationale}" for scores in turns for score in scores if score.rationale)
