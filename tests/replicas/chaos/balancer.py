"""A load balancer inside of HTTP clients: each request goes to a random replica."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Protocol

import httpx

BASE_URL = "http://localhost"
"""Of all clients; the host of each request is replaced."""

TIMEOUT = httpx.Timeout(30, connect=5)
"""Streams send a comment every 15 seconds, so that silence for longer means a lost connection."""


class Target(Protocol):
    """A replica, or a load balancer in front of several."""

    @property
    def url(self) -> str: ...


class RandomReplica(httpx.AsyncBaseTransport):
    """Sends requests to the replicas in rotation, over connections that all clients share."""

    def __init__(
        self, rotation: Callable[[], Sequence[Target]], transport: httpx.AsyncHTTPTransport, seed: str
    ) -> None:
        self._rotation = rotation
        self._transport = transport
        self._chance = random.Random(seed)

    def choose(self) -> Target:
        """Raises httpx.ConnectError when there is none."""
        servers = self._rotation()
        if not servers:
            raise httpx.ConnectError("no replica is in rotation")
        return self._chance.choice(servers)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        url = httpx.URL(self.choose().url)
        request.url = request.url.copy_with(host=url.host, port=url.port)
        request.headers["host"] = url.netloc.decode()
        return await self._transport.handle_async_request(request)
