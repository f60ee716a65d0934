"""The base of all clients: what they share, and how they send requests until they are answered."""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

import httpx
from openai import AsyncOpenAI

from greenroom.records.session import SessionKey
from tests.replicas.chaos.balancer import BASE_URL, TIMEOUT, RandomReplica, Target
from tests.replicas.chaos.journal import Journal
from tests.server.webhook_receiver import WebhookReceiver

Json: TypeAlias = "dict[str, Any]"

UNAVAILABLE = (502, 503)
"""503 of a server; both of a load balancer, which finds no server, or has lost its connection to one."""


@dataclass(frozen=True)
class World:
    """The replicas and the connections that all clients share."""

    rotation: Callable[[], Sequence[Target]]
    transport: httpx.AsyncHTTPTransport
    openai: AsyncOpenAI
    journal: Journal
    receiver: WebhookReceiver
    """Of the webhooks of all runs."""

    seed: str
    longest_stream_seconds: float


@dataclass
class SeenRun:
    """A run, and what a client has seen of it."""

    key: SessionKey
    message: str
    way: str
    """The endpoint or protocol by which the client reads it."""

    id: str | None = None
    seen: list[tuple[int, Json]] = field(default_factory=list[tuple[int, Json]])
    """Stored events with their sequence numbers, in the order of arrival."""

    events: list[Json] | None = None
    """Of a request that waits for the run: its response."""

    text: str | None = None
    """The answer as a gate's client reads it."""

    record: Json | None = None
    """The run's record at the end."""

    statuses: frozenset[str] = frozenset({"succeeded"})
    """Statuses in which the run may end."""

    lost_messages: list[str] = field(default_factory=list[str])
    """Messages that were replaced by another one, since the client can't know whether they have begun a run."""

    requests: int = 1
    """Requests that may have begun a run, since the client knows of no result, and can't name what it repeats."""

    not_before: float = 0.0
    """Time, in Unix seconds, before which the run must not begin."""

    has_webhook: bool = False
    """Whether its statuses are sent to the test's receiver."""

    @property
    def last_seq(self) -> int:
        return self.seen[-1][0] if self.seen else 0


class Client(ABC):
    """A program that uses the replicas through a load balancer."""

    app: ClassVar[str] = "desk"
    runs_of_each: ClassVar[int] = 1
    """Number of runs that it starts."""

    def __init__(self, number: int, world: World) -> None:
        """number: unique; together with the seed, it decides what the client does."""
        self.number = number
        self.world = world
        self.name = f"{type(self).__name__}-{number}"
        self.chance = random.Random(f"{world.seed} client {number}")
        self.balancer = RandomReplica(world.rotation, world.transport, f"{world.seed} balancer {number}")
        self.http = httpx.AsyncClient(transport=self.balancer, base_url=BASE_URL, timeout=TIMEOUT)
        self.runs: list[SeenRun] = []
        self.key = SessionKey(self.app, f"user-{number % 7}", self.name)
        """Its session. Without an id, all sessions of the user."""

        self.is_doing = "nothing"
        """The request or event that it waits for, for the report of a client that never ends."""

        self._messages = 0

    @abstractmethod
    async def talk(self) -> None:
        """Does all that the client does. Raises AssertionError for a response that must not come."""

    def new_message(self, kind: str, amount: int = 5) -> str:
        self._messages += 1
        return f"{kind} {self.number * 100 + self._messages} {amount}"

    def note(self, what: str) -> None:
        self.world.journal.note(self.name, what)

    def count(self, name: str, by: int = 1) -> None:
        self.world.journal.count(name, by)

    async def pause(self) -> None:
        """Between two tries."""
        await asyncio.sleep(self.chance.uniform(0.1, 0.5))

    async def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Sends a request until it is answered: again after a lost connection, and when no replica can answer."""
        while True:
            self.is_doing = f"{method} {path}"
            try:
                response = await self.http.request(method, path, **options)
            except httpx.TransportError as error:
                self.note_lost(error)
            else:
                if response.status_code not in UNAVAILABLE:
                    return response
                self.note_unavailable(response)
            await self.pause()

    @asynccontextmanager
    async def stream(self, method: str, path: str, **options: Any) -> AsyncGenerator[httpx.Response | None]:
        """Opens a stream; None when no replica can answer. A lost connection ends the block."""
        self.is_doing = f"{method} {path} as a stream"
        async with AsyncExitStack() as stack:
            try:
                response = await stack.enter_async_context(self.http.stream(method, path, **options))
                if response.status_code in UNAVAILABLE:
                    await response.aread()
                    self.note_unavailable(response)
                    response = None
            except httpx.TransportError as error:
                self.note_lost(error)
                response = None
            try:
                yield response
            except httpx.TransportError as error:
                self.note_lost(error)

    def note_lost(self, error: Exception) -> None:
        self.note(f"{type(error).__name__} while {self.is_doing}")
        self.count("lost connections")

    def note_unavailable(self, response: httpx.Response) -> None:
        self.note(f"{response.status_code} for {self.is_doing}: {response.text[:200]}")
        self.count(f"responses {response.status_code}")

    async def create_session(self, key: SessionKey) -> None:
        response = await self.ask("POST", path_of(key))
        assert response.status_code in (200, 409), f"{key}: {response.status_code} {response.text}"

    async def close(self) -> None:
        await self.http.aclose()


def path_of(key: SessionKey) -> str:
    return f"/apps/{key.app_name}/users/{key.user_id}/sessions/{key.session_id}"


def content_of(text: str) -> Json:
    return {"role": "user", "parts": [{"text": text}]}
