"""Feedback, limited to the caller's permissions."""

from __future__ import annotations

from greenroom.records.feedback import (
    Feedback,
    FeedbackFilter,
    FeedbackRequest,
    FeedbackSource,
    ListFeedbackResponse,
)
from greenroom.records.session import SessionKey
from greenroom.runs.feedback import SessionFeedback
from greenroom.server.access.authorization.authorized import Authorized


class AuthorizedFeedback(Authorized[SessionFeedback]):
    """`SessionFeedback` for one caller, who is the subject of what it gives and deletes."""

    __slots__ = ()

    async def save(self, request: FeedbackRequest, *, key: SessionKey, event_id: str) -> Feedback:
        """Raises Forbidden, and what `SessionFeedback.save` does."""
        self._check("write", (key,), {})
        subject = self._subject(key)
        source: FeedbackSource = "user" if subject == key.user_id else "service"
        return await self._watched_result(
            self._service.save(request, key=key, event_id=event_id, source=source, subject=subject)
        )

    async def delete(self, *, key: SessionKey, event_id: str, name: str | None) -> None:
        """Raises Forbidden, and what `SessionFeedback.delete` does."""
        self._check("write", (key,), {})
        await self._watched_result(
            self._service.delete(key=key, event_id=event_id, subject=self._subject(key), name=name)
        )

    async def list(self, where: FeedbackFilter, *, limit: int, page_token: str | None) -> ListFeedbackResponse:
        """Feedback on sessions that the caller may see. Raises Forbidden, InvalidRequest."""
        identity = self._permissions.identity
        if where.user_id is None and not identity.acts_for(where.app_name, None):
            where.user_id = identity.subject
        self._permissions.check("read", where.app_name, where.user_id)
        return await self._service.list(where, limit=limit, page_token=page_token)

    def _subject(self, key: SessionKey) -> str:
        identity = self._permissions.identity
        return key.user_id if identity.caller is None else identity.subject
