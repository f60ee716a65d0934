"""A memory store in this process's memory."""

from __future__ import annotations

import copy
import heapq
import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple
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


class _Stored(NamedTuple):
    entry: MemoryEntry
    words: set[str]
    recency: float


class _UserIndex:
    """The entries of one user in one app. A slot is an entry's number, in the order of addition."""

    def __init__(self) -> None:
        self._next_slot = 0
        self._stored: dict[int, _Stored] = {}
        self._slots_by_word: dict[str, set[int]] = {}
        self._slots_by_source: dict[str | None, dict[str, int]] = {}

    def add_events(self, session_id: str, events: Iterable[Event]) -> None:
        known = self._slots_by_source.setdefault(session_id, {})
        for event in events:
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
        slots = self._slots_by_source.setdefault(source, {})
        self._drop(slots.pop(entry_id, None))
        words = words_of_text(_visible_text(entry.content))
        if not words:
            return
        slot = slots[entry_id] = self._next_slot
        self._next_slot += 1
        self._stored[slot] = _Stored(entry, words, recency)
        for word in words:
            self._slots_by_word.setdefault(word, set()).add(slot)

    def remove(self, source: str) -> None:
        for slot in self._slots_by_source.pop(source, {}).values():
            self._drop(slot)

    def _drop(self, slot: int | None) -> None:
        if slot is None:
            return
        for word in self._stored.pop(slot).words:
            slots = self._slots_by_word[word]
            slots.discard(slot)
            if not slots:
                del self._slots_by_word[word]

    def search(self, words: list[str], limit: int) -> list[MemoryEntry]:
        scores: dict[int, float] = {}
        for word in words:
            slots = self._slots_by_word.get(word, ())
            weight = math.log(1 + len(self._stored) / len(slots)) if slots else 0
            for slot in slots:
                scores[slot] = scores.get(slot, 0) + weight
        best = heapq.nlargest(limit, scores, key=lambda slot: (scores[slot], self._stored[slot].recency, slot))
        return [copy.copy(self._stored[slot].entry) for slot in best]


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
