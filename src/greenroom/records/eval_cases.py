"""Evaluation cases that are made of stored answers, and the versions of evaluation sets."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from greenroom.records.base import Record
from greenroom.records.feedback import MAX_LABEL_LENGTH, FeedbackName, FeedbackSource

EvalSetId = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_]{1,200}$")]
"""The id of an evaluation set: letters, digits and `_`."""

MAX_ANSWERS = 100
"""Of one request."""


class MakeCaseRequest(Record, kw_only=True):
    """An answer that becomes a case."""

    eval_set_id: EvalSetId
    """The set, which is created if it doesn't exist."""
    expected_response: Annotated[str, Meta(max_length=100_000)] | None = None
    """The answer that is expected; None if only the rubrics count."""


class AddFeedbackRequest(Record, kw_only=True):
    """A filter for feedback whose answers become cases; missing fields filter nothing."""

    user_id: str | None = None
    """Only feedback on sessions of this user."""
    name: FeedbackName | None = None
    """Only feedback of this name."""
    label: Annotated[str, Meta(max_length=MAX_LABEL_LENGTH)] | None = None
    """Only feedback with this label."""
    source: FeedbackSource | None = None
    """Only feedback of the session's `user`, or of a `service`."""
    min_score: float | None = None
    """Only scores from this one on; true is 1, and false is 0."""
    max_score: float | None = None
    """Only scores up to this one."""
    created_from: float | None = None
    """Only feedback given at or after these Unix seconds."""
    created_before: float | None = None
    """Only feedback given before these Unix seconds."""
    limit: Annotated[int, Meta(ge=1, le=MAX_ANSWERS)] = MAX_ANSWERS
    """Maximum number of feedback that is looked at. The newest is taken."""
    page_token: str | None = None
    """The `nextPageToken` of the previous page."""


class CaseOfAnswer(Record, kw_only=True):
    """A case, and the answer that it was made from."""

    eval_id: str
    """The id of the case."""
    user_id: str
    """The session's user."""
    session_id: str
    """The session of the answer."""
    event_id: str
    """The event of the answer."""
    reason: str | None = None
    """The reason why no case was added; None for an added case."""


class AddCasesResponse(Record, kw_only=True, omit_defaults=False):
    """The cases that were made of answers."""

    eval_set_id: str
    """The set."""
    eval_set_version: int | None
    """The version of the set with these cases."""
    added: list[CaseOfAnswer] = msgspec.field(default_factory=list[CaseOfAnswer])
    """The new cases."""
    skipped: list[CaseOfAnswer] = msgspec.field(default_factory=list[CaseOfAnswer])
    """Answers that have a case in the set already, or of which none can be made."""
    next_page_token: str | None = None
    """`page_token` of the next request; None on the last page."""


class EvalSetVersion(Record, kw_only=True, omit_defaults=False):
    """A version of a set, with its differences from the one before."""

    version: int
    """From 1 on."""
    created_at: float
    """Unix seconds."""
    added: list[str] = msgspec.field(default_factory=list[str])
    """The ids of new cases."""
    changed: list[str] = msgspec.field(default_factory=list[str])
    """The ids of changed cases."""
    removed: list[str] = msgspec.field(default_factory=list[str])
    """The ids of removed cases."""
    size: int
    """The number of cases in this version."""


class ListEvalSetVersionsResponse(Record, kw_only=True, omit_defaults=False):
    """The versions of a set."""

    versions: list[EvalSetVersion]
    """Oldest first."""
