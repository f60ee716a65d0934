"""Export of a user's data in an app as a zip file, written while it is read.

sessions.jsonl        a session with its state and events in each line, as `greenroom sessions export` writes them
state.json            the state of all the user's sessions
runs.jsonl, …         the other kinds of data, a record in each line
artifacts.jsonl       a version in each line, with the name of the file that has its content
artifacts/000001      the content
manifest.json         counts, and what is missing; the last file, so that a truncated export shows
"""

from __future__ import annotations

import time
import zipfile
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import IO, cast

import msgspec

from greenroom.errors import NotOffered
from greenroom.records import wire
from greenroom.records.base import JsonObject
from greenroom.records.exported_session import ExportedSession
from greenroom.records.session import GetSessionConfig, Session
from greenroom.records.state import APP_PREFIX, USER_PREFIX
from greenroom.records.user_data import ExportedArtifact, ExportManifest, UserDataKind
from greenroom.server.user_data.inventory import PAGE, StoredArtifact, UserData

_CHUNK_BYTES = 64 * 1024


class UserExport:
    """Writes one export. Holds a page of records, or a chunk of an artifact, at a time."""

    def __init__(self, user: UserData) -> None:
        self._user = user
        self._buffer = _Buffer()
        self._zip = zipfile.ZipFile(cast("IO[bytes]", self._buffer), "w", zipfile.ZIP_DEFLATED)
        self._counts: dict[str, int] = {}
        self._missing: dict[str, str] = {}

    async def pieces(self) -> AsyncGenerator[bytes]:
        """The file in pieces."""
        user = self._user
        exported_at = time.time()
        async for piece in self._sessions():
            yield piece
        async for piece in self._spans():
            yield piece

        state = await user.state()
        self._counts["state"] = len(state)
        self._zip.writestr("state.json", wire.encode(state))
        kinds: tuple[tuple[UserDataKind, Callable[[], AsyncIterator[object]]], ...] = (
            ("runs", user.runs),
            ("requests", user.requests),
            ("answers", user.answers),
            ("feedback", user.feedback),
            ("given_feedback", user.given_feedback),
            ("schedules", user.schedules),
            ("memories", user.memories),
            ("credentials", user.credentials),
            ("usage", user.usage),
        )
        for kind, read in kinds:
            async for piece in self._lines(kind, read()):
                yield piece
        async for piece in self._artifacts():
            yield piece

        manifest = ExportManifest(
            app_name=user.app_name,
            user_id=user.user_id,
            exported_at=exported_at,
            counts=self._counts,
            missing=self._missing,
        )
        self._zip.writestr("manifest.json", wire.encode(manifest))
        self._zip.close()
        yield self._buffer.take()

    async def _sessions(self) -> AsyncGenerator[bytes]:
        self._counts |= {"sessions": 0, "events": 0}
        with self._open("sessions.jsonl") as file:
            async for session in self._user.sessions():
                file.write(await self._head_of(session))
                after = 0
                while True:
                    log = await self._user.session_service.list_events(**session.key._asdict(), after=after, limit=PAGE)
                    for event in log.events:
                        file.write((b"," if after else b"") + wire.encode(event))
                        after += 1
                    yield self._buffer.take()
                    if not log.events:
                        break
                file.write(b"]}\n")
                self._counts["sessions"] += 1
                self._counts["events"] += after
        yield self._buffer.take()

    async def _head_of(self, session: Session) -> bytes:
        """The JSON of an exported session up to its first event."""
        try:
            config = GetSessionConfig(until_seq=0)
            start = await self._user.session_service.get_session(**session.key._asdict(), config=config)
        except NotOffered:
            start = None
        state = {key: value for key, value in session.state.items() if not key.startswith(APP_PREFIX)}
        own = (session if start is None else start).state
        exported = ExportedSession(
            id=session.id,
            app_name=session.app_name,
            user_id=session.user_id,
            state=state,
            last_update_time=session.last_update_time,
            initial_state={key: value for key, value in own.items() if not key.startswith((APP_PREFIX, USER_PREFIX))},
        )
        fields: JsonObject = wire.to_plain(exported)
        fields.pop("events", None)
        return wire.encode(fields)[:-1] + b',"events":['

    async def _spans(self) -> AsyncGenerator[bytes]:
        async def spans() -> AsyncGenerator[JsonObject]:
            async for session in self._user.sessions():
                for span in await self._user.spans(session.id):
                    yield {"session_id": session.id, **msgspec.to_builtins(span)}

        async for piece in self._lines("spans", spans()):
            yield piece

    async def _lines(self, kind: UserDataKind, records: AsyncIterator[object]) -> AsyncGenerator[bytes]:
        """The file of a kind, which isn't there if the store can't list it."""
        self._counts[kind] = 0
        try:
            with self._open(f"{kind}.jsonl") as file:
                async for record in records:
                    file.write(wire.encode(record) + b"\n")
                    self._counts[kind] += 1
                    if self._buffer.size > _CHUNK_BYTES:
                        yield self._buffer.take()
        except NotOffered as error:
            self._missing[kind] = error.detail
        yield self._buffer.take()

    async def _artifacts(self) -> AsyncGenerator[bytes]:
        """The contents, and then the list. Of the list, each artifact takes a few hundred bytes meanwhile."""
        lines: list[bytes] = []
        number = 0
        try:
            async for artifact in self._user.artifacts():
                number += 1
                file = f"artifacts/{number:06d}"
                content = await self._user.content_of(artifact)
                if content is None:
                    continue
                with self._open(file) as written:
                    async for chunk in content.chunks:
                        for start in range(0, len(chunk), _CHUNK_BYTES):
                            written.write(chunk[start : start + _CHUNK_BYTES])
                            yield self._buffer.take()
                lines.append(wire.encode(_described(artifact, file)) + b"\n")
        except NotOffered as error:
            self._missing["artifacts"] = error.detail

        self._counts["artifacts"] = len(lines)
        with self._open("artifacts.jsonl") as listing:
            for line in lines:
                listing.write(line)
        yield self._buffer.take()

    def _open(self, name: str) -> IO[bytes]:
        return self._zip.open(name, "w", force_zip64=True)


class _Buffer:
    """A file that can't be read: the bytes that were written since they were taken last."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self.size = 0

    def write(self, data: bytes) -> int:
        self._pieces.append(bytes(data))
        self.size += len(data)
        return len(data)

    def flush(self) -> None:
        """Does nothing."""

    def take(self) -> bytes:
        data = b"".join(self._pieces)
        self._pieces = []
        self.size = 0
        return data


def _described(artifact: StoredArtifact, file: str) -> ExportedArtifact:
    version = artifact.version
    return ExportedArtifact(
        filename=artifact.filename,
        session_id=artifact.session_id,
        version=version.version,
        mime_type=version.mime_type,
        create_time=version.create_time,
        custom_metadata=version.custom_metadata or None,
        canonical_uri=version.canonical_uri,
        file=file,
    )
