"""One event of a run: first stored, then shown."""

from __future__ import annotations

import asyncio
import contextlib

from greenroom.errors import StorageError
from greenroom.event_streams.stream import EventStream, StreamItem
from greenroom.invocation.context import InvocationContext
from greenroom.records.base import JsonObject
from greenroom.records.content import Content, Part
from greenroom.records.event import Event
from greenroom.records.redaction import redact
from greenroom.records.session import Session
from greenroom.runner.live import holds_media
from greenroom.sessions.service import BaseSessionService
from greenroom.telemetry.trace import Trace

ABORTED = "INVOCATION_ABORTED"
"""Error code of the event that ends a cancelled run. Source: ADK's servers."""


class RunLog:
    """Where a run's events go. Keeps the text of a message that is being written, in case it is cut off.

    untold: the context of the stretch that is going on, until the plugins have been told of its end.
    """

    def __init__(
        self,
        *,
        session: Session,
        invocation_id: str,
        sessions: BaseSessionService,
        stream: EventStream | None,
        custom_metadata: JsonObject | None,
        is_live: bool = False,
        trace: Trace | None = None,
    ) -> None:
        self.session = session
        self.invocation_id = invocation_id
        self.trace = trace
        self._sessions = sessions
        self._stream = stream
        self._key = session.key
        self._custom_metadata = custom_metadata
        self._is_live = is_live
        self.untold: InvocationContext | None = None
        self._open_id: str | None = None
        self._open_author = ""
        self._open_contents: list[Content] = []

    async def commit(self, event: Event) -> None:
        """Store a complete event, with its state delta, and publish it; a partial one is only published, and so are
        media that a model makes in a live run."""
        if not event.invocation_id:
            event.invocation_id = self.invocation_id
        if self._custom_metadata:
            event.custom_metadata = {**self._custom_metadata, **(event.custom_metadata or {})}
        if event.custom_metadata or event.actions.requested_auth_configs or event.long_running_tool_ids:
            redact(event)
        is_passing = self._is_live and event.author != "user" and holds_media(event)
        if event.partial or is_passing:
            if not is_passing:
                self._remember(event)
            if self._stream is not None:
                self._stream.publish(self._key, StreamItem(event, run_id=self.invocation_id, seq=None))
            return
        try:
            seq = await self._sessions.append(self.session, event)
        except asyncio.CancelledError:
            # It may be stored all the same. Asking again tells where: readers and the end of the run need it.
            with contextlib.suppress(StorageError):
                self._tell(event, await self._sessions.append(self.session, event))
            raise
        self._tell(event, seq)

    def _tell(self, event: Event, seq: int) -> None:
        if self._open_id is not None:
            self._open_id = None
            self._open_contents.clear()
        if self._stream is not None:
            self._stream.publish(self._key, StreamItem(event, run_id=self.invocation_id, seq=seq))

    def cut_off(self, *, error_code: str, error_message: str, author: str) -> Event:
        """The event that ends a run that went wrong; it holds what was received of the message being written."""
        text = "".join(content.text() for content in self._open_contents)
        event = Event(
            invocation_id=self.invocation_id,
            author=self._open_author if text else author,
            error_code=error_code,
            error_message=error_message,
        )
        if text and self._open_id is not None:
            event.id = self._open_id
            event.content = Content(role="model", parts=[Part(text=text)])
            event.interrupted = True
        return event

    def _remember(self, event: Event) -> None:
        if event.id != self._open_id:
            self._open_id = event.id
            self._open_author = event.author
            self._open_contents.clear()
        if event.content is not None:
            self._open_contents.append(event.content)
