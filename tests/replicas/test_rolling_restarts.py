"""All servers are restarted one after the other, under load, behind a load balancer: no request fails.

GREENROOM_ROLLING_RESTARTS is the number of times that all servers are restarted.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from uuid import uuid4

import httpx
import pytest

from greenroom.client.async_client import AsyncClient
from greenroom.records.event import Event
from greenroom.records.session import SessionKey
from scripts.load_balancer import LoadBalancer
from tests.replicas.requests import log_of, path_of, run_of, texts
from tests.replicas.servers import APP, Server, Servers

ROUNDS = int(os.environ.get("GREENROOM_ROLLING_RESTARTS", "1"))
REPLICAS = 3
GRACE_SECONDS = 3
CHECK_SECONDS = 0.2


@contextlib.asynccontextmanager
async def balanced(*servers: Server) -> AsyncGenerator[LoadBalancer]:
    balancer = LoadBalancer(*(server.url for server in servers), check_seconds=CHECK_SECONDS)
    await balancer.start()
    try:
        await balancer.wait_until_ready()
        yield balancer
    finally:
        await balancer.close()


class RepeatingGets(httpx.AsyncHTTPTransport):
    """Sends a GET again if its connection was closed before the response began, as HTTP lets clients do.

    No server can close an idle connection without the risk that a client is just sending a request on it. Source: RFC
    9112, 9.3.1.
    """

    def __init__(self) -> None:
        super().__init__()
        self.repeated = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        try:
            return await super().handle_async_request(request)
        except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError):
            if request.method != "GET":
                raise
            self.repeated += 1
            return await super().handle_async_request(request)


class Load:
    """Clients of one address, each of which sends a request after the other."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.sent = Counter[str]()
        self.failures: list[str] = []
        self.is_over = False
        self.repeated = 0
        """GETs that were sent again."""

    async def run(self) -> None:
        clients = [
            *(self._repeat("message", self._message) for _ in range(3)),
            *(self._repeat("new session", self._new_session) for _ in range(2)),
            *(self._repeat("run in the background", self._background) for _ in range(2)),
            *(self._repeat("new connection", self._new_connection) for _ in range(2)),
            *(self._repeat("stream", self._stream) for _ in range(4)),
        ]
        await asyncio.gather(*clients)

    async def _repeat(self, kind: str, send: Callable[[httpx.AsyncClient, SessionKey], Awaitable[None]]) -> None:
        key = SessionKey(APP, f"user-{uuid4().hex}", "s")
        transport = RepeatingGets()
        async with httpx.AsyncClient(base_url=self.url, timeout=30, transport=transport) as http:
            created = await http.post(path_of(key))
            assert created.status_code == 200, created.text
            while not self.is_over:
                self.sent[kind] += 1
                try:
                    await send(http, key)
                except (httpx.HTTPError, AssertionError) as error:
                    self.failures.append(f"{kind}: {error!r}")
                await asyncio.sleep(0.02)
        self.repeated += transport.repeated

    async def _message(self, http: httpx.AsyncClient, key: SessionKey) -> None:
        """One of a conversation, whose log is whole in the end."""
        text = uuid4().hex
        answer = await http.post("/run", json=run_of(key, text))
        assert answer.status_code == 200, answer.text
        assert texts(answer.json()) == [f"You said {text}"]
        assert texts(await log_of(http, key))[-2:] == [text, f"You said {text}"]

    async def _new_session(self, http: httpx.AsyncClient, key: SessionKey) -> None:
        created = await http.post(f"/apps/{APP}/users/{key.user_id}/sessions")
        assert created.status_code == 200, created.text
        new = SessionKey(APP, key.user_id, created.json()["id"])
        await self._message(http, new)
        deleted = await http.delete(path_of(new))
        assert deleted.status_code in (200, 204), deleted.text

    async def _background(self, http: httpx.AsyncClient, key: SessionKey) -> None:
        started = await http.post(path_of(key) + "/runs", json={"newMessage": {"parts": [{"text": "slow 20"}]}})
        assert started.status_code == 202, started.text
        while True:
            run = await http.get(f"/runs/{started.json()['id']}")
            assert run.status_code == 200, run.text
            if run.json()["status"] not in ("queued", "running"):
                break
            await asyncio.sleep(0.1)
        assert run.json()["status"] == "succeeded", run.text

    async def _new_connection(self, http: httpx.AsyncClient, key: SessionKey) -> None:
        async with httpx.AsyncClient(base_url=self.url, timeout=30) as new:
            await self._message(new, key)

    async def _stream(self, http: httpx.AsyncClient, key: SessionKey) -> None:
        """Longer than the grace time: it is cut, and resumed by the client."""
        async with AsyncClient(self.url) as client:
            events: list[Event] = []
            stream = await client.run(
                app_name=key.app_name, user_id=key.user_id, session_id=key.session_id, message="slow 80", streaming=True
            )
            async for event in stream:
                if not event.partial:
                    events.append(event)
            assert len(events) == 1, events
            log = await log_of(http, key)
            assert events[0].id == log[-1]["id"]


async def restart(servers: Servers, server: Server, balancer: LoadBalancer) -> Server:
    assert await server.stop() == 0
    balancer.remove(server.url)
    started = await servers.start(grace_seconds=GRACE_SECONDS)
    balancer.add(started.url)
    await balancer.wait_until_ready(started.url)
    return started


@pytest.mark.kill
@pytest.mark.timeout(300 * ROUNDS)
async def test_rolling_restarts_fail_no_request(servers: Servers) -> None:
    running = list(await asyncio.gather(*(servers.start(grace_seconds=GRACE_SECONDS) for _ in range(REPLICAS))))
    await servers.wait_until_shared(*running)
    async with balanced(*running) as balancer:
        load = Load(balancer.url)
        sending = asyncio.create_task(load.run())
        for finished in range(1, ROUNDS + 1):
            for number in range(REPLICAS):
                running[number] = await restart(servers, running[number], balancer)
            print(f"{finished * REPLICAS} restarts: {dict(load.sent)}, failed: {len(load.failures)}", flush=True)
        load.is_over = True
        await sending
    print(f"{load.repeated} GETs were sent again on a new connection")
    assert load.failures == []
    assert set(load.sent) == {"message", "new session", "run in the background", "new connection", "stream"}
