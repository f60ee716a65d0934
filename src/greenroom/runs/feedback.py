"""Feedback of users and services on events."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import msgspec

from greenroom.errors import InvalidRequest
from greenroom.feedback.store import FeedbackStore
from greenroom.records.feedback import (
    Feedback,
    FeedbackFilter,
    FeedbackRequest,
    FeedbackSource,
    ListFeedbackResponse,
    feedback_id,
)
from greenroom.records.session import SessionKey
from greenroom.redaction.rules import Redaction
from greenroom.sessions.service import BaseSessionService


@dataclass(kw_only=True, eq=False)
class SessionFeedback:
    """Feedback on the events of one engine's sessions.

    It is written under the session's lock, by the server that owns the session: no feedback is stored for a session
    that is being deleted.

    redaction_of: see `RunEngine`. wait_until_ready: returns when this process owns the session. Raises OwnershipLost.
    """

    store: FeedbackStore
    redaction_of: Callable[[str], Awaitable[Redaction | None]]
    session_service: BaseSessionService
    lock: Callable[[SessionKey], asyncio.Lock]
    wait_until_ready: Callable[[SessionKey], Awaitable[None]]

    async def save(
        self, request: FeedbackRequest, *, key: SessionKey, event_id: str, source: FeedbackSource, subject: str
    ) -> Feedback:
        """Stores feedback, in place of the same subject's on the event by the same name.

        Raises InvalidRequest, SessionNotFound, NotFound, TooMuchFeedback.
        """
        if request.score is None and not request.label and not request.comment:
            raise InvalidRequest("Feedback needs a score, a label or a comment", location=("body",))

        await self.wait_until_ready(key)
        redaction = await self.redaction_of(key.app_name) if request.comment else None
        if redaction is not None and request.comment:
            request = msgspec.structs.replace(request, comment=await redaction.redact_text(request.comment))
        async with self.lock(key):
            run_id = await self._run_of_event(key, event_id)
            feedback = Feedback(
                **msgspec.structs.asdict(request),
                **key._asdict(),
                id=feedback_id(key, event_id, request.name, subject),
                event_id=event_id,
                run_id=run_id,
                source=source,
                subject=subject,
                created_at=time.time(),
            )
            await self.store.save(feedback)
        return feedback

    async def delete(self, *, key: SessionKey, event_id: str, subject: str, name: str | None = None) -> None:
        """Deletes what a subject has said about an event, by one name or by all; does nothing when there is none.

        Raises SessionNotFound, NotFound.
        """
        await self.wait_until_ready(key)
        async with self.lock(key):
            await self._run_of_event(key, event_id)
            await self.store.delete(key, event_id, subject=subject, name=name)

    async def list(self, where: FeedbackFilter, *, limit: int, page_token: str | None = None) -> ListFeedbackResponse:
        """Feedback, newest first. Raises InvalidRequest for the page token of another list."""
        return await self.store.list(where, limit=limit, page_token=page_token)

    async def _run_of_event(self, key: SessionKey, event_id: str) -> str:
        """The run of an event. Raises SessionNotFound, NotFound."""
        seq = await self.session_service.seq_of_event(**key._asdict(), event_id=event_id)
        page = await self.session_service.list_events(**key._asdict(), after=seq - 1, limit=1)
        return page.events[0].invocation_id
