"""Workflows of the tests. They run in Temporal's sandbox."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    from greenroom.temporal import AgentActivity, AgentRequest, AgentRunInput, AgentRunResult

TASK_QUEUE = "agents"


@dataclass(frozen=True)
class Limits:
    """Settings of an activity; times in seconds."""

    start_to_close: float = 60.0
    schedule_to_close: float | None = None
    heartbeat: float | None = 2.0
    attempts: int = 0


@dataclass(frozen=True)
class Question:
    request: AgentRunInput
    limits: Limits = field(default_factory=Limits)


async def run_agent(request: AgentRunInput, limits: Limits) -> AgentRunResult:
    until = limits.schedule_to_close
    return await workflow.execute_activity_method(
        AgentActivity.run,
        request,
        start_to_close_timeout=timedelta(seconds=limits.start_to_close),
        schedule_to_close_timeout=None if until is None else timedelta(seconds=until),
        heartbeat_timeout=None if limits.heartbeat is None else timedelta(seconds=limits.heartbeat),
        cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        retry_policy=RetryPolicy(
            initial_interval=timedelta(milliseconds=100),
            maximum_interval=timedelta(seconds=1),
            maximum_attempts=limits.attempts,
        ),
    )


@workflow.defn
class Ask:
    """Asks an agent once."""

    @workflow.run
    async def run(self, question: Question) -> AgentRunResult:
        return await run_agent(question.request, question.limits)


@workflow.defn
class AskUntilItEnds:
    """Passes each request of the run on to a person, who answers by a signal."""

    def __init__(self) -> None:
        self._requests: list[AgentRequest] = []
        self._answers: list[dict[str, Any]] = []

    @workflow.run
    async def run(self, question: Question) -> AgentRunResult:
        asked = question.request
        result = await run_agent(asked, question.limits)
        while result.requests:
            self._requests = result.requests
            await workflow.wait_condition(lambda: bool(self._answers))
            answer = self._answers.pop(0)
            responses = [request.respond(answer) for request in result.requests]
            self._requests = []
            again = AgentRunInput(asked.app_name, asked.user_id, session_id=result.session_id, responses=responses)
            result = await run_agent(again, question.limits)
        return result

    @workflow.signal
    def answer(self, answer: dict[str, Any]) -> None:
        self._answers.append(answer)

    @workflow.query
    def requests(self) -> list[AgentRequest]:
        return self._requests


@workflow.defn
class AskTwice:
    """Asks the same twice at a time: two activities are two runs."""

    @workflow.run
    async def run(self, question: Question) -> list[AgentRunResult]:
        return list(await asyncio.gather(*(run_agent(question.request, question.limits) for _ in range(2))))


@workflow.defn
class AskAndStay:
    """Goes on after its agent has failed, until it is told to end."""

    def __init__(self) -> None:
        self._is_over = False

    @workflow.run
    async def run(self, question: Question) -> str:
        try:
            return (await run_agent(question.request, question.limits)).text
        except ActivityError:
            await workflow.wait_condition(lambda: self._is_over)
            return "failed"

    @workflow.signal
    def end(self) -> None:
        self._is_over = True


WORKFLOWS = [Ask, AskUntilItEnds, AskTwice, AskAndStay]
