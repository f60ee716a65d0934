"""Memory in this process, gone when it ends."""

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
    """Ranks by how many of the query's words an entry has, rare words counting more; then the newer entry wins.

    Contents are shared with the events they came from, not copied. Entries without words, which no search could find,
    are not kept.
    """

    def __init__(self) -> None:
        self._shelves: dict[tuple[str, str], _Shelf] = {}

    async def add_session_to_memory(self, session: Session) -> None:
        shelf = self._shelf(session.app_name, session.user_id)
        shelf.forget(session.id)
        shelf.add_events(session.id, session.events)

    async def add_events_to_memory(
        self, *, app_name: str, user_id: str, session_id: str, events: Sequence[Event]
    ) -> None:
        self._shelf(app_name, user_id).add_events(session_id, events)

    async def add_memories(self, *, app_name: str, user_id: str, memories: Sequence[MemoryEntry]) -> None:
        shelf = self._shelf(app_name, user_id)
        for memory in memories:
            entry = copy.copy(memory)
            entry.id = entry.id or str(uuid4())
            shelf.put(None, entry.id, entry, _recency(entry.timestamp))

    async def search_memory(self, *, app_name: str, user_id: str, query: str, limit: int = 10) -> SearchMemoryResponse:
        shelf = self._shelves.get((app_name, user_id))
        return SearchMemoryResponse(memories=shelf.search(words_of_query(query), limit) if shelf else [])

    def _shelf(self, app_name: str, user_id: str) -> _Shelf:
        return self._shelves.setdefault((app_name, user_id), _Shelf())


class _Remembered(NamedTuple):
    entry: MemoryEntry
    words: set[str]
    recency: float


class _Shelf:
    """What is remembered of one user in one app. A slot is an entry's number, higher for what came later."""

    def __init__(self) -> None:
        self._next_slot = 0
        self._remembered: dict[int, _Remembered] = {}
        self._slots_by_word: dict[str, set[int]] = {}
        self._slots_by_source: dict[str | None, dict[str, int]] = {}

    def add_events(self, session_id: str, events: Iterable[Event]) -> None:
        known = self._slots_by_source.get(session_id, {})
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
            known = self._slots_by_source.get(session_id, {})

    def put(self, source: str | None, entry_id: str, entry: MemoryEntry, recency: float) -> None:
        """In place of the source's entry with that id."""
        slots = self._slots_by_source.setdefault(source, {})
        self._drop(slots.pop(entry_id, None))
        words = words_of_text(_visible_text(entry.content))
        if not words:
            return
        slot = slots[entry_id] = self._next_slot
        self._next_slot += 1
        self._remembered[slot] = _Remembered(entry, words, recency)
        for word in words:
            self._slots_by_word.setdefault(word, set()).add(slot)

    def forget(self, source: str) -> None:
        for slot in self._slots_by_source.pop(source, {}).values():
            self._drop(slot)

    def _drop(self, slot: int | None) -> None:
        if slot is None:
            return
        for word in self._remembered.pop(slot).words:
            slots = self._slots_by_word[word]
            slots.discard(slot)
            if not slots:
                del self._slots_by_word[word]

    def search(self, words: list[str], limit: int) -> list[MemoryEntry]:
        scores: dict[int, float] = {}
        for word in words:
            slots = self._slots_by_word.get(word, ())
            weight = math.log(1 + len(self._remembered) / len(slots)) if slots else 0
            for slot in slots:
                scores[slot] = scores.get(slot, 0) + weight
        best = heapq.nlargest(limit, scores, key=lambda slot: (scores[slot], self._remembered[slot].recency, slot))
        return [copy.copy(self._remembered[slot].entry) for slot in best]


def _visible_text(content: Content) -> str:
    """Parts are apart: the last word of one and the first of the next are two words."""
    return "\n".join(part.text for part in content.parts or () if part.text and not part.thought)


def _iso_8601(timestamp: float) -> str | None:
    try:
        return datetime.fromtimestamp(timestamp, UTC).isoformat()
    except (OverflowError, ValueError, OSError):
        return None  # a client's own number that is no time


def _recency(timestamp: str | None) -> float:
    """Unix seconds; an entry without a time is older than all others."""
    try:
        moment = datetime.fromisoformat(timestamp or "")
    except ValueError:
        return -math.inf
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
