"""Judges a sample of ended runs in the background, where an app has judges.

A run is judged at most once by each judge: its judgement is stored as feedback after it was made, and one that a stop
or a crash cut off isn't made again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import NamedTuple

from greenroom.apps.app import App
from greenroom.errors import GreenroomError, SessionNotFound
from greenroom.records.feedback import FeedbackRequest
from greenroom.records.run import Run
from greenroom.records.run_judge import RunJudge
from greenroom.runs.feedback import SessionFeedback

_log = logging.getLogger("greenroom.runs")

_AT_ONCE = 4
MAX_WAITING = 1000
"""Further runs aren't judged while this many wait for their judgement."""


class Judgement(NamedTuple):
    """The score of an answer."""

    event_id: str
    feedback: FeedbackRequest


JudgeRun = Callable[[RunJudge, Run, App], Awaitable[Judgement | None]]
"""Judges a run; returns None if its budget is used up, or nothing can be judged. Raises the errors of models."""


@dataclass(eq=False)
class RunJudging:
    """The judgements of ended runs that are being made."""

    judge_run: JudgeRun
    feedback: SessionFeedback

    def __post_init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(_AT_ONCE)

    def add(self, run: Run, app: App) -> None:
        """Starts to judge a run, if it is of the sample of a judge."""
        for judge in app.judges:
            if not is_sampled(judge, run.id):
                continue
            if len(self._tasks) >= MAX_WAITING:
                _log.warning("run %s isn't judged: %d runs wait for their judgement", run.id, MAX_WAITING)
                return
            task = asyncio.create_task(self._judge(judge, run, app))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Drops the judgements that have not ended."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _judge(self, judge: RunJudge, run: Run, app: App) -> None:
        try:
            async with self._slots:
                judgement = await self.judge_run(judge, run, app)
            if judgement is not None:
                await self.feedback.save(
                    judgement.feedback,
                    key=run.session_key,
                    event_id=judgement.event_id,
                    source="service",
                    subject=f"judge:{judge.name}",
                )
        except SessionNotFound:
            pass  # it was deleted meanwhile
        except GreenroomError as error:
            _log.warning("the judge %s of %s could not judge run %s: %s", judge.name, app.name, run.id, error)
        except Exception:  # models and metrics may raise anything
            _log.exception("the judge %s of %s could not judge run %s", judge.name, app.name, run.id)


def is_sampled(judge: RunJudge, run_id: str) -> bool:
    """Whether a run is of the judge's sample; the same for all servers."""
    digest = sha256(f"{judge.name}\0{run_id}".encode(errors="surrogatepass")).digest()
    return int.from_bytes(digest[:8]) < judge.share * 2**64
