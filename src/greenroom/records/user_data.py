"""The data that an app stores of a user: reports of exports and erasures."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from greenroom.records.base import JsonValue, Record

UserDataKind: TypeAlias = Literal[
    "sessions",
    "events",
    "runs",
    "requests",
    "answers",
    "feedback",
    "given_feedback",
    "schedules",
    "state",
    "memories",
    "artifacts",
    "credentials",
    "usage",
    "spans",
    "audit_entries",
]
"""Kinds of data. `answers` are the user's to requests in sessions of others, `given_feedback` is on such sessions."""


class ErasedData(Record, kw_only=True, omit_defaults=False):
    """The outcome of an erasure for one kind of data."""

    kind: UserDataKind
    """The kind of data."""
    found: int
    """The number of items before the erasure."""
    deleted: int
    """The number of items that were deleted."""
    left: int
    """The number of items that were found again afterwards, and should not have been."""
    kept: int = 0
    """The number of items that are kept on purpose."""
    reason: str | None = None
    """The reason why items are kept, or why they could not be counted."""


class ErasureReport(Record, kw_only=True, omit_defaults=False):
    """The report on the erasure of a user's data in an app."""

    app_name: str
    """The app."""
    user_id: str
    """The user."""
    started_at: float
    """Unix seconds."""
    ended_at: float
    """Unix seconds."""
    is_complete: bool
    """Whether a search afterwards has found nothing but what is kept. If not, the erasure can be repeated."""
    data: list[ErasedData] = msgspec.field(default_factory=list[ErasedData])
    """The outcome by kind of data."""
    notes: list[str] = msgspec.field(default_factory=list[str])
    """Things that remain to be done, or are stored elsewhere."""


class ExportManifest(Record, kw_only=True, omit_defaults=False):
    """`manifest.json` of an export of a user's data, which is its last file."""

    format: Literal["greenroom-user-export"] = "greenroom-user-export"
    """The name of the format."""
    version: int = 1
    """The version of the format."""
    app_name: str
    """The app."""
    user_id: str
    """The user."""
    exported_at: float
    """Unix seconds at which the export began."""
    counts: dict[str, int]
    """The number of items by kind of data."""
    missing: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    """Kinds of data that a store can't list, with the reason."""


class ExportedArtifact(Record, kw_only=True):
    """A line of `artifacts.jsonl` of an export."""

    filename: str
    """The artifact's name; names with `user:` belong to all sessions of the user."""
    session_id: str | None = None
    """The session; None for an artifact of all the user's sessions."""
    version: int
    """The version."""
    mime_type: str | None = None
    """The media type."""
    create_time: float
    """Unix seconds."""
    custom_metadata: JsonValue = None
    """Stored with the version."""
    canonical_uri: str
    """The URI of the version in its store."""
    file: str
    """The file in the export that has the content; empty for a reference to a file elsewhere."""


class OwnAnswer(Record, kw_only=True):
    """An answer of the user to a request in a session of another user."""

    request_id: str
    """The request."""
    kind: str
    """The kind of the request."""
    tool: str | None = None
    """The tool that asked."""
    answers: list[JsonValue]
    """The user's answers and delegations."""
