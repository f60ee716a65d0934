"""Feedback: scores, labels and comments of users and services on the events of a session."""

from __future__ import annotations

from hashlib import sha256
from typing import Annotated, Literal

from msgspec import Meta

from greenroom.records.base import Record
from greenroom.records.session import SessionKey

FEEDBACK_NAME = r"^[A-Za-z0-9_.-]{1,64}$"
MAX_LABEL_LENGTH = 200
MAX_COMMENT_LENGTH = 10_000

FeedbackSource = Literal["user", "service"]
"""The user of the session, or somebody who acts for it: a service, a reviewer."""

FeedbackName = Annotated[str, Meta(pattern=FEEDBACK_NAME)]


class FeedbackRequest(Record, kw_only=True):
    """Feedback on an event. It has at least one of `score`, `label` and `comment`."""

    name: FeedbackName
    """The quality that is judged, such as `helpful` or `correctness`."""
    score: bool | float | None = None
    """A number on a scale of the caller's choice, or true or false, which filters count as 1 and 0."""
    label: Annotated[str, Meta(max_length=MAX_LABEL_LENGTH, pattern=r"^[^\x00]*$")] | None = None
    """A category, such as `wrong tool`."""
    comment: Annotated[str, Meta(max_length=MAX_COMMENT_LENGTH)] | None = None
    """The reasons, in words."""


class Feedback(FeedbackRequest, kw_only=True):
    """Stored feedback. There is one for each event, name and subject."""

    id: str
    """Stays when the feedback is replaced."""
    app_name: str
    """The session's app."""
    user_id: str
    """The session's user."""
    session_id: str
    """The session of the event."""
    event_id: str
    """The event that is judged."""
    run_id: str
    """The run of the event; empty for an event of no run."""
    source: FeedbackSource
    """`user` if the session's user gave it, `service` if somebody else did who acts for the user."""
    subject: str
    """The caller who gave it. Without authentication, the session's user."""
    created_at: float
    """Unix seconds; of feedback that replaced another one, the time of that."""

    @property
    def session_key(self) -> SessionKey:
        return SessionKey(self.app_name, self.user_id, self.session_id)

    @property
    def score_number(self) -> float | None:
        """The score as filters compare it."""
        return None if self.score is None else float(self.score)


class FeedbackFilter(Record, kw_only=True):
    """A filter for lists of feedback of an app; missing fields filter nothing."""

    app_name: str
    user_id: str | None = None
    session_id: str | None = None
    event_id: str | None = None
    name: str | None = None
    label: str | None = None
    source: FeedbackSource | None = None
    subject: str | None = None
    min_score: float | None = None
    max_score: float | None = None
    """Both are included; feedback without a score is not in the list then."""
    created_from: float | None = None
    created_before: float | None = None


class ListFeedbackResponse(Record, kw_only=True, omit_defaults=False):
    """A page of a list of feedback."""

    feedback: list[Feedback]
    """Newest first."""
    next_page_token: str | None = None
    """`page_token` of the next request; None on the last page."""


def feedback_id(key: SessionKey, event_id: str, name: str, subject: str) -> str:
    """The id of the feedback that a subject gives on an event by a name."""
    parts = "\0".join((*key, event_id, name, subject))
    return sha256(parts.encode(errors="surrogatepass")).hexdigest()[:32]
