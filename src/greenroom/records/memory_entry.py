"""What a memory search finds."""

from __future__ import annotations

import msgspec

from greenroom.records.base import JsonObject, Record
from greenroom.records.content import Content


class MemoryEntry(Record, kw_only=True):
    """timestamp: ISO 8601, when the remembered event happened."""

    content: Content
    author: str | None = None
    timestamp: str | None = None
    id: str | None = None
    custom_metadata: JsonObject | None = None


class SearchMemoryResponse(Record, kw_only=True, omit_defaults=False):
    """Best match first."""

    memories: list[MemoryEntry] = msgspec.field(default_factory=list[MemoryEntry])
