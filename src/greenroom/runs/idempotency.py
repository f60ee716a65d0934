"""Which run a request began, when the request comes again."""

from __future__ import annotations

import hashlib

from greenroom.errors import IdempotencyConflict
from greenroom.records import wire
from greenroom.records.run import AgentRunRequest, Run
from greenroom.runs.job import Job
from greenroom.runs.store import RunStore


class StartedRuns:
    """By `Idempotency-Key`, of each user of each app: the runs that are going on, and those of the store.

    A key with another request than the one it came with first is refused with IdempotencyConflict.
    """

    def __init__(self, store: RunStore) -> None:
        self._store = store
        self._jobs: dict[tuple[str, str, str], Job] = {}

    async def find(self, request: AgentRunRequest, key: str, digest: str) -> Run | None:
        job = self.going_on(request, key, digest)
        if job is not None:
            return job.run
        run = await self._store.find_by_idempotency_key(app_name=request.app_name, user_id=request.user_id, key=key)
        if run is not None and run.request_digest != digest:
            raise IdempotencyConflict(key)
        return run

    def going_on(self, request: AgentRunRequest, key: str, digest: str) -> Job | None:
        job = self._jobs.get((request.app_name, request.user_id, key))
        if job is not None and job.run.request_digest != digest:
            raise IdempotencyConflict(key)
        return job

    def add(self, job: Job) -> None:
        run = job.run
        if run.idempotency_key is not None:
            self._jobs[run.app_name, run.user_id, run.idempotency_key] = job

    def forget(self, run: Run) -> None:
        """Its record is stored, and tells from here on."""
        if run.idempotency_key is not None:
            self._jobs.pop((run.app_name, run.user_id, run.idempotency_key), None)


def digest_of(request: AgentRunRequest) -> str:
    return hashlib.sha256(wire.encode(request)).hexdigest()
