"""Changes of run records, between the servers on a PostgreSQL database.

    server 1 watches: it listens, and holds a lock that shows it
    server 2 sees the lock when it surveys the locks, at once or within a second, and notifies: there were changes
    server 1 has its lists read again, since it doesn't know what it has missed
    server 2 commits records of the runs 1, 2 and 1 again, and notifies a fifth of a second later: 1 and 2
    server 1 reads the records of 1 and 2

While nobody watches, nothing is collected and nothing sent.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import Future
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from greenroom.errors import StorageError
from greenroom.postgres.database import Database
from greenroom.postgres.notifications import RUNS_CHANNEL, Notifications, RunListeners
from greenroom.records.run import Run
from greenroom.runs.store import Changed

_log = logging.getLogger("greenroom.runs")

PAUSE_SECONDS = 0.2
"""Time in which changes are collected for one notification. In PostgreSQL, commits with notifications wait for each
other; so they are few, and apart from those of the records."""

MAX_IDS = 1000
"""Changes for which the ids are sent; after more, lists are read again."""


class PostgresRunChanges:
    """Sends the changes of this server's runs, and receives those of the others."""

    def __init__(
        self,
        database: Database,
        notifications: Notifications,
        read: Callable[[Sequence[str]], Awaitable[Sequence[Run]]],
    ) -> None:
        """read: returns the records with these ids. Raises StorageError."""
        self.is_watched = False
        """True while another server watches."""

        self._notifications = notifications
        self._read = read
        self._loop = asyncio.get_running_loop()
        self._listeners = database.companion(RunListeners, RunListeners)
        self._remove_listener = self._listeners.add_listener(self._listeners_changed)
        self._saved: set[str] = set()
        self._has_missed = False
        """Whether changes were not collected, so that the others have to read their lists again."""

        self._sending: asyncio.Task[None] | None = None
        self._to_read: dict[str, None] = {}
        self._reading: asyncio.Task[None] | None = None
        self._changed: Changed | None = None
        self._note_listeners()

    async def follow(self, changed: Changed) -> Callable[[], None]:
        """Calls `changed` as `RunStore.follow` does. One at a time."""
        self._changed = changed
        stop_listening = await self._notifications.listen(RUNS_CHANNEL, self._received)

        def stop() -> None:
            self._changed = None
            self._to_read.clear()
            stop_listening()

        return stop

    def note(self, run_id: str, saving: Future[Any]) -> None:
        """Notifies the others when the record is stored. Called while `is_watched`."""
        saving.add_done_callback(partial(self._note_saved, run_id))

    async def close(self) -> None:
        self._remove_listener()
        self.is_watched = False
        tasks = [task for task in (self._sending, self._reading) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    # Sending

    def _listeners_changed(self) -> None:
        """Called in any thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._note_listeners)

    def _note_listeners(self) -> None:
        was_watched = self.is_watched
        self.is_watched = bool(self._listeners.numbers - {self._notifications.number})
        if self.is_watched and not was_watched:
            self._has_missed = True
            self._send_soon()

    def _note_saved(self, run_id: str, saving: Future[Any]) -> None:
        if saving.cancelled() or saving.exception() is not None or not self.is_watched:
            return
        self._saved.add(run_id)
        self._send_soon(PAUSE_SECONDS)

    def _send_soon(self, pause_seconds: float = 0.0) -> None:
        if self._sending is None:
            self._sending = self._loop.create_task(self._send(pause_seconds))

    async def _send(self, pause_seconds: float) -> None:
        try:
            while (self._saved or self._has_missed) and self.is_watched:
                await asyncio.sleep(pause_seconds)
                ids = self._take_saved()
                try:
                    await self._notifications.notify(RUNS_CHANNEL, ids)
                except StorageError as error:
                    _log.warning("other servers could not be notified of changed runs: %s", error)
                    self._has_missed = True
                pause_seconds = PAUSE_SECONDS
        finally:
            self._sending = None

    def _take_saved(self) -> Sequence[str]:
        """The ids to send; none if the others have to read their lists again."""
        ids = [] if self._has_missed or len(self._saved) > MAX_IDS else sorted(self._saved)
        self._saved.clear()
        self._has_missed = False
        return ids

    # Receiving

    def _received(self, ids: Sequence[str] | None) -> None:
        if self._changed is None:
            return
        if not ids:
            self._changed(None)
            return
        self._to_read |= dict.fromkeys(ids)
        if self._reading is None:
            self._reading = self._loop.create_task(self._read_changed())

    async def _read_changed(self) -> None:
        try:
            while self._to_read:
                ids = list(self._to_read)
                self._to_read.clear()
                try:
                    runs = await self._read(ids)
                except StorageError as error:
                    _log.warning("changed runs of other servers could not be read: %s", error)
                    runs = None
                if self._changed is not None:
                    self._changed(runs)
        finally:
            self._reading = None
