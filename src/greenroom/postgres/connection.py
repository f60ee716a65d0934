"""Connections of asyncpg, which is imported with the first connection, and types that it lacks."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from importlib import import_module
from typing import Any, Protocol

LEASE_SECONDS = 3.0
"""After this time PostgreSQL ends the locks and transactions of a process that is paused, cut off or gone."""


class Connection(Protocol):
    """The part of `asyncpg.Connection` that greenroom uses."""

    async def execute(self, query: str, *arguments: Any) -> str: ...

    async def fetch(self, query: str, *arguments: Any) -> list[Any]: ...

    async def fetchrow(self, query: str, *arguments: Any) -> Any: ...

    async def fetchval(self, query: str, *arguments: Any) -> Any: ...

    def transaction(
        self, *, isolation: str | None = None, readonly: bool = False
    ) -> AbstractAsyncContextManager[None]: ...

    def add_termination_listener(self, callback: Callable[[Any], None]) -> None: ...

    async def add_listener(self, channel: str, callback: Callable[..., None]) -> None: ...

    async def remove_listener(self, channel: str, callback: Callable[..., None]) -> None: ...

    def is_closed(self) -> bool: ...

    async def close(self, *, timeout: float | None = None) -> None: ...

    def terminate(self) -> None: ...


class Pool(Protocol):
    """The part of `asyncpg.Pool` that greenroom uses."""

    def acquire(self, *, timeout: float | None = None) -> AbstractAsyncContextManager[Connection]: ...

    async def close(self) -> None: ...

    def terminate(self) -> None: ...


async def connect(uri: str) -> Connection:
    """A connection that may write: PostgreSQL ends a transaction in which it is silent for the lease."""
    lease = {"idle_in_transaction_session_timeout": f"{LEASE_SECONDS}s"}
    return await import_module("asyncpg").connect(uri, **_options(lease))


async def create_pool(uri: str, *, size: int) -> Pool:
    """At most `size` connections that read, opened when they are needed. A long log is decoded in a transaction."""
    return await import_module("asyncpg").create_pool(uri, min_size=0, max_size=size, reset=_keep, **_options({}))


def _options(more_settings: dict[str, str]) -> dict[str, Any]:
    settings = {
        "application_name": "greenroom",
        "jit": "off",  # compiling a statement takes longer than running ours
        # A connection of a host that is gone ends, with its locks, within half a minute.
        "tcp_keepalives_idle": "10",
        "tcp_keepalives_interval": "5",
        "tcp_keepalives_count": "3",
        **more_settings,
    }
    return {"timeout": 5.0, "command_timeout": 30.0, "server_settings": settings}


async def _keep(connection: object) -> None:
    """Replaces the pool's reset, which takes a round trip after each read: readers change no settings."""
