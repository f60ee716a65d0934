"""Small servers that speak the vendors' documented formats: what all of them do."""

from __future__ import annotations

import asyncio
import json
import socket
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any, Self

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from greenroom.records.content import Part
from greenroom.testing.contracts.model import Misbehavior
from tests.server.quick_server import QuickServer

KEY = "sk-test-1234567890abcdef"


class WireServer(ABC):
    """Answers as configured. A subclass has the vendor's format. `once`: whole replies to be sent first."""

    secret = KEY
    metadata_key: str | None = None
    lacks: frozenset[str] = frozenset()
    path: str

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.url = ""
        self._parts: tuple[Part, ...] = (Part(text="hello"),)
        self._finish_reason = "STOP"
        self._failure: tuple[int, str, dict[str, str]] | None = None
        self._misbehavior: Misbehavior | None = None
        self.once: list[dict[str, Any]] = []
        self.raw: Any = None
        """A whole reply, or the frames of a stream, to be sent instead."""
        self._stopping = asyncio.Event()

    def say(self, *parts: Part, finish_reason: str = "STOP") -> None:
        self._parts, self._finish_reason = parts, finish_reason
        self._failure = self._misbehavior = None

    def fail(self, status: int, message: str, *, headers: dict[str, str]) -> None:
        self._failure = status, message, headers

    def misbehave(self, how: Misbehavior) -> None:
        self._misbehavior = how

    @abstractmethod
    def whole(self, parts: tuple[Part, ...], finish_reason: str) -> dict[str, Any]: ...

    @abstractmethod
    def frames(self, parts: tuple[Part, ...], finish_reason: str) -> tuple[list[str], list[str]]:
        """Server-sent events: those of the parts, and those of the end."""

    @abstractmethod
    def error(self, status: int, message: str) -> dict[str, Any]: ...

    @abstractmethod
    def error_frame(self) -> str: ...

    def broken_frame(self) -> str:
        return 'data: {"broken": \n\n'

    def problems(self, body: dict[str, Any]) -> Iterable[str]:
        """The reasons for which the service refuses a request, by its published rules."""
        return ()

    def is_stream(self, request: Request, body: dict[str, Any]) -> bool:
        return bool(body.get("stream"))

    async def __call__(self, request: Request) -> Response:
        body = await request.json()
        self.seen.append(body)
        self.headers.append(dict(request.headers))
        self.paths.append(request.url.path)
        problems = list(self.problems(body))
        if problems:
            return JSONResponse(self.error(400, "; ".join(problems)), 400)
        if self._failure is not None:
            status, message, headers = self._failure
            return JSONResponse(self.error(status, message), status, headers)
        is_stream = self.is_stream(request, body)
        if self._misbehavior is not None:
            return self._misbehaving(self._misbehavior, is_stream)
        if self.once:
            return JSONResponse(self.once.pop(0))
        if not is_stream or isinstance(self.raw, dict):  # servers that don't stream, or refuse to
            return JSONResponse(self.raw or self.whole(self._parts, self._finish_reason))
        body_frames, end = self.frames(self._parts, self._finish_reason)
        return _streaming(_each(self.raw or [*body_frames, *end]))

    def _misbehaving(self, how: Misbehavior, is_stream: bool) -> Response:
        begun = self.frames((Part(text="Half"),), "STOP")[0] if is_stream else ['{"half": ']

        async def frames() -> AsyncIterator[str]:
            for frame in begun:
                yield frame
            if how == "hangs":
                await self._stopping.wait()
            elif how == "cuts":
                raise ConnectionResetError
            elif how == "sends no JSON":
                yield self.broken_frame()
            elif how == "sends an error":
                yield self.error_frame()

        if is_stream:
            return _streaming(frames())
        return StreamingResponse(frames(), media_type="application/json")

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[Self]:
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        application = Starlette(routes=[Route(self.path, self.__call__, methods=["POST", "DELETE"])])
        server = QuickServer(uvicorn.Config(application, log_level="critical", lifespan="off"))
        task = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield self
        finally:
            self._stopping.set()
            server.should_exit = True
            await task


async def _each(frames: list[str]) -> AsyncIterator[str]:
    for frame in frames:
        yield frame
        await asyncio.sleep(0)


def _streaming(frames: AsyncIterator[str]) -> Response:
    return StreamingResponse(frames, media_type="text/event-stream")


def frame(data: Any, *, event: str | None = None) -> str:
    return (f"event: {event}\n" if event else "") + f"data: {json.dumps(data)}\n\n"


def pieces(text: str) -> list[str]:
    """Two or three, none of them empty."""
    size = max(1, (len(text) + 2) // 3) if len(text) > 4 else len(text) or 1
    return [text[at : at + size] for at in range(0, len(text), size)]
