"""Entries, index terms and ranking of memory stores."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from uuid import uuid4

import msgspec

from greenroom.errors import InvalidRequest
from greenroom.memory.words import words_of_text
from greenroom.records import wire
from greenroom.records.base import JsonObject
from greenroom.records.content import Content
from greenroom.records.event import Event
from greenroom.records.listings import ListMemoriesResponse, MemoryEntry

MANY_MATCHES = 2000
MANY_ENTRIES = 10_000
"""Counting stops here, to bound its cost: words in more entries have the same weight."""


def entries_of_events(events: Iterable[Event]) -> Iterator[tuple[MemoryEntry, float]]:
    """An entry for each complete event with content, with its time in Unix seconds."""
    for event in events:
        if event.content is not None and event.content.parts and not event.partial:
            entry = MemoryEntry(
                id=event.id,
                content=event.content,
                author=event.author,
                timestamp=_iso_8601(event.timestamp),
                custom_metadata=event.custom_metadata,
            )
            yield entry, event.timestamp


def entries_of_memories(memories: Iterable[MemoryEntry]) -> Iterator[tuple[MemoryEntry, float]]:
    """Copies with ids, and their times in Unix seconds; entries without a time are the oldest."""
    for memory in memories:
        yield msgspec.structs.replace(memory, id=memory.id or str(uuid4())), _seconds(memory.timestamp)


def changed_entry(entry: MemoryEntry, content: Content, custom_metadata: JsonObject | None) -> MemoryEntry:
    """The entry with another content. Raises InvalidRequest for one without words, which no search would find."""
    metadata = entry.custom_metadata if custom_metadata is None else custom_metadata
    changed = msgspec.structs.replace(entry, content=content, custom_metadata=metadata)
    if not words_of_entry(changed):
        raise InvalidRequest("A memory needs a text with words", location=("body", "content"))
    return changed


def text_of_entry(entry: MemoryEntry) -> str:
    """Returns the entry's text without thoughts. The parts are separate lines, so that words don't run together."""
    return "\n".join(part.text for part in entry.content.parts or () if part.text and not part.thought)


def words_of_entry(entry: MemoryEntry) -> set[str]:
    """Returns the index terms of the entry."""
    return words_of_text(text_of_entry(entry))


def weight(entries: int, matches: int) -> float:
    """Weight of a word that `matches` of all `entries` contain: the rarer, the more."""
    return math.log(1 + min(entries, MANY_ENTRIES) / min(matches, MANY_MATCHES))


def number_of(page_token: str | None) -> int:
    """The number of the last entry of the previous page; 0 for the first page. Raises InvalidRequest."""
    if not page_token:
        return 0
    _, (number,) = wire.read_page_token(page_token, keys=1)
    if not (number.isascii() and number.isdigit() and len(number) <= 18):
        raise InvalidRequest("The page token is not one of ours", location=("query", "page_token"))
    return int(number)


def page_of(numbered: Sequence[tuple[int, MemoryEntry]], limit: int) -> ListMemoriesResponse:
    """A page of entries in the order of their numbers, of which more than `limit` may be given. Raises
    InvalidRequest.
    """
    if limit < 1:
        raise InvalidRequest("limit must be at least 1", location=("query", "limit"))
    page = numbered[:limit]
    token = wire.write_page_token(0.0, str(page[-1][0])) if len(page) < len(numbered) else None
    return ListMemoriesResponse(memories=[entry for _, entry in page], next_page_token=token)


def _iso_8601(timestamp: float) -> str | None:
    try:
        return datetime.fromtimestamp(timestamp, UTC).isoformat()
    except (OverflowError, ValueError, OSError):
        return None  # clients may send any number


def _seconds(timestamp: str | None) -> float:
    try:
        moment = datetime.fromisoformat(timestamp or "")
    except ValueError:
        return -1e18
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def fused(*rankings: list[int]) -> list[int]:
    """Reciprocal rank fusion: each ranking adds 1 / (60 + rank); among equals, newer entries first."""
    scores: dict[int, float] = {}
    for ranking in rankings:
        for rank, entry in enumerate(ranking, start=1):
            scores[entry] = scores.get(entry, 0.0) + 1 / (60 + rank)
    return sorted(scores, key=lambda entry: (scores[entry], entry), reverse=True)
