"""Clients that lose their connection and come back: to one run, or to a whole session."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias
from uuid import uuid4

import httpx

Json: TypeAlias = "dict[str, Any]"


@dataclass(frozen=True)
class Frame:
    """place: of the event in the log; None for a partial one, and for a frame that is no event. kind: the frame's
    `event:` line; "message" without one."""

    kind: str
    place: int | None
    data: Json


async def read_frames(response: httpx.Response) -> AsyncIterator[Frame]:
    """Whole frames; what was cut off in the middle of one is dropped. Comments are left out."""
    buffer = b""
    async for chunk in response.aiter_raw():
        buffer += chunk
        *whole, buffer = buffer.split(b"\n\n")
        for text in whole:
            frame = _frame(text)
            if frame is not None:
                yield frame


def _frame(text: bytes) -> Frame | None:
    kind, place, data = "message", None, b""
    for line in text.split(b"\n"):
        name, _, value = line.partition(b": ")
        if name == b"event":
            kind = value.decode()
        elif name == b"id":
            place = int(value)
        elif name == b"data":
            data += value
    return Frame(kind, place, json.loads(data)) if data else None


class RunGoneError(Exception):
    """The server does not know the run."""


@dataclass
class Reader:
    """The events that a client has seen of a stream, by sequence number, in order of arrival."""

    http: httpx.AsyncClient
    session: Json
    on_frame: Callable[[Frame], None] = lambda _: None
    seen: list[tuple[int, Json]] = field(default_factory=list[tuple[int, Json]])
    connections: int = 0

    async def take(self, response: httpx.Response) -> AsyncIterator[Frame]:
        """The frames, with each stored event noted first."""
        self.connections += 1
        async with aclosing(read_frames(response)) as frames:  # pyright: ignore[reportArgumentType]
            async for frame in frames:
                if frame.place is not None:
                    self.seen.append((frame.place, frame.data))
                self.on_frame(frame)
                yield frame

    @property
    def headers(self) -> dict[str, str]:
        come_back = {"last-event-id": str(self.seen[-1][0])} if self.seen else {}
        return {"accept": "text/event-stream", **come_back}


@dataclass
class RunReader(Reader):
    """Asks for one run, and reads it to its end, however often the connection or the server dies, or it is refused.

    way: `/run_sse`, or a background run that is then followed. end: the run's record. lost: how often the server had
    sent this client the id of a run that it lost in the crash, and of which the client had seen no event.
    """

    message: str = ""
    way: Literal["sse", "background"] = "sse"
    streaming: bool = True
    key: str = field(default_factory=lambda: str(uuid4()))
    run_id: str | None = None
    end: Json | None = None
    lost: int = 0
    on_refusal: Callable[[], None] = lambda: None

    async def read_to_the_end(self) -> None:
        while self.end is None:
            try:
                if self.run_id is not None:
                    await self._follow(self.run_id)
                elif self.way == "sse":
                    await self._ask_and_read()
                else:
                    await self._ask()
            except httpx.TransportError:
                await asyncio.sleep(0.02)  # the server is dead or starting; nothing signals when it is back
            except RunGoneError:
                assert not self.seen, f"stored events of run {self.run_id} were seen, and it is gone"
                self.lost, self.run_id = self.lost + 1, None

    @property
    def _request(self) -> Json:
        content = {"role": "user", "parts": [{"text": self.message}]}
        return {"newMessage": content, "streaming": self.streaming, "stateDelta": {"asked": self.message}}

    async def _ask_and_read(self) -> None:
        body = {**self.session, **self._request}
        headers = {"idempotency-key": self.key}
        async with self.http.stream("POST", "/run_sse", json=body, headers=headers) as response:
            if response.status_code == 503:
                self.on_refusal()
                return
            assert response.status_code == 200, await response.aread()
            self.run_id = response.headers["x-run-id"]
            async for _ in self.take(response):
                pass
        run = (await self.http.get(f"/runs/{self.run_id}")).json()
        if run["status"] not in ("queued", "running"):  # otherwise the server was stopped, and its last frame said so
            self.end = run

    async def _ask(self) -> None:
        where = self.session
        path = f"/apps/{where['appName']}/users/{where['userId']}/sessions/{where['sessionId']}/runs"
        response = await self.http.post(path, json=self._request, headers={"idempotency-key": self.key})
        if response.status_code == 503:
            return
        assert response.status_code == 202, response.text
        self.run_id = response.json()["id"]

    async def _follow(self, run_id: str) -> None:
        async with self.http.stream("GET", f"/runs/{run_id}/events", headers=self.headers) as response:
            if response.status_code == 404:
                raise RunGoneError
            assert response.status_code == 200, await response.aread()
            async for frame in self.take(response):
                if frame.kind == "end":
                    self.end = frame.data


@dataclass
class SessionReader(Reader):
    """Follows a session for as long as it is let."""

    async def read_on(self) -> None:
        where = self.session
        path = f"/apps/{where['appName']}/users/{where['userId']}/sessions/{where['sessionId']}/events"
        while True:
            try:
                async with self.http.stream("GET", path, headers=self.headers) as response:
                    assert response.status_code == 200, await response.aread()
                    async for _ in self.take(response):
                        pass
            except httpx.TransportError:
                pass
            await asyncio.sleep(0.02)  # as above
