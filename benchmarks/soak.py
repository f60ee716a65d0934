"""`python -m benchmarks.soak`: whether an operation costs a server the same after a long time of mixed load.

A real server gets the same mix of operations at the same rate all the time, and what it stores grows meanwhile. Printed
are, for each minute, the CPU time that the server process used for an operation, its memory and its open files, then
the ratio of the last quarter to the first.

That ratio also shows whatever else the machine did in these minutes. In the end a second server is started on a new
database, and both are given the same load at the same time: `TOLERANCE` is how far an operation of the old server may
differ from one of the new server. Operations must not fail.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import urlencode
from uuid import uuid4

import msgspec
import uvloop
from websockets.asyncio.client import connect as connect_websocket

from benchmarks import procfs, servers
from benchmarks.calls import MESSAGE
from benchmarks.connection import HOST, Connection, connect, request_bytes
from benchmarks.scenarios.databases import postgres_server
from benchmarks.servers import HERE, Contender, Server

APPS = HERE / "conversations"
APP = "desk"
STORES = ("sqlite", "postgres")
OPERATIONS = ("create", "run", "stream", "live", "get", "list", "fork", "A2A", "OpenAI", "delete")
"""Of each conversation, in this order."""

CLIENTS = 8
WARM_UP_SECONDS = 60.0
INTERVAL_SECONDS = 60.0
COMPARISON_SECONDS = 180.0
OPERATION_SECONDS = 60.0
"""Longest time of an operation that does not count as failed."""

TOLERANCE = 0.05
_CONTENT = {"role": "user", "parts": [{"text": MESSAGE}]}
_A2A = {"A2A-Version": "1.0"}
_numbers = itertools.count(1)


class Client:
    """A user who has one conversation after another, each with every operation once."""

    def __init__(self, port: int, user: str) -> None:
        self._port = port
        self._user = user
        self._sessions = f"/apps/{APP}/users/{user}/sessions"
        self._connection: Connection | None = None
        self.completed = 0
        self.errors = Counter[str]()

    async def converse(self) -> None:
        session = f"session-{next(_numbers)}"
        fork = f"fork-of-{session}"
        names = {"appName": APP, "userId": self._user, "sessionId": session, "newMessage": _CONTENT}
        await self._request("create", "POST", self._sessions, {"sessionId": session})
        await self._request("run", "POST", "/run", names, expected=MESSAGE)
        await self._request("stream", "POST", "/run_sse", {**names, "streaming": True}, expected=MESSAGE)
        await self._counted("live", self._talk(session))
        await self._request("get", "GET", f"{self._sessions}/{session}", expected=MESSAGE)
        await self._request("list", "GET", f"{self._sessions}?limit=20", expected=session)
        await self._request("fork", "POST", f"{self._sessions}/{session}/fork", {"sessionId": fork})
        await self._request("A2A", "POST", f"/a2a/{APP}", self._a2a_message(session), headers=_A2A, expected=MESSAGE)
        chat = {"model": APP, "user": self._user, "messages": [{"role": "user", "content": MESSAGE}]}
        await self._request("OpenAI", "POST", "/v1/chat/completions", chat, expected=MESSAGE)
        await self._request("delete", "DELETE", f"{self._sessions}/{fork}")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _a2a_message(self, session: str) -> dict[str, object]:
        message = {
            "messageId": f"message-of-{session}",
            "contextId": f"context-of-{session}",
            "role": "ROLE_USER",
            "parts": [{"text": MESSAGE}],
        }
        return {"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": {"message": message}}

    async def _request(
        self,
        name: str,
        method: str,
        path: str,
        body: object = None,
        *,
        headers: dict[str, str] | None = None,
        expected: str = "",
    ) -> None:
        await self._counted(name, self._exchange(request_bytes(method, path, body, headers), expected.encode()))

    async def _counted(self, name: str, operation: Coroutine[None, None, str | None]) -> None:
        try:
            async with asyncio.timeout(OPERATION_SECONDS):
                fault = await operation
        except (OSError, TimeoutError) as error:
            self.close()
            self._connection = None
            fault = type(error).__name__
        if fault is None:
            self.completed += 1
        else:
            self.errors[f"{name}: {fault}"] += 1

    async def _exchange(self, request: bytes, expected: bytes) -> str | None:
        """Returns the fault of the answer, or None."""
        if self._connection is None:
            self._connection = await connect(self._port)
        reply = await self._connection.exchange(request)
        if reply.status != 200:
            return f"HTTP {reply.status}"
        if b'"errorCode"' in reply.body or expected not in reply.body:
            return "wrong answer"
        return None

    async def _talk(self, session: str) -> str | None:
        names = {"app_name": APP, "user_id": self._user, "session_id": session, "modalities": "TEXT"}
        address = f"ws://{HOST}:{self._port}/run_live?{urlencode(names)}"
        async with connect_websocket(address, compression=None, proxy=None) as socket:
            await socket.send(msgspec.json.encode({"content": _CONTENT}).decode())
            async for frame in socket:
                event = msgspec.json.decode(frame)
                if "errorCode" in event:
                    return str(event["errorCode"])
                if event.get("turnComplete"):
                    return None
        return f"closed with {socket.close_code}"


@dataclass(frozen=True)
class Interval:
    """Cost of the operations of some time."""

    operations: int

    server_seconds: float
    """CPU time of the server process."""

    database_seconds: float
    """CPU time of PostgreSQL; 0 for SQLite, which is part of the server process."""

    @property
    def per_operation(self) -> float:
        """Seconds of the server."""
        return self.server_seconds / self.operations


class Load:
    """A server under load inside the context."""

    def __init__(self, server: Server, rate: float, database_pid: int | None = None) -> None:
        """rate: operations per second."""
        self._server = server
        self._database_pid = database_pid
        self._period = CLIENTS * len(OPERATIONS) / rate
        self._clients = [Client(server.port, f"user-{number}") for number in range(CLIENTS)]
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(self._converse(number)) for number in range(CLIENTS)]
        await asyncio.sleep(WARM_UP_SECONDS)
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for client in self._clients:
            client.close()

    @property
    def errors(self) -> Counter[str]:
        return sum((client.errors for client in self._clients), Counter[str]())

    async def measure(self, seconds: float) -> Interval:
        operations = self._completed()
        server = self._server.process_seconds()
        database = self._database_seconds()

        await asyncio.sleep(seconds)
        return Interval(
            operations=self._completed() - operations,
            server_seconds=self._server.process_seconds() - server,
            database_seconds=self._database_seconds() - database,
        )

    async def _converse(self, number: int) -> None:
        """Begins a conversation each period, or as soon as the last one has ended where that takes longer."""
        client = self._clients[number]
        due = time.monotonic() + self._period * number / CLIENTS
        while True:
            await asyncio.sleep(due - time.monotonic())
            await client.converse()
            due = max(due + self._period, time.monotonic())

    def _completed(self) -> int:
        return sum(client.completed for client in self._clients)

    def _database_seconds(self) -> float:
        return 0.0 if self._database_pid is None else procfs.cpu_seconds(self._database_pid)


async def _soak(store: Store, scratch: Path, minutes: float, rate: float) -> bool:
    """Prints the figures; returns whether the server has become neither slower nor faster, and nothing failed."""
    print(f"{store.name}: {rate:g} operations per second for {minutes:g} minutes", flush=True)
    async with _server(store.contender(), scratch / "old") as server:
        async with Load(server, rate, store.database_pid) as load:
            print("minute operations    server  database     memory  files")
            intervals: list[Interval] = []
            for minute in range(1, max(1, round(minutes)) + 1):
                interval = await load.measure(INTERVAL_SECONDS)
                intervals.append(interval)
                _print(minute, interval, server)
        errors = load.errors

        quarter = max(1, len(intervals) // 4)
        ratio = _mean(intervals[-quarter:]) / _mean(intervals[:quarter])
        print(f"last quarter to the first: {ratio:.3f}", flush=True)

        async with (
            _server(store.contender(), scratch / "new") as new_server,
            Load(server, rate / 2) as old_load,
            Load(new_server, rate / 2) as new_load,
        ):
            old, new = await asyncio.gather(*(load.measure(COMPARISON_SECONDS) for load in (old_load, new_load)))
        errors += old_load.errors + new_load.errors

    ratio = old.per_operation / new.per_operation
    print(
        f"at the same time, for {COMPARISON_SECONDS:g} s: {old.per_operation * 1e6:.0f} µs by the old server, "
        f"{new.per_operation * 1e6:.0f} µs by a new one: {ratio:.3f}"
    )
    for error, times in errors.items():
        print(f"{times:,} × {error}")
    return not errors and abs(ratio - 1) <= TOLERANCE


def _server(contender: Contender, directory: Path) -> Server:
    environment = {"GREENROOM_GATES": "a2a,openai", "GREENROOM_AUTO_CREATE_SESSION": "true"}
    return Server(contender, directory, store="sqlite", apps=APPS, environment=environment)


def _mean(intervals: Sequence[Interval]) -> float:
    """Seconds of the server per operation."""
    return sum(one.server_seconds for one in intervals) / sum(one.operations for one in intervals)


def _print(minute: int, interval: Interval, server: Server) -> None:
    cells = (
        f"{minute:>6}",
        f"{interval.operations:>10,}",
        f"{interval.per_operation * 1e6:>6.0f} µs",
        f"{interval.database_seconds / interval.operations * 1e6:>6.0f} µs",
        f"{server.memory_bytes() / 1e6:>7.1f} MB",
        f"{server.open_files():>6}",
    )
    print(" ".join(cells), flush=True)


@dataclass(frozen=True)
class Store:
    """contender: makes a server with a new database. database_pid: of the process of the database server, if any."""

    name: str
    contender: Callable[[], Contender]
    database_pid: int | None = None


@contextlib.contextmanager
def _store(name: str) -> Generator[Store]:
    if name == "sqlite":
        yield Store(name, servers.greenroom)
        return
    with postgres_server() as database:
        pid = int((database.folder / "data" / "postmaster.pid").read_text().splitlines()[0])
        yield Store(name, lambda: servers.greenroom_on(database.make_database(f"soak_{uuid4().hex}")), pid)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0, metavar="N", help="on each store; default: 20")
    parser.add_argument("--rate", type=float, default=100.0, metavar="N", help="operations per second; default: 100")
    parser.add_argument("--store", choices=STORES, action="append", help="default: all")
    given = parser.parse_args()

    servers.pin_generator()
    is_steady = True
    for name in given.store or STORES:
        with _store(name) as store, tempfile.TemporaryDirectory(prefix="greenroom-soak-") as scratch:
            is_steady &= uvloop.run(_soak(store, Path(scratch), given.minutes, given.rate))
    return 0 if is_steady else 1


if __name__ == "__main__":
    raise SystemExit(main())
