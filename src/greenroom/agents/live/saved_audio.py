"""Saves the audio of a live conversation as artifacts while it continues."""

from __future__ import annotations

import time

from greenroom.agents.turn.prompt import SAVED_LIVE_AUDIO
from greenroom.errors import AgentConfigError
from greenroom.invocation.context import InvocationContext
from greenroom.records.content import Blob, Content, FileData, Part
from greenroom.records.event import Event, EventActions

MAX_BYTES = 8 * 1024 * 1024
"""The size of a piece, about four minutes, at which it is saved and the next one begins."""


class SavedAudio:
    """Collects the audio of one direction of a conversation, and saves it as artifacts.

    author: who speaks.
    """

    def __init__(self, ctx: InvocationContext, author: str, direction: str) -> None:
        self._ctx = ctx
        self._author = author
        self._direction = direction
        self._chunks: list[bytes] = []
        self._bytes = 0
        self._mime_type = ""
        self._began_at = 0  # in milliseconds

    async def add(self, blob: Blob) -> Event | None:
        """Returns the event of a piece that was saved because the next one begins with this blob."""
        mime_type = blob.mime_type or ""
        if not self._ctx.run_config.save_live_blob or not blob.data or not mime_type.startswith("audio/"):
            return None

        if self._bytes >= MAX_BYTES or mime_type != self._mime_type:
            saved = await self.save()
        else:
            saved = None

        if not self._chunks:
            self._mime_type = mime_type
            self._began_at = max(time.time_ns() // 1_000_000, self._began_at + 1)  # no two pieces share a name

        self._chunks.append(blob.data)
        self._bytes += len(blob.data)

        return saved

    async def save(self) -> Event | None:
        """Saves the audio since the last call; None without new audio."""
        if not self._chunks:
            return None

        ctx = self._ctx
        artifacts = ctx.artifact_service
        if artifacts is None:
            raise AgentConfigError("Live audio is to be saved, but the runner has no artifact service")

        blob = Blob(data=b"".join(self._chunks), mime_type=self._mime_type)
        kind = self._mime_type.partition("/")[2].partition(";")[0]
        name = f"adk_live_audio_storage_{self._direction}_{self._began_at}.{kind}"
        self._chunks.clear()
        self._bytes = 0
        artifact = Part(inline_data=blob)
        version = await artifacts.save_artifact(
            **ctx.session.key._asdict(),
            filename=name,
            artifact=artifact,
        )
        uri = f"artifact://{ctx.app_name}/{ctx.user_id}/{ctx.session.id}{SAVED_LIVE_AUDIO}{name}#{version}"
        file = Part(file_data=FileData(file_uri=uri, mime_type=self._mime_type))
        content = Content(role="user" if self._author == "user" else "model", parts=[file])

        return ctx.new_event(
            self._author,
            content=content,
            actions=EventActions(artifact_delta={name: version}),
        )
