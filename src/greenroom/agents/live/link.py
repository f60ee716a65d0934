"""The connection that is open now, and who waits while there is none."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from greenroom.errors import ModelError
from greenroom.models.live_model import BaseLlmConnection
from greenroom.records.model_exchange import LlmRequest


@dataclass(frozen=True, slots=True)
class Opened:
    """request: what it was opened with. history_at: which reading of the log it was given; None when it goes on with a
    session that knows what was said."""

    connection: BaseLlmConnection
    request: LlmRequest
    history_at: int | None


class Link:
    """Connections come and go; what is sent meanwhile waits for the next.

    newest: the one that was opened last, even if it is lost. readings: how often the log was read for one.
    sent_at: when something was sent last; nanoseconds since the epoch.
    """

    def __init__(self) -> None:
        self.readings = 0
        self.sent_at = 0
        self._now: asyncio.Future[Opened] = asyncio.get_running_loop().create_future()
        self.newest: Opened | None = None
        self._loss: ModelError | None = None
        self._has_ended = False

    def open(self, opened: Opened) -> None:
        self.newest, self._loss = opened, None
        self._now.set_result(opened)

    def shut(self) -> ModelError | None:
        """Returns how a sender found the connection lost, if one did."""
        if self._now.done() and not self._has_ended:
            self._now = asyncio.get_running_loop().create_future()
        return self._loss

    def end(self) -> None:
        """There will be no other connection: what is still sent is dropped."""
        self._has_ended = True
        if not self._now.done() and self.newest is not None:
            self._now.set_result(self.newest)

    async def opened(self) -> Opened:
        """The connection that is open, or will be; after the end, the last that was."""
        return await asyncio.shield(self._now)

    async def deliver(
        self, send: Callable[[BaseLlmConnection], Awaitable[None]], *, stored_at: int | None = None
    ) -> None:
        """Send over this connection, or the next if this one is lost.

        stored_at: `readings` before what is sent was stored; a connection that was given a later reading knows it.
        """
        while True:
            opened = await self.opened()
            knows_it = stored_at is not None and opened.history_at is not None and opened.history_at > stored_at
            if knows_it or self._has_ended:
                return
            try:
                await send(opened.connection)
                self.sent_at = time.time_ns()
                return
            except ModelError as error:
                if not error.retryable:
                    raise
                if self.newest is opened and self._loss is None:
                    self.shut()
                    self._loss = error
                    await opened.connection.close()  # whoever receives from it learns that it is lost
