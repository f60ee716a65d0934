"""The contract of a store of feedback."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from greenroom.records import wire
from greenroom.records.feedback import Feedback, FeedbackFilter, ListFeedbackResponse
from greenroom.records.session import SessionKey

MAX_PER_EVENT = 100
"""Maximum number of feedback on one event."""

MAX_SEARCHED = 10_000
"""The number of feedback of a name, the newest, by which runs are found."""


class FeedbackStore(ABC):
    """Belongs to a run store, which deletes the feedback of a session with the session's runs.

    Writes of a server that doesn't own the session any more raise OwnershipLost.
    """

    @abstractmethod
    async def save(self, feedback: Feedback) -> None:
        """Stores feedback, in place of one with the same id. Raises TooMuchFeedback for an event that has
        `MAX_PER_EVENT` others.
        """

    @abstractmethod
    async def delete(self, key: SessionKey, event_id: str, *, subject: str, name: str | None = None) -> None:
        """Deletes what a subject has said about an event, by one name or by all; does nothing when there is none."""

    @abstractmethod
    async def delete_subject(self, *, app_name: str, subject: str) -> None:
        """Deletes what a subject has said about the events of an app, in all sessions, on any server."""

    @abstractmethod
    async def list(
        self, where: FeedbackFilter, *, limit: int = 100, page_token: str | None = None
    ) -> ListFeedbackResponse:
        """Feedback, newest first. Raises InvalidRequest for the page token of another list."""


def page_of(found: Sequence[Feedback], limit: int) -> ListFeedbackResponse:
    """The first `limit` of feedback in the order of a list, with the token of the next page if there are more."""
    page = list(found[:limit])
    has_more = len(found) > limit
    return ListFeedbackResponse(
        feedback=page, next_page_token=wire.write_page_token(page[-1].created_at, page[-1].id) if has_more else None
    )


def position_after(page_token: str | None) -> tuple[float, str] | None:
    """Time and id of the last feedback of the previous page. Raises InvalidRequest."""
    if not page_token:
        return None
    time, (last_id,) = wire.read_page_token(page_token, keys=1)
    return time, last_id
