"""A memory store in this process's memory."""

from __future__ import annotations

import copy
import heapq
import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import uuid4

from greenroom.memory.service import BaseMemoryService
from greenroom.memory.words import words_of_query, words_of_text
from greenroom.records.content import Content
from greenroom.records.event import Event
from greenroom.records.listings import MemoryEntry, SearchMemoryResponse
from greenroom.records.session import Session


class InMemoryMemoryService(BaseMemoryService):
    """Ranks by the query's words that an entry contains, weighted by their rarity; among equals, newer entries first.

    Contents are shared with their events, not copied. Entries without words are not stored, since no search finds them.
    """

    def __init__(self) -> None:
        self._indexes: dict[tuple[str, str], _UserIndex] = {}

    async def add_session_to_memory(self, session: Session) -> None:
        index = self._index(session.app_name, session.user_id)
        index.remove(session.id)
        index.add_events(session.id, session.events)

    async def add_events_to_memory(
        self, *, app_name: str, user_id: str, session_id: str, events: Sequence[Event]
    ) -> None:
        self._index(app_name, user_id).add_events(session_id, events)

    async def add_memories(self, *, app_name: str, user_id: str, memories: Sequence[MemoryEntry]) -> None:
        index = self._index(app_name, user_id)
        for memory in memories:
            entry = copy.copy(memory)
            entry.id = entry.id or str(uuid4())
            index.put(None, entry.id, entry, _recency(entry.timestamp))

    async def search_memory(self, *, app_name: str, user_id: str, query: str, limit: int = 10) -> SearchMemoryResponse:
        index = self._indexes.get((app_name, user_id))
        return SearchMemoryResponse(memories=index.search(words_of_query(query), limit) if index else [])

    def _index(self, app_name: str, user_id: str) -> _UserIndex:
        return self._indexes.setdefault((app_name, user_id), _UserIndex())


@dataclass(frozen=True, eq=False)
class _Stored:
    """order: of two entries that match alike, the one with the higher order comes first."""

    entry: MemoryEntry
    words: set[str]
    order: tuple[float, int]


class _UserIndex:
    """The entries of one user in one app, by the session that they come from and their id, and by their words."""

    def __init__(self) -> None:
        self._by_source: dict[str | None, dict[str, _Stored]] = {}
        self._by_word: dict[str, set[_Stored]] = {}
        self._numbers = itertools.count()

    def add_events(self, session_id: str, events: Iterable[Event]) -> None:
        for event in events:
            known = self._by_source.get(session_id, {})
            if event.content is None or not event.content.parts or event.partial or event.id in known:
                continue
            entry = MemoryEntry(
                id=event.id,
                content=event.content,
                author=event.author,
                timestamp=_iso_8601(event.timestamp),
                custom_metadata=event.custom_metadata,
            )
            self.put(session_id, event.id, entry, event.timestamp)

    def put(self, source: str | None, entry_id: str, entry: MemoryEntry, recency: float) -> None:
        """Replaces the source's entry with that id."""
        entries = self._by_source.setdefault(source, {})
        if entry_id in entries:
            self._drop(entries.pop(entry_id))
        words = words_of_text(_visible_text(entry.content))
        if words:
            stored = entries[entry_id] = _Stored(entry, words, (recency, next(self._numbers)))
            for word in words:
                self._by_word.setdefault(word, set()).add(stored)

    def remove(self, source: str) -> None:
        for stored in self._by_source.pop(source, {}).values():
            self._drop(stored)

    def _drop(self, stored: _Stored) -> None:
        for word in stored.words:
            self._by_word[word].discard(stored)
            if not self._by_word[word]:
                del self._by_word[word]

    def search(self, words: list[str], limit: int) -> list[MemoryEntry]:
        count = sum(map(len, self._by_source.values()))
        scores: dict[_Stored, float] = {}
        for word in words:
            matches = self._by_word.get(word, ())
            for stored in matches:
                scores[stored] = scores.get(stored, 0) + math.log(1 + count / len(matches))
        best = heapq.nlargest(limit, scores, key=lambda stored: (scores[stored], stored.order))
        return [copy.copy(stored.entry) for stored in best]


def _visible_text(content: Content) -> str:
    """Lines separate the parts, so that words don't run together."""
    return "\n".join(part.text for part in content.parts or () if part.text and not part.thought)


def _iso_8601(timestamp: float) -> str | None:
    try:
        return datetime.fromtimestamp(timestamp, UTC).isoformat()
    except (OverflowError, ValueError, OSError):
        return None  # clients may send any number


def _recency(timestamp: str | None) -> float:
    """Unix seconds; entries without a time are the oldest."""
    try:
        moment = datetime.fromisoformat(timestamp or "")
    except ValueError:
        return -math.inf
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
