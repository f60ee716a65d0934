"""Feedback that lives as long as the process."""

from __future__ import annotations

import msgspec

from greenroom.errors import TooMuchFeedback
from greenroom.feedback.store import MAX_PER_EVENT, MAX_SEARCHED, FeedbackStore, page_of, position_after
from greenroom.records.feedback import Feedback, FeedbackFilter, ListFeedbackResponse
from greenroom.records.run import RunFilter
from greenroom.records.session import SessionKey


class InMemoryFeedbackStore(FeedbackStore):
    def __init__(self) -> None:
        self._by_session: dict[SessionKey, dict[str, Feedback]] = {}

    async def save(self, feedback: Feedback) -> None:
        of_session = self._by_session.get(feedback.session_key, {})
        others = (one for one in of_session.values() if one.event_id == feedback.event_id and one.id != feedback.id)
        if sum(1 for _ in others) >= MAX_PER_EVENT:
            raise TooMuchFeedback(feedback.event_id, MAX_PER_EVENT)
        self._by_session.setdefault(feedback.session_key, {})[feedback.id] = msgspec.structs.replace(feedback)

    async def delete(self, key: SessionKey, event_id: str, *, subject: str, name: str | None = None) -> None:
        of_session = self._by_session.get(key, {})
        for one in list(of_session.values()):
            if one.event_id == event_id and one.subject == subject and name in (None, one.name):
                del of_session[one.id]
        if not of_session:
            self.delete_session(key)

    async def delete_subject(self, *, app_name: str, subject: str) -> None:
        for key in [key for key in self._by_session if key.app_name == app_name]:
            of_session = self._by_session[key]
            for one in [one for one in of_session.values() if one.subject == subject]:
                del of_session[one.id]
            if not of_session:
                self.delete_session(key)

    async def list(
        self, where: FeedbackFilter, *, limit: int = 100, page_token: str | None = None
    ) -> ListFeedbackResponse:
        before = position_after(page_token)
        found = [
            one
            for of_session in self._by_session.values()
            for one in of_session.values()
            if _matches(one, where) and (before is None or (one.created_at, one.id) < before)
        ]
        found.sort(key=lambda one: (one.created_at, one.id), reverse=True)
        return page_of([msgspec.structs.replace(one) for one in found[: limit + 1]], limit)

    def judged_runs(self, app_name: str, where: RunFilter) -> set[str]:
        """The runs with the feedback of a filter for runs."""
        found = [
            one
            for of_session in self._by_session.values()
            for one in of_session.values()
            if one.app_name == app_name and one.name == where.feedback
        ]
        found.sort(key=lambda one: (one.created_at, one.id), reverse=True)

        scored = FeedbackFilter(
            app_name=app_name, label=where.feedback_label, min_score=where.min_score, max_score=where.max_score
        )
        return {one.run_id for one in found[:MAX_SEARCHED] if _matches(one, scored)}

    def delete_session(self, key: SessionKey) -> None:
        self._by_session.pop(key, None)


def _matches(feedback: Feedback, where: FeedbackFilter) -> bool:
    for field in ("app_name", "user_id", "session_id", "event_id", "name", "label", "source", "subject"):
        wanted = getattr(where, field)
        if wanted is not None and getattr(feedback, field) != wanted:
            return False

    score = feedback.score_number
    if where.min_score is not None and (score is None or score < where.min_score):
        return False
    if where.max_score is not None and (score is None or score > where.max_score):
        return False

    if where.created_from is not None and feedback.created_at < where.created_from:
        return False
    return where.created_before is None or feedback.created_at < where.created_before
