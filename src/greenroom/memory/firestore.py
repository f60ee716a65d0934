"""Memories in Firestore, found by words: a document of the collection `memories` for each entry.

Its id is a hash of the app, the user, the session and the entry's id. Fields: `appName`, `userId`, `sessionId` (empty
for entries of no session), `id`, `seconds` (Unix time), `keywords` and `entry` (JSON).
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from greenroom.errors import TooLarge
from greenroom.google_cloud.document_names import DocumentKeys as Keys
from greenroom.google_cloud.firestore import BATCH, FirestoreDatabase, translated_errors, where
from greenroom.log.state import kept_events
from greenroom.memory.entries import (
    MANY_ENTRIES,
    MANY_MATCHES,
    entries_of_events,
    entries_of_memories,
    weight,
    words_of_entry,
)
from greenroom.memory.service import BaseMemoryService
from greenroom.memory.words import words_of_query
from greenroom.records import wire
from greenroom.records.event import Event
from greenroom.records.listings import MemoryEntry, SearchMemoryResponse
from greenroom.records.session import Session

MEMORIES = "memories"

_MAX_WORDS = 10_000
"""A document may have 40,000 index entries. Of longer texts some words are not found."""
_MAX_ENTRY_BYTES = 500_000
_WORDS_PER_QUERY = 30

_decode_entry = wire.decoder(MemoryEntry)


class FirestoreMemoryService(BaseMemoryService):
    """Ranks the newest 2,000 of a user's entries that have a word of the query, as the other stores rank words."""

    def __init__(
        self,
        client: Any = None,
        *,
        memories_collection: str = MEMORIES,
        stop_words: Collection[str] = (),
        database: FirestoreDatabase | None = None,
    ) -> None:
        """Opens the service. Words in `stop_words` are neither stored nor searched for. Others: see
        `FirestoreSessionService`.
        """
        self._database = database or FirestoreDatabase(client)
        self._collection = memories_collection
        self._stop_words = frozenset(word.lower() for word in stop_words)

    async def add_session_to_memory(self, session: Session) -> None:
        owner = session.key
        entries = list(entries_of_events(kept_events(session.events)))
        if not session.events.skipped:
            kept = {self._reference(*owner, entry.id).path for entry, _ in entries}
            stored = await self._database.fetch(self._query(*owner).select(["id"]))
            await self._write(delete=[one.reference for one in stored if one.reference.path not in kept])
        await self._add(*owner, entries, replace=False)

    async def add_events_to_memory(
        self, *, app_name: str, user_id: str, session_id: str, events: Sequence[Event]
    ) -> None:
        await self._add(app_name, user_id, session_id, entries_of_events(events), replace=False)

    async def add_memories(self, *, app_name: str, user_id: str, memories: Sequence[MemoryEntry]) -> None:
        await self._add(app_name, user_id, "", entries_of_memories(memories), replace=True)

    async def search_memory(self, *, app_name: str, user_id: str, query: str, limit: int = 10) -> SearchMemoryResponse:
        words = [word for word in words_of_query(query) if word not in self._stop_words]
        documents: dict[str, Any] = {}
        for first in range(0, len(words), _WORDS_PER_QUERY):
            some = where(
                self._query(app_name, user_id),
                ("keywords", "array_contains_any", words[first : first + _WORDS_PER_QUERY]),
            ).order_by("seconds", direction="DESCENDING")
            documents |= {
                document.id: document.to_dict() for document in await self._database.fetch(some.limit(MANY_MATCHES))
            }

        matches = {name: set(words).intersection(fields["keywords"]) for name, fields in documents.items()}
        counts = Counter(word for matched in matches.values() for word in matched)
        weights = {word: weight(MANY_ENTRIES, count) for word, count in counts.items()}

        best = sorted(
            documents,
            key=lambda name: (-sum(weights[word] for word in sorted(matches[name])), -documents[name]["seconds"], name),
        )
        return SearchMemoryResponse(
            memories=[_decode_entry(documents[name]["entry"].encode()) for name in best[:limit]]
        )

    async def delete_memory(self, *, app_name: str, user_id: str, memory_id: str | None = None) -> None:
        if memory_id is not None:
            await self._database.delete_all(where(self._query(app_name, user_id), ("id", "==", memory_id)))

    async def delete_user(self, *, app_name: str, user_id: str) -> None:
        await self._database.delete_all(self._query(app_name, user_id))

    async def _add(
        self,
        app_name: str,
        user_id: str,
        session_id: str,
        entries: Iterable[tuple[MemoryEntry, float]],
        *,
        replace: bool,
    ) -> None:
        new: dict[Any, dict[str, Any]] = {}
        for entry, seconds in entries:
            words = words_of_entry(entry) - self._stop_words
            json = wire.encode(entry)
            if len(json) > _MAX_ENTRY_BYTES:
                raise TooLarge("A memory in Firestore", limit_bytes=_MAX_ENTRY_BYTES)

            if words:  # else no search finds it
                new[self._reference(app_name, user_id, session_id, entry.id)] = {
                    Keys.APP_NAME: app_name,
                    Keys.USER_ID: user_id,
                    "sessionId": session_id,
                    "id": entry.id,
                    "seconds": seconds,
                    "keywords": sorted(words)[:_MAX_WORDS],
                    "entry": json.decode(),
                }

        if new and not replace:
            stored = await self._database.get_all(new)
            new = {reference: fields for reference, fields in new.items() if not stored[reference.path].exists}
        await self._write(new)

    async def _write(self, new: dict[Any, dict[str, Any]] | None = None, *, delete: Sequence[Any] = ()) -> None:
        changes = [*(new or {}).items(), *((reference, None) for reference in delete)]
        for first in range(0, len(changes), BATCH // 10):  # a request has 10 MB at most
            batch = self._database.client.batch()
            for reference, fields in changes[first : first + BATCH // 10]:
                batch.delete(reference) if fields is None else batch.set(reference, fields)
            with translated_errors("Writing"):
                await batch.commit()

    def _query(self, app_name: str, user_id: str, session_id: str | None = None) -> Any:
        query = where(
            self._database.client.collection(self._collection),
            (Keys.APP_NAME, "==", app_name),
            (Keys.USER_ID, "==", user_id),
        )
        return query if session_id is None else where(query, ("sessionId", "==", session_id))

    def _reference(self, *names: str | None) -> Any:
        name = hashlib.sha256(wire.encode(names)).hexdigest()
        return self._database.client.collection(self._collection).document(name)

    async def close(self) -> None:
        await self._database.close()
