"""The requests of runs to people: their answers, and their delegation to other people."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import msgspec

from greenroom.errors import ApprovalRefused, NotWaiting, RequestClosed, RequestNotFound
from greenroom.records.inbox import (
    Answerer,
    HumanRequest,
    ListRequestsResponse,
    RequestAnswer,
    RequestFilter,
    RequestStatus,
    answer_message,
)
from greenroom.records.run import Run
from greenroom.records.session import SessionKey
from greenroom.redaction.rules import Redaction
from greenroom.runs.audit import delegation_entry
from greenroom.runs.engine import OpenCall
from greenroom.runs.open_calls import OpenCalls
from greenroom.runs.store import RunStore
from greenroom.runs.voting import delegated
from greenroom.runs.watch import RunWatches


@dataclass(kw_only=True, eq=False)
class Inbox:
    """The requests to people of one engine's runs.

    get_run: the newest record of a run. redaction_of: see `RunEngine`. lock: of the admission. wait_until_ready:
    returns when this process owns the session. Raises OwnershipLost. wait_until_stored: returns when the record of a
    continued run is stored.
    """

    run_store: RunStore
    watches: RunWatches
    open_calls: OpenCalls
    get_run: Callable[[str], Awaitable[Run]]
    redaction_of: Callable[[str], Awaitable[Redaction | None]]
    lock: Callable[[SessionKey], asyncio.Lock]
    wait_until_ready: Callable[[SessionKey], Awaitable[None]]
    wait_until_stored: Callable[[str], Awaitable[None]]
    is_audited: bool

    async def get(self, request_id: str) -> HumanRequest:
        """See `RunEngine.get_request`."""
        request = await self.run_store.get_request(request_id)
        if request is None:
            raise RequestNotFound(request_id)
        return request.as_of(time.time())

    async def list(self, where: RequestFilter, *, limit: int, page_token: str | None) -> ListRequestsResponse:
        """See `RunEngine.list_requests`."""
        still_open = msgspec.structs.replace(where, open_at=time.time())
        return await self.run_store.list_requests(still_open, limit=limit, page_token=page_token)

    async def answer(self, request_id: str, answer: RequestAnswer, *, answerer: Answerer) -> tuple[HumanRequest, Run]:
        """See `RunEngine.answer_request`."""
        request = await self._get_open(request_id)
        message = answer_message(request, answer)
        answerer = await self._redacted(answerer, request)
        try:
            run = await self.open_calls.answer(
                await self.get_run(request.run_id), message, OpenCall(request.call_id, answerer=answerer)
            )
        except (NotWaiting, ApprovalRefused):
            # Another answer may have been faster, and may not be stored yet.
            await self.wait_until_stored(request.run_id)
            await self._get_open(request_id)
            raise
        return await self.get(request_id), run

    async def delegate(self, request_id: str, to_user_id: str, *, answerer: Answerer) -> HumanRequest:
        """See `RunEngine.delegate_request`."""
        request = await self._get_open(request_id)
        await self.wait_until_ready(request.session_key)
        answerer = await self._redacted(answerer, request)
        async with self.lock(request.session_key):
            request = delegated(await self._get_open(request_id), answerer, to_user_id, at=time.time())
            audit = [delegation_entry(request)] if self.is_audited else ()
            await self.run_store.save_request(request, audit=audit)
        self.watches.publish(await self.get_run(request.run_id))
        return request

    async def _redacted(self, answerer: Answerer, request: HumanRequest) -> Answerer:
        """The answerer with the comment as it may be stored."""
        redaction = await self.redaction_of(request.app_name) if answerer.comment else None
        if redaction is None or answerer.comment is None:
            return answerer
        return msgspec.structs.replace(answerer, comment=await redaction.redact_text(answerer.comment))

    async def _get_open(self, request_id: str) -> HumanRequest:
        """Raises RequestNotFound, RequestClosed."""
        request = await self.get(request_id)
        if request.status is not RequestStatus.OPEN:
            raise RequestClosed(request_id, request.outcome)
        return request
