"""Sandboxes that are kept between uses, each for a key such as a session."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, Hashable
from contextlib import asynccontextmanager

from greenroom.environments.default import default_sandbox
from greenroom.environments.sandbox import Sandbox

MAX_KEPT = 50
IDLE_SECONDS = 600.0


class KeptSandbox:
    """A sandbox that a pool keeps.

    sandbox: of a use, it runs.
    id: another one each time that the sandbox starts, which is then empty.
    versions: for the pool's user, the version of each file that was copied in, by name; empty when the sandbox starts.
    is_prepared: for the pool's user; false when the sandbox starts.
    is_spoiled: set by the user when nobody knows what the sandbox contains; it is then closed after the use.
    """

    sandbox: Sandbox

    def __init__(self) -> None:
        self.id = ""
        self.versions: dict[str, int] = {}
        self.is_prepared = False
        self.is_spoiled = False
        self.lock = asyncio.Lock()
        self.users = 0
        self.last_use = 0.0

    async def start(self, template: Sandbox) -> None:
        """Starts a sandbox, unless one runs."""
        if self.id and self.sandbox.is_running:
            return
        await self.close()
        self.versions.clear()
        self.is_prepared = False
        self.is_spoiled = False
        self.sandbox = template.new()
        await self.sandbox.initialize()
        self.id = uuid.uuid4().hex

    async def close(self) -> None:
        if self.id:
            self.id = ""
            await self.sandbox.close()


class SandboxPool:
    """Gives each key a sandbox of its own, which one task at a time uses.

    Of the unused ones at most `max_kept` are kept, those used last, each for `idle_seconds`.

    template: sandboxes are made by its `new`; None for `default_sandbox()`.
    """

    def __init__(
        self, template: Sandbox | None = None, *, max_kept: int = MAX_KEPT, idle_seconds: float = IDLE_SECONDS
    ) -> None:
        self._template = template
        self._max_kept = max_kept
        self._idle_seconds = idle_seconds
        self._kept: dict[Hashable, KeptSandbox] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._closing: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def use(self, key: Hashable) -> AsyncGenerator[KeptSandbox]:
        """Yields the key's sandbox. When the use is cancelled, the sandbox is closed.

        Raises ToolError if it can't be started.
        """
        kept = self._kept.setdefault(key, KeptSandbox())
        kept.users += 1
        try:
            async with kept.lock:
                try:
                    await kept.start(await self._choose())
                    yield kept
                except (asyncio.CancelledError, GeneratorExit):
                    kept.is_spoiled = True
                    raise
                finally:
                    if kept.is_spoiled:
                        await kept.close()
        finally:
            kept.users -= 1
            kept.last_use = time.monotonic()
            if kept.users == 0 and self._kept.get(key) is not kept:  # the pool was closed in the meantime
                await kept.close()
            self._close_unused()

    async def new(self) -> Sandbox:
        """A sandbox that is not kept, and not started. Raises ToolError if there is no default one."""
        return (await self._choose()).new()

    async def close(self) -> None:
        """Closes all sandboxes."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        all_kept = list(self._kept.values())
        self._kept.clear()
        await asyncio.gather(*self._closing, *(kept.close() for kept in all_kept))

    async def _choose(self) -> Sandbox:
        if self._template is None:
            self._template = await default_sandbox()
        return self._template

    def _close_unused(self) -> None:
        """Closes what is unused for too long, and sets the timer for the rest."""
        unused = sorted(
            ((key, kept) for key, kept in self._kept.items() if not kept.users),
            key=lambda item: item[1].last_use,
        )
        too_old = time.monotonic() - self._idle_seconds
        too_many = len(unused) - self._max_kept
        for index, (key, kept) in enumerate(unused):
            if index < too_many or kept.last_use <= too_old or not kept.id:
                del self._kept[key]
                closing = asyncio.create_task(kept.close())
                self._closing.add(closing)
                closing.add_done_callback(self._closing.discard)

        if self._timer is None and self._kept:
            self._timer = asyncio.get_running_loop().call_later(self._idle_seconds / 2, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._close_unused()
