"""Runs the cases of a set on an app, and scores them."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from decimal import Decimal
from functools import partial
from typing import NamedTuple

import msgspec

from greenroom.apps.app import App
from greenroom.apps.describe import describe
from greenroom.artifacts.in_memory import InMemoryArtifactService
from greenroom.errors import GreenroomError, InvalidRequest, SessionExists
from greenroom.evaluation.invocations import events_of, invocation_of
from greenroom.evaluation.journal import Journal
from greenroom.evaluation.metrics.judge import replies_asked
from greenroom.evaluation.metrics.metric import EvaluationMetric, EvaluationResult, ScoredConversation
from greenroom.evaluation.records import (
    DEFAULT_USER,
    AgentDetails,
    AppDetails,
    EvalCase,
    EvalCaseResult,
    EvalMetricResult,
    EvalMetricResultDetails,
    EvalMetricResultPerInvocation,
    EvalSet,
    EvalSetResult,
    EvalStatus,
    Invocation,
    InvocationEvent,
)
from greenroom.evaluation.simulation import RecordedUser, UserSimulator
from greenroom.evaluation.tool_stubs import ToolResultsPlugin
from greenroom.memory.in_memory import InMemoryMemoryService
from greenroom.records.content import Content
from greenroom.records.event import Event
from greenroom.records.model_exchange import LlmResponse
from greenroom.records.session import Session, SessionKey
from greenroom.runner.runner import Runner
from greenroom.sessions.in_memory import InMemorySessionService
from greenroom.sessions.service import BaseSessionService
from greenroom.usage.prices import default_prices

_log = logging.getLogger("greenroom.evaluation")

SESSION_PREFIX = "adk-eval-session-"


class AgentUnderTest(NamedTuple):
    """The agent that is evaluated, and where its sessions are."""

    app_name: str
    sessions: BaseSessionService
    """The store in which the sessions of the cases are made."""

    run: Callable[[SessionKey, Content], AsyncGenerator[Event]]
    """One run on a session, without the user's own event."""

    user_id: str = DEFAULT_USER
    """Of cases that name no user."""

    @classmethod
    def of(cls, runner: Runner) -> AgentUnderTest:
        def run(key: SessionKey, message: Content) -> AsyncGenerator[Event]:
            return runner.run_async(
                user_id=key.user_id,
                session_id=key.session_id,
                new_message=message,
            )

        return cls(runner.app_name, runner.session_service, run)


class RunOptions(msgspec.Struct, kw_only=True):
    """Repetition, concurrency and limits of the cases.

    The limits hold for all cases together, judges and simulated users included. When one of them
    is reached, no further case is started. Time, and what judges used, are counted since this
    process began.
    """

    samples: int = 1
    """Runs of each case."""

    parallel: int = 4
    """Cases at once."""

    max_tokens: int | None = None
    max_cost: float | None = None
    """In the currency of the price table."""

    max_seconds: float | None = None

    def __post_init__(self) -> None:
        for name, number, most in (("samples", self.samples, 1000), ("parallel", self.parallel, 100)):
            if not 1 <= number <= most:
                raise InvalidRequest(f"{name} is from 1 to {most}, not {number}")


class Evaluation:
    """Evaluates cases. `results` yields the result of each as it ends; `summary` then covers all."""

    def __init__(
        self,
        agent: AgentUnderTest,
        eval_set: EvalSet,
        metrics: Sequence[EvaluationMetric],
        *,
        eval_ids: Sequence[str] = (),
        options: RunOptions | None = None,
        simulator: Callable[[EvalCase], UserSimulator] = RecordedUser,
        journal: Journal | None = None,
        app_details: AppDetails | None = None,
        app: App | None = None,
        offline_sessions: Callable[[], BaseSessionService] = InMemorySessionService,
    ) -> None:
        """Prepares an evaluation.

        eval_ids: the cases to run; all if empty.
        simulator: makes the user of a case. By default the user sends the messages in the case's conversation.
        journal: of a run that may be continued; its results are yielded first.
        app: the agent's app, for cases with results of tools: each runs apart from the stores of `agent`, in a session
        of `offline_sessions()`.

        Raises InvalidRequest for unknown cases, and for cases that need the app where there is none.
        """
        self._agent = agent
        self._set = eval_set
        self._metrics = metrics
        self._options = options or RunOptions()
        self._simulator = simulator
        self._journal = journal
        self._details = app_details
        self._app = app
        self._offline_sessions = offline_sessions
        self._prices = default_prices()
        self._tokens = 0
        self._cost = Decimal(0)
        self._begun = 0.0

        if eval_ids:
            self._cases = eval_set.select(eval_ids).eval_cases
        else:
            self._cases = eval_set.eval_cases

        if app is None and any(case.tool_results is not None for case in self._cases):
            raise InvalidRequest("Cases with results of tools need the app of the agent")

        self.total = len(self._cases) * self._options.samples
        self.finished: list[EvalCaseResult] = []
        self.not_run = 0
        """Cases that were not begun, since the budget was used up."""

    async def results(self) -> AsyncGenerator[EvalCaseResult]:
        """Yields each result as its case ends. Closing the generator cancels the remaining cases."""
        self._begun = time.monotonic()

        earlier = self._journal.read() if self._journal is not None else []
        for result in earlier:
            self._finish(result)
            yield result

        done = Counter(result.eval_id for result in earlier)
        waiting = [case for case in self._cases for _ in range(self._options.samples - done[case.eval_id])]
        waiting.reverse()

        running: set[asyncio.Task[EvalCaseResult]] = set()
        try:
            while running or (waiting and not self._is_spent()):
                while waiting and len(running) < self._options.parallel and not self._is_spent():
                    running.add(asyncio.create_task(self._run(waiting.pop())))

                ended, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in ended:
                    result = task.result()
                    self._finish(result)
                    if self._journal is not None:
                        self._journal.add(result)
                    yield result
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

        self.not_run = len(waiting)

    def summary(self) -> EvalSetResult:
        now = time.time()
        name = f"{self._agent.app_name}_{self._set.eval_set_id}_{now}"
        order = {case.eval_id: index for index, case in enumerate(self._set.eval_cases)}
        return EvalSetResult(
            eval_set_result_id=name,
            eval_set_result_name=name.replace("/", "_"),
            eval_set_id=self._set.eval_set_id,
            eval_set_version=self._set.version,
            eval_case_results=sorted(self.finished, key=lambda case_result: order.get(case_result.eval_id, -1)),
            creation_timestamp=now,
        )

    def _is_spent(self) -> bool:
        tokens = self._options.max_tokens
        cost = self._options.max_cost
        seconds = self._options.max_seconds
        return (
            (tokens is not None and self._tokens >= tokens)
            or (cost is not None and self._cost >= Decimal(str(cost)))
            or (seconds is not None and time.monotonic() - self._begun >= seconds)
        )

    def _finish(self, result: EvalCaseResult) -> None:
        self.finished.append(result)
        for one in result.eval_metric_result_per_invocation:
            for event in one.actual_invocation.steps.invocation_events or ():
                self._pay(event)

    def _pay(self, reply: InvocationEvent | LlmResponse) -> None:
        if reply.usage_metadata is not None:
            self._tokens += reply.usage_metadata.total_token_count or 0
            price = self._prices.find(reply.model_version or "")
            self._cost += price.cost_of(reply.usage_metadata).money if price is not None else 0

    async def _run(self, case: EvalCase) -> EvalCaseResult:
        replies: list[LlmResponse] = []
        replies_asked.set(replies)  # of this task, and of those that it makes
        try:
            return await self._result(case)
        finally:
            for reply in replies:
                self._pay(reply)

    async def _result(self, case: EvalCase) -> EvalCaseResult:
        agent = self._agent_for(case)
        session = await self._session(agent, case)
        result = EvalCaseResult(
            eval_set_file=self._set.eval_set_id,
            eval_set_id=self._set.eval_set_id,
            eval_id=case.eval_id,
            final_eval_status=EvalStatus.FAILED,
            user_id=session.user_id,
            session_id=session.id,
            eval_case_digest=case.digest(),
            is_offline=agent is not self._agent,
        )
        try:
            actual = await self._converse(agent, case, session)
        except Exception as error:  # agents and tools may raise anything; the other cases run
            if isinstance(error, GreenroomError):
                result.error = error.detail
            else:
                result.error = f"{type(error).__name__}: {error}"
        else:
            await self._score(case, actual, result)

        result.session_details = await agent.sessions.get_session(**session.key._asdict())

        return result

    def _agent_for(self, case: EvalCase) -> AgentUnderTest:
        """The agent, or the app without its tools for a case that has their results."""
        if case.tool_results is None or self._app is None:
            return self._agent

        plugins = [ToolResultsPlugin(case.tool_results), *self._app.plugins]
        runner = Runner(
            app=dataclasses.replace(self._app, plugins=plugins),
            app_name=self._agent.app_name,
            session_service=self._offline_sessions(),
            artifact_service=InMemoryArtifactService(),
            memory_service=InMemoryMemoryService(),
        )
        # The runner isn't closed: the app's agents and plugins belong to others.
        return AgentUnderTest.of(runner)._replace(user_id=self._agent.user_id)

    async def _session(self, agent: AgentUnderTest, case: EvalCase) -> Session:
        session = await self._new_session(agent, case)
        if case.given_turns:
            given = (case.conversation or [])[: case.given_turns]
            agent_name = agent.app_name if self._app is None else self._app.root_agent.name
            await agent.sessions.append(session, *events_of(given, agent_name))
        return session

    async def _new_session(self, agent: AgentUnderTest, case: EvalCase) -> Session:
        session_input = case.session_input
        user_id = (session_input.user_id if session_input is not None else "") or agent.user_id
        create = partial(
            agent.sessions.create_session,
            app_name=agent.app_name,
            user_id=user_id,
            state=session_input.state if session_input is not None else None,
        )
        if session_input is not None and session_input.session_id:
            try:
                return await create(session_id=session_input.session_id)
            except SessionExists:
                pass  # of an earlier run; a session is never used twice

        new_key = agent.sessions.new_key(lambda new_id: SessionKey(agent.app_name, user_id, SESSION_PREFIX + new_id))
        return await create(session_id=new_key.session_id)

    async def _converse(self, agent: AgentUnderTest, case: EvalCase, session: Session) -> list[Invocation]:
        """Raises what fails the run."""
        user = self._simulator(_run_part(case))
        turns: list[Invocation] = []
        while (message := await user.next_message(turns)) is not None:
            begun = time.perf_counter()
            at = time.time()

            events: list[Event] = []
            async with aclosing(agent.run(session.key, message)) as run:
                async for event in run:
                    if not event.partial:
                        events.append(event)

            turn = invocation_of(message, events, self._details)
            turn.creation_timestamp = at
            turn.duration = time.perf_counter() - begun
            turns.append(turn)

        return turns

    async def _score(
        self,
        case: EvalCase,
        actual: Sequence[Invocation],
        result: EvalCaseResult,
    ) -> None:
        expected = _expected(case)

        per_turn = [
            EvalMetricResultPerInvocation(
                actual_invocation=invocation, expected_invocation=expected[turn] if expected is not None else None
            )
            for turn, invocation in enumerate(actual)
        ]
        for metric in self._metrics:
            scored = await self._measure(metric, case, actual, expected)
            result.overall_eval_metric_results.append(
                _metric_result(metric, scored.overall_score, scored.overall_eval_status, scored.details)
            )
            for turn, turn_score in zip(per_turn, scored.per_invocation_results, strict=False):
                turn.eval_metric_results.append(
                    _metric_result(metric, turn_score.score, turn_score.eval_status, turn_score.details)
                )

        result.eval_metric_result_per_invocation = per_turn
        statuses = {metric_result.eval_status for metric_result in result.overall_eval_metric_results}
        deciding = (EvalStatus.FAILED, EvalStatus.PASSED)
        result.final_eval_status = next((status for status in deciding if status in statuses), EvalStatus.NOT_EVALUATED)

    async def _measure(
        self,
        metric: EvaluationMetric,
        case: EvalCase,
        actual: Sequence[Invocation],
        expected: Sequence[Invocation] | None,
    ) -> EvaluationResult:
        rubrics = case.rubrics or []
        if rubrics:
            judged = [
                msgspec.structs.replace(invocation, rubrics=[*rubrics, *(invocation.rubrics or ())])
                for invocation in actual
            ]
        else:
            judged = actual

        try:
            return await metric.evaluate(ScoredConversation(judged, expected, case.conversation_scenario))
        except Exception:
            _log.exception("%s could not measure case %r", metric.info.metric_name, case.eval_id)
            return EvaluationResult()


def _run_part(case: EvalCase) -> EvalCase:
    """The case without the messages that aren't run."""
    if not case.given_turns or case.conversation is None:
        return case
    return msgspec.structs.replace(case, conversation=case.conversation[case.given_turns :], given_turns=None)


def _expected(case: EvalCase) -> list[Invocation] | None:
    """The expected turns; None for a scenario, and for a case of an answer for which nobody has said what to expect."""
    turns = _run_part(case).conversation
    if turns is None:
        return None
    if case.source is not None and all(one.final_response is None and one.intermediate_data is None for one in turns):
        return None
    return turns


def _metric_result(
    metric: EvaluationMetric, score: float | None, status: EvalStatus, details: EvalMetricResultDetails
) -> EvalMetricResult:
    return EvalMetricResult(
        metric_name=metric.info.metric_name,
        threshold=metric.threshold,
        criterion=metric.criterion,
        score=score,
        eval_status=status,
        details=details,
    )


async def app_details(app: App) -> AppDetails:
    """The instructions and tools of the app's agents, for judges."""
    agents = (await describe(app, language="python")).agents or {}
    return AppDetails(
        agent_details={
            name: AgentDetails(name=name, instructions=agent.instruction, tool_declarations=agent.tools or [])
            for name, agent in agents.items()
        }
    )
