"""What was said, kept as artifacts when the run asks for it (`RunConfig.save_live_blob`).

Source of the names: ADK's live audio storage.
"""

from __future__ import annotations

import time

from greenroom.agents.turn.history import SAVED_LIVE_AUDIO
from greenroom.errors import AgentConfigError
from greenroom.invocation.context import InvocationContext
from greenroom.records.content import Blob, Content, FileData, Part
from greenroom.records.event import Event, EventActions

MAX_BYTES = 8 * 1024 * 1024
"""A piece of a conversation that grows beyond this is saved as it is, and the next one begun: about four minutes."""


class SavedAudio:
    """One direction of a conversation. author: who speaks."""

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
        saved = await self.save() if self._bytes >= MAX_BYTES or mime_type != self._mime_type else None
        if not self._chunks:
            self._mime_type = mime_type
            self._began_at = max(time.time_ns() // 1_000_000, self._began_at + 1)  # no two pieces share a name
        self._chunks.append(blob.data)
        self._bytes += len(blob.data)
        return saved

    async def save(self) -> Event | None:
        """Save what was said since the last time; None when that is nothing."""
        if not self._chunks:
            return None
        ctx, artifacts = self._ctx, self._ctx.artifact_service
        if artifacts is None:
            raise AgentConfigError("Live audio is to be saved, but the runner has no artifact service")
        blob = Blob(data=b"".join(self._chunks), mime_type=self._mime_type)
        kind = self._mime_type.partition("/")[2].partition(";")[0]
        name = f"adk_live_audio_storage_{self._direction}_{self._began_at}.{kind}"
        self._chunks.clear()
        self._bytes = 0
        version = await artifacts.save_artifact(
            app_name=ctx.app_name,
            user_id=ctx.user_id,
            session_id=ctx.session.id,
            filename=name,
            artifact=Part(inline_data=blob),
        )
        uri = f"artifact://{ctx.app_name}/{ctx.user_id}/{ctx.session.id}{SAVED_LIVE_AUDIO}{name}#{version}"
        file = Part(file_data=FileData(file_uri=uri, mime_type=self._mime_type))
        return Event(
            invocation_id=ctx.invocation_id,
            author=self._author,
            branch=ctx.branch,
            content=Content(role="user" if self._author == "user" else "model", parts=[file]),
            actions=EventActions(artifact_delta={name: version}),
        )
