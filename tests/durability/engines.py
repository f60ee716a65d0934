"""Engines of one process over stores that outlive them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from greenroom.agents.agent import BaseAgent
from greenroom.apps.app import App
from greenroom.apps.loader import StaticAppLoader
from greenroom.event_streams.stream import LiveItem, RunEnded, StreamItem
from greenroom.plugins.plugin import BasePlugin
from greenroom.records.audit import AuditEntry
from greenroom.records.content import Content, Part
from greenroom.records.event import Event
from greenroom.records.inbox import RequestChanges
from greenroom.records.run import AgentRunRequest, Run
from greenroom.records.session import Session
from greenroom.runs.engine import Attachment, run_store_beside
from greenroom.runs.in_process import InProcessRunEngine
from greenroom.runs.memory_store import InMemoryRunStore
from greenroom.runs.store import RunStore
from greenroom.sessions.in_memory import InMemorySessionService
from greenroom.sessions.service import BaseSessionService
from greenroom.sessions.sqlite import SqliteSessionService
from greenroom.statistics.run_figures import RunFigures

WHERE: dict[str, Any] = {"app_name": "desk", "user_id": "ann", "session_id": "s-1"}


@dataclass(frozen=True)
class Stores:
    sessions: BaseSessionService
    runs: RunStore

    async def log(self) -> list[Event]:
        return (await self.sessions.list_events(**WHERE)).events

    async def session(self) -> Session:
        session = await self.sessions.get_session(**WHERE)
        assert session is not None
        return session


class Gate:
    """A tool that waits until the test opens the gate."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.open = asyncio.Event()

    async def wait(self) -> str:
        """Waits."""
        self.entered.set()
        await self.open.wait()
        return "open"


class SlowStore(InMemoryRunStore):
    """Stores a record a moment after it was handed over, in order, as databases do."""

    def save(
        self,
        run: Run,
        *,
        is_to_remember: bool = False,
        requests: RequestChanges | None = None,
        audit: Sequence[AuditEntry] = (),
        figures: Sequence[RunFigures] = (),
    ) -> asyncio.Future[None]:
        written = msgspec.structs.replace(run)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def write() -> None:
            super(SlowStore, self).save(
                written, is_to_remember=is_to_remember, requests=requests, audit=audit, figures=figures
            )
            if not future.cancelled():
                future.set_result(None)

        asyncio.get_running_loop().call_later(0.05, write)
        return future


class HeldStore(InMemoryRunStore):
    """Stores the ends of runs when a test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self._held: list[asyncio.Future[None]] = []

    def save(
        self,
        run: Run,
        *,
        is_to_remember: bool = False,
        requests: RequestChanges | None = None,
        audit: Sequence[AuditEntry] = (),
        figures: Sequence[RunFigures] = (),
    ) -> asyncio.Future[None]:
        if not run.status.is_over:
            return super().save(run, is_to_remember=is_to_remember, requests=requests, audit=audit, figures=figures)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._held.append(future)
        return future

    async def saving(self) -> asyncio.Future[None]:
        """The first end that is held, when there is one."""
        async with asyncio.timeout(5):
            while not self._held:
                await asyncio.sleep(0.01)
        return self._held[0]


@asynccontextmanager
async def stores_in(folder: Path | None) -> AsyncGenerator[Stores]:
    """In a database in the folder, or in memory. The session is there."""
    sessions = InMemorySessionService() if folder is None else SqliteSessionService(folder / "greenroom.db")
    stores = Stores(sessions, run_store_beside(sessions))
    if await sessions.get_session(**WHERE) is None:
        await sessions.create_session(**WHERE)
    try:
        yield stores
    finally:
        await stores.runs.close()
        await sessions.close()


@asynccontextmanager
async def engine_over(
    stores: Stores,
    agent: BaseAgent | App,
    *,
    grace_seconds: float = 0.0,
    plugins: Sequence[BasePlugin] = (),
    **options: Any,
) -> AsyncGenerator[InProcessRunEngine]:
    """An engine with one app. options: of the engine. Closed at the end, which leaves unfinished runs for the next one."""
    app = agent if isinstance(agent, App) else App(name=WHERE["app_name"], root_agent=agent, plugins=plugins)
    engine = InProcessRunEngine(
        apps=StaticAppLoader([app]),
        run_store=stores.runs,
        session_service=stores.sessions,
        **options,
    )
    try:
        yield engine
    finally:
        async with asyncio.timeout(10):
            await engine.close(grace_seconds=grace_seconds)


def asking(message: str | Part | None, *, streaming: bool = False, **more: Any) -> AgentRunRequest:
    parts = [Part(text=message) if isinstance(message, str) else message]
    content = None if message is None else Content(role="user", parts=[part for part in parts if part is not None])
    return AgentRunRequest(**WHERE, new_message=content, streaming=streaming, **more)


async def start(engine: InProcessRunEngine, request: AgentRunRequest) -> tuple[Run, Attachment]:
    run, attachment = await engine.start(request)
    assert attachment is not None
    return run, attachment


async def finish(engine: InProcessRunEngine, request: AgentRunRequest) -> Run:
    """Run to the end."""
    _, attachment = await start(engine, request)
    return await ended(attachment)


async def end_of(engine: InProcessRunEngine, run_id: str) -> Run:
    return await ended(await engine.attach(run_id))


async def ended(attachment: Attachment) -> Run:
    items = await items_of(attachment)
    last = items[-1]
    assert isinstance(last, RunEnded)
    return last.run


async def items_of(attachment: Attachment) -> list[LiveItem]:
    """All that a reader gets, up to the end of the run."""
    items: list[LiveItem] = []
    async with asyncio.timeout(10):
        while not items or not isinstance(items[-1], RunEnded):
            items += await attachment.next_batch()
    attachment.close()
    return items


async def wait_for(attachment: Attachment, is_wanted: Callable[[Event], bool]) -> Event:
    """Read on until such an event comes, partial or not; what came with it is dropped."""
    async with asyncio.timeout(10):
        while True:
            for item in await attachment.next_batch():
                assert isinstance(item, StreamItem), "the run ended first"
                if is_wanted(item.event):
                    return item.event
