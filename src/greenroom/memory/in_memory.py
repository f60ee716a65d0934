"""A memory store in this process's memory."""

from __future__ import annotations

import copy
import heapq
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from greenroom.log.state import kept_events
from greenroom.memory.entries import (
    changed_entry,
    entries_of_events,
    entries_of_memories,
    number_of,
    page_of,
    weight,
    words_of_entry,
)
from greenroom.memory.service import BaseMemoryService
from greenroom.memory.words import words_of_query
from greenroom.records.base import JsonObject
from greenroom.records.content import Content
from greenroom.records.event import Event
from greenroom.records.listings import ListMemoriesResponse, MemoryEntry, SearchMemoryResponse
from greenroom.records.session import Session


class InMemoryMemoryService(BaseMemoryService):
    """Ranks by the query's words that an entry contains, weighted by their rarity; among equals, newer entries first.

    Contents are shared with their events, not copied. Entries without words are not stored, since no search finds them.
    """

    def __init__(self) -> None:
        self._indexes: dict[tuple[str, str], _UserIndex] = {}

    async def add_session_to_memory(self, session: Session) -> None:
        index = self._index(session.app_name, session.user_id)
        if not session.events.skipped:
            index.remove(session.id)
        index.add_events(session.id, kept_events(session.events))

    async def add_events_to_memory(
        self, *, app_name: str, user_id: str, session_id: str, events: Sequence[Event]
    ) -> None:
        self._index(app_name, user_id).add_events(session_id, events)

    async def add_memories(self, *, app_name: str, user_id: str, memories: Sequence[MemoryEntry]) -> None:
        index = self._index(app_name, user_id)
        for entry, seconds in entries_of_memories(memories):
            index.put(None, entry, seconds)

    async def change_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        memory_id: str,
        content: Content,
        custom_metadata: JsonObject | None = None,
    ) -> MemoryEntry | None:
        index = self._indexes.get((app_name, user_id))
        return None if index is None else index.change(memory_id, content, custom_metadata)

    async def delete_memory(self, *, app_name: str, user_id: str, memory_id: str | None = None) -> None:
        index = self._indexes.get((app_name, user_id))
        if index is not None and memory_id is not None:
            index.delete(memory_id)

    async def search_memory(self, *, app_name: str, user_id: str, query: str, limit: int = 10) -> SearchMemoryResponse:
        index = self._indexes.get((app_name, user_id))
        return SearchMemoryResponse(memories=index.search(words_of_query(query), limit) if index else [])

    async def list_memories(
        self, *, app_name: str, user_id: str, limit: int = 100, page_token: str | None = None
    ) -> ListMemoriesResponse:
        index = self._indexes.get((app_name, user_id))
        numbered = index.after(number_of(page_token)) if index is not None else []
        return page_of(numbered, limit)

    async def delete_user(self, *, app_name: str, user_id: str) -> None:
        self._indexes.pop((app_name, user_id), None)

    def _index(self, app_name: str, user_id: str) -> _UserIndex:
        return self._indexes.setdefault((app_name, user_id), _UserIndex())


@dataclass(frozen=True, eq=False)
class _Stored:
    entry: MemoryEntry
    words: set[str]
    order: tuple[float, int]
    """Of two entries that match equally well, the one with the higher order comes first."""


class _UserIndex:
    """The entries of one user in one app, by session and id, and by their words."""

    def __init__(self) -> None:
        self._by_source: dict[str | None, dict[str, _Stored]] = {}
        self._by_word: dict[str, set[_Stored]] = {}
        self._numbers = itertools.count(1)

    def add_events(self, session_id: str, events: Iterable[Event]) -> None:
        for entry, seconds in entries_of_events(events):
            if entry.id not in self._by_source.get(session_id, {}):
                self.put(session_id, entry, seconds)

    def put(self, source: str | None, entry: MemoryEntry, seconds: float) -> None:
        """Replaces the source's entry with that id."""
        entry_id = entry.id or ""
        entries = self._by_source.setdefault(source, {})
        if entry_id in entries:
            self._drop(entries.pop(entry_id))
        words = words_of_entry(entry)
        if words:
            stored = entries[entry_id] = _Stored(entry, words, (seconds, next(self._numbers)))
            for word in words:
                self._by_word.setdefault(word, set()).add(stored)

    def remove(self, source: str) -> None:
        for stored in self._by_source.pop(source, {}).values():
            self._drop(stored)

    def change(self, entry_id: str, content: Content, custom_metadata: JsonObject | None) -> MemoryEntry | None:
        for source, entries in self._by_source.items():
            if entry_id in entries:
                stored = entries[entry_id]
                entry = changed_entry(stored.entry, content, custom_metadata)
                self.put(source, entry, stored.order[0])
                return entry
        return None

    def delete(self, entry_id: str) -> None:
        for entries in self._by_source.values():
            if entry_id in entries:
                self._drop(entries.pop(entry_id))

    def _drop(self, stored: _Stored) -> None:
        for word in stored.words:
            self._by_word[word].discard(stored)
            if not self._by_word[word]:
                del self._by_word[word]

    def after(self, number: int) -> list[tuple[int, MemoryEntry]]:
        """The entries that were added after the one with this number, with theirs."""
        numbered = [
            (stored.order[1], copy.copy(stored.entry))
            for entries in self._by_source.values()
            for stored in entries.values()
            if stored.order[1] > number
        ]
        return sorted(numbered, key=lambda one: one[0])

    def search(self, words: list[str], limit: int) -> list[MemoryEntry]:
        entries = sum(map(len, self._by_source.values()))
        scores: dict[_Stored, float] = {}
        for word in words:
            matches = self._by_word.get(word, ())
            counts_for = weight(entries, len(matches)) if matches else 0.0
            for stored in matches:
                scores[stored] = scores.get(stored, 0) + counts_for
        best = heapq.nlargest(limit, scores, key=lambda stored: (scores[stored], stored.order))
        return [copy.copy(stored.entry) for stored in best]
