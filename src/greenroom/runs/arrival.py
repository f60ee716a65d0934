"""A request to run, looked at before it becomes a run: what it goes on with, and what it answers."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from greenroom.errors import RunNotFound
from greenroom.records.run import AgentRunRequest, Caller, Run, RunStatus
from greenroom.records.session import Session
from greenroom.runner.runner import Intake, Runner
from greenroom.runs.job import Job, check_version, session_of, so_far
from greenroom.runs.outcome import check_asked, without_answered
from greenroom.runs.store import RunStore


class Arrival(NamedTuple):
    """before: the record of the run that the message goes on with, if there is one. asked: what that run has asked of
    people and this message doesn't answer."""

    request: AgentRunRequest
    intake: Intake
    before: Run | None
    asked: dict[str, str]

    def new_run(
        self,
        session: Session,
        *,
        idempotency_key: str | None,
        digest: str | None,
        traceparent: str | None,
        caller: Caller | None,
        app_version: str | None,
    ) -> Run:
        before, request, here = self.before, self.request, len(session.events)
        return Run(
            id=self.intake.invocation_id,
            app_name=request.app_name,
            user_id=request.user_id,
            session_id=session.id,
            status=RunStatus.QUEUED,
            created_at=before.created_at if before is not None else time.time(),
            started_at=before.started_at if before is not None else None,
            usage=before.usage if before is not None else None,
            after_seq=before.after_seq if before is not None else here,
            message_after_seq=here,
            asked=self.asked,
            request=request,
            idempotency_key=idempotency_key,
            request_digest=digest,
            traceparent=traceparent,
            caller=caller,
            app_version=before.app_version if before is not None else app_version,
        )


async def look_at(
    request: AgentRunRequest, runner: Runner, session: Session, *, jobs: Mapping[str, Job], store: RunStore
) -> Arrival:
    """An approval or a login in the message is redeemed, and can't be given again.

    Raises InvalidRequest, ApprovalRefused, AppVersionChanged, and RunNotFound: an id that is not of this session is
    answered alike, whether it is of another or of none.
    """
    intake = runner.take_in(session, request.new_message, request.invocation_id)
    before = await _earlier_stretch(request, intake, session, jobs, store)
    if before is not None:
        check_version(before, runner)
    asked = _still_asked(intake, session, jobs, before)
    if intake.answered is not None:
        redeemed = await runner.redeem(session, intake.message)
        if redeemed is not intake.message:  # a provider was asked meanwhile
            intake = intake._replace(message=redeemed)
            request = msgspec.structs.replace(request, new_message=redeemed)
            before = await _earlier_stretch(request, intake, session, jobs, store)
            asked = _still_asked(intake, session, jobs, before)
    return Arrival(request, intake, before, asked)


async def _earlier_stretch(
    request: AgentRunRequest, intake: Intake, session: Session, jobs: Mapping[str, Job], store: RunStore
) -> Run | None:
    """None for a new run, and for one that only the session's log knows."""
    if intake.answered is None and request.invocation_id is None:
        return None
    job = jobs.get(intake.invocation_id)
    run = job.run if job is not None else await store.get(intake.invocation_id)
    if run is None:
        is_known = any(event.invocation_id == intake.invocation_id for event in session.events)
    else:
        is_known = session_of(run) == session.key
    if not is_known:
        check_asked(session.events, intake.message, {})
        raise RunNotFound(intake.invocation_id)
    return run


def _still_asked(intake: Intake, session: Session, jobs: Mapping[str, Job], before: Run | None) -> dict[str, str]:
    """Refuses an answer to what no run of this session has asked: a log that a client brought along shows calls,
    too."""
    job = jobs.get(intake.invocation_id)
    if job is None and before is None and intake.answered is None:
        return {}
    if job is not None and job.key == session.key:
        if job.done.is_set() or (job.log is None and job.intake is not None):
            asked = job.run.asked
        else:  # one that was taken up after a crash may not have looked at its log yet
            asked = job.tally.asked if job.log is not None else so_far(job.run, session)[1].asked
    else:
        asked = before.asked if before is not None else {}
    check_asked(session.events, intake.message, asked)
    return without_answered(asked, intake.message)
