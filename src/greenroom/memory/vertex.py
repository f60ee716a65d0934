"""Memories that Vertex AI keeps: the memory bank of a reasoning engine, and RAG corpora.

Source: `reasoningEngines.memories`, `ragCorpora.ragFiles` and `retrieveContexts` of the Vertex AI API, v1beta1.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import quote, unquote
from uuid import uuid4

import msgspec

from greenroom.errors import InvalidRequest, NotFound, StorageError
from greenroom.google_cloud.vertex import VertexClient
from greenroom.log.state import kept_events
from greenroom.memory.entries import entries_of_events, entries_of_memories, text_of_entry
from greenroom.memory.service import BaseMemoryService
from greenroom.records import wire
from greenroom.records.base import JsonObject
from greenroom.records.content import Content, Part
from greenroom.records.event import Event
from greenroom.records.listings import MemoryEntry, SearchMemoryResponse
from greenroom.records.session import Session

_AUTHOR = "greenroom_author"
_TOP_K = 100
_DELETIONS_AT_ONCE = 8


class VertexAiMemoryBankService(BaseMemoryService):
    """Vertex AI extracts facts from conversations, and merges them with those that it knows of the user.

    So events added twice count once, a session's earlier memories are not replaced, and a fact may be reworded.
    Methods return when the facts are stored.
    """

    def __init__(
        self,
        project: str | None = None,
        location: str | None = None,
        agent_engine_id: str | None = None,
        *,
        express_mode_api_key: str | None = None,
        credentials: Any = None,
        base_url: str | None = None,
    ) -> None:
        """Connects to a reasoning engine, given by id or resource name. Others: see `VertexClient`.

        Raises InvalidRequest without an id.
        """
        if not agent_engine_id:
            raise InvalidRequest("VertexAiMemoryBankService needs agent_engine_id", location=("agent_engine_id",))
        self._engine_id = agent_engine_id
        self._client = VertexClient(
            project, location, api_key=express_mode_api_key, credentials=credentials, base_url=base_url
        )

    async def add_session_to_memory(self, session: Session) -> None:
        await self._generate(session.app_name, session.user_id, kept_events(session.events))

    async def add_events_to_memory(
        self, *, app_name: str, user_id: str, session_id: str, events: Sequence[Event]
    ) -> None:
        await self._generate(app_name, user_id, events)

    async def add_memories(self, *, app_name: str, user_id: str, memories: Sequence[MemoryEntry]) -> None:
        """Stores the texts as they are. Values of custom metadata that are neither texts, numbers nor booleans are
        stored as JSON."""
        for memory in memories:
            metadata = {**(memory.custom_metadata or {}), **({_AUTHOR: memory.author} if memory.author else {})}
            body: JsonObject = {"fact": text_of_entry(memory), "scope": _scope(app_name, user_id)}
            if metadata:
                body["metadata"] = {name: _to_metadata(value) for name, value in metadata.items()}
            await self._client.finish(await self._client.call("POST", self._memories(), body))

    async def search_memory(self, *, app_name: str, user_id: str, query: str, limit: int = 10) -> SearchMemoryResponse:
        """Finds by similarity, as the service ranks."""
        if not query.strip():
            return SearchMemoryResponse()
        wanted = {"similaritySearchParams": {"searchQuery": query, "topK": min(limit, _TOP_K)}}
        page = await self._client.call(
            "POST", f"{self._memories()}:retrieve", {"scope": _scope(app_name, user_id), **wanted}
        )
        found: list[JsonObject] = page.get("retrievedMemories") or []
        return SearchMemoryResponse(memories=[_from_api(one["memory"]) for one in found])

    async def delete_memory(self, *, app_name: str, user_id: str, memory_id: str | None = None) -> None:
        if not memory_id or not memory_id.replace("-", "").isalnum():
            return
        path = f"{self._memories()}/{memory_id}"
        with suppress(NotFound):
            if (await self._client.call("GET", path)).get("scope") == _scope(app_name, user_id):
                await self._client.finish(await self._client.call("DELETE", path))

    async def delete_user(self, *, app_name: str, user_id: str) -> None:
        body = {"scope": _scope(app_name, user_id), "simpleRetrievalParams": {"pageSize": _TOP_K}}
        while found := (await self._client.call("POST", f"{self._memories()}:retrieve", body)).get("retrievedMemories"):
            await _delete_all(self._client, (one["memory"]["name"] for one in found))

    async def _generate(self, app_name: str, user_id: str, events: Iterable[Event]) -> None:
        contents = [entry.content for entry, _ in entries_of_events(events) if text_of_entry(entry)]
        if contents:
            body = {
                "directContentsSource": {"events": [{"content": wire.to_plain(content)} for content in contents]},
                "scope": _scope(app_name, user_id),
            }
            await self._client.finish(await self._client.call("POST", f"{self._memories()}:generate", body))

    def _memories(self) -> str:
        return f"{self._client.engine(self._engine_id)}/memories"

    async def close(self) -> None:
        await self._client.close()


class VertexAiRagMemoryService(BaseMemoryService):
    """A corpus with a file of JSON lines for each session, named `{app}.{user}.{session}`, as ADK writes them.

    The corpus ranks texts of all users; those of others are left out afterwards, so that fewer than `limit` remain.
    `delete_memory` raises NotOffered.
    """

    def __init__(
        self,
        rag_corpus: str,
        similarity_top_k: int | None = None,
        vector_distance_threshold: float = 10,
        project: str | None = None,
        location: str | None = None,
        *,
        credentials: Any = None,
        base_url: str | None = None,
    ) -> None:
        """Connects to a RAG corpus.

        rag_corpus: id or resource name. similarity_top_k: texts ranked per search; None: the service's default. Others:
        see `VertexClient`.
        """
        self._corpus_id = rag_corpus
        self._search: JsonObject = {"filter": {"vectorDistanceThreshold": vector_distance_threshold}}
        if similarity_top_k is not None:
            self._search["topK"] = similarity_top_k
        self._client = VertexClient(project, location, credentials=credentials, base_url=base_url)

    async def add_session_to_memory(self, session: Session) -> None:
        name = _file_name(session.app_name, session.user_id, session.id)
        earlier = [] if session.events.skipped else [one["name"] async for one in self._files(name)]
        await self._upload(name, entries_of_events(kept_events(session.events)))
        await _delete_all(self._client, earlier)

    async def add_events_to_memory(
        self, *, app_name: str, user_id: str, session_id: str, events: Sequence[Event]
    ) -> None:
        """Events added twice are stored twice, and found once."""
        await self._upload(_file_name(app_name, user_id, session_id), entries_of_events(events))

    async def add_memories(self, *, app_name: str, user_id: str, memories: Sequence[MemoryEntry]) -> None:
        await self._upload(_file_name(app_name, user_id, ""), entries_of_memories(memories))

    async def search_memory(self, *, app_name: str, user_id: str, query: str, limit: int = 10) -> SearchMemoryResponse:
        if not query.strip():
            return SearchMemoryResponse()
        body = {
            "vertexRagStore": {"ragResources": [{"ragCorpus": self._corpus()}]},
            "query": {"text": query, "ragRetrievalConfig": self._search},
        }
        parent = self._corpus().partition("/ragCorpora/")[0]
        reply = await self._client.call("POST", f"{parent}:retrieveContexts", body)

        entries: dict[str, MemoryEntry] = {}
        replied: JsonObject = reply.get("contexts") or {}

        contexts: list[JsonObject] = replied.get("contexts") or []

        for context in contexts:
            owner: list[str] = context.get("sourceDisplayName", "").split(".")[:2]
            if [unquote(part) for part in owner] == [app_name, user_id]:
                for entry in _entries_in(context.get("text", "")):
                    entries.setdefault(entry.id or f"{entry.timestamp} {entry.content.text()}", entry)
        return SearchMemoryResponse(memories=list(entries.values())[:limit])

    async def delete_user(self, *, app_name: str, user_id: str) -> None:
        await _delete_all(self._client, [one["name"] async for one in self._files(_file_name(app_name, user_id, ""))])

    async def _files(self, prefix: str) -> AsyncGenerator[JsonObject]:
        """Yields the files with this display name or, if the prefix ends in a dot, all whose names begin with it."""
        async for file in self._client.pages(f"{self._corpus()}/ragFiles", "ragFiles", pageSize=_TOP_K):
            name = file.get("displayName", "")
            if name == prefix or (prefix.endswith(".") and name.startswith(prefix)):
                yield file

    async def _upload(self, name: str, entries: Iterable[tuple[MemoryEntry, float]]) -> None:
        lines = [
            wire.encode({"id": entry.id, "author": entry.author or "", "timestamp": seconds, "text": text})
            for entry, seconds in entries
            if (text := text_of_entry(entry).replace("\n", " "))
        ]
        if not lines:
            return
        metadata = wire.encode({"rag_file": {"display_name": name}})
        files = {"metadata": (None, metadata), "file": ("memory.txt", b"\n".join(lines), "text/plain")}
        path = f"{self._corpus()}/ragFiles:upload"
        reply = await self._client.call("POST", path, version="upload/v1beta1", files=files)
        if "error" in reply:
            raise StorageError("Uploading to Vertex AI", str(reply["error"].get("message")))

    def _corpus(self) -> str:
        given = self._corpus_id
        return given if given.startswith("projects/") else f"{self._client.parent()}/ragCorpora/{given}"

    async def close(self) -> None:
        await self._client.close()


def _scope(app_name: str, user_id: str) -> JsonObject:
    return {"app_name": app_name, "user_id": user_id}


def _file_name(*parts: str) -> str:
    """Dots in the parts are escaped: they separate them."""
    return ".".join(quote(part, safe="").replace(".", "%2E") for part in parts)


async def _delete_all(client: VertexClient, names: Iterable[str]) -> None:
    free = asyncio.Semaphore(_DELETIONS_AT_ONCE)

    async def delete(name: str) -> None:
        async with free:
            with suppress(NotFound):
                await client.finish(await client.call("DELETE", name))

    async with asyncio.TaskGroup() as tasks:
        for name in names:
            tasks.create_task(delete(name))


def _to_metadata(value: object) -> JsonObject:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, (int, float)):
        return {"doubleValue": value}
    return {"stringValue": value if isinstance(value, str) else wire.encode(value).decode()}


def _from_api(memory: JsonObject) -> MemoryEntry:
    stored: dict[str, JsonObject] = memory.get("metadata") or {}
    metadata = {name: next(iter(value.values()), None) for name, value in stored.items()}
    author = metadata.pop(_AUTHOR, None)
    return MemoryEntry(
        id=memory["name"].rpartition("/")[2],
        content=Content(role="user", parts=[Part(text=memory.get("fact", ""))]),
        author=author,
        timestamp=memory.get("updateTime"),
        custom_metadata=metadata or None,
    )


class _Line(msgspec.Struct):
    text: str
    author: str = ""
    timestamp: float = 0.0
    id: str | None = None


def _entries_in(text: str) -> Iterable[MemoryEntry]:
    """The whole lines in a text of the corpus, which may begin and end in the middle of one."""
    for line in text.split("\n"):
        try:
            decoded = msgspec.json.decode(line, type=_Line)
        except msgspec.DecodeError:
            continue
        content = Content(role="user", parts=[Part(text=decoded.text)])
        event = Event(
            id=decoded.id or str(uuid4()), author=decoded.author, timestamp=decoded.timestamp, content=content
        )
        ((entry, _),) = entries_of_events([event])
        entry.id = decoded.id
        entry.author = decoded.author or None
        yield entry
