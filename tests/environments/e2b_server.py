"""A small server with the interface of E2B: the sandboxes' REST interface and, inside each sandbox, envd's files and
processes, which speak Connect with JSON.

Source: E2B's OpenAPI document, envd's protocol buffers, and https://connectrpc.com/docs/protocol
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import struct
from collections.abc import AsyncGenerator, AsyncIterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.environments.sandboxes import Sandbox
from tests.server.quick_server import serving_routes

KEY = "e2b_0123456789abcdef"
_END_OF_STREAM = 2


class E2BServer:
    def __init__(self) -> None:
        self.url = ""
        self.private_folder: Path | None = None
        """A folder that has other files in each sandbox."""
        self.sandboxes: dict[str, Sandbox] = {}
        self.created: list[dict[str, Any]] = []
        """The bodies of requests that created sandboxes."""
        self.timeouts: list[float] = []
        """New times that sandboxes were given to live."""
        self._tasks: set[asyncio.Task[Any]] = set()

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncGenerator[E2BServer]:
        routes = [
            Route("/v2/sandboxes", self.create, methods=["POST"]),
            Route("/sandboxes/{id}", self.kill, methods=["DELETE"]),
            Route("/sandboxes/{id}/timeout", self.set_timeout, methods=["POST"]),
            Route("/health", self.health),
            Route("/files", self.download),
            Route("/files", self.upload, methods=["POST"]),
            Route("/process.Process/Start", self.start, methods=["POST"]),
        ]
        try:
            async with serving_routes(*routes) as self.url:
                yield self
        finally:
            await self.end_all()

    async def end_all(self) -> None:
        """Ends all sandboxes, as after their time."""
        ending = list(self.sandboxes.values())
        self.sandboxes.clear()
        for sandbox in ending:
            await sandbox.end()

    async def create(self, request: Request) -> Response:
        if request.headers.get("x-api-key") != KEY:
            return _error(HTTPStatus.UNAUTHORIZED, "Invalid API key")
        body = await request.json()
        self.created.append(body)
        if body["templateID"] == "missing":
            return _error(HTTPStatus.NOT_FOUND, "template 'missing' not found")
        sandbox = Sandbox(env=body["envVars"], seconds=body["timeout"], private_folder=self.private_folder)
        self.sandboxes[sandbox.id] = sandbox
        answer = {
            "sandboxID": sandbox.id,
            "templateID": body["templateID"],
            "clientID": "client",
            "envdVersion": "0.6.5",
            "envdAccessToken": f"token-{sandbox.id}",
        }
        return JSONResponse(answer, HTTPStatus.CREATED)

    async def kill(self, request: Request) -> Response:
        sandbox = self.sandboxes.pop(request.path_params["id"], None)
        if sandbox is None:
            return _error(HTTPStatus.NOT_FOUND, "sandbox not found")
        await sandbox.end()
        return Response(status_code=HTTPStatus.NO_CONTENT)

    async def set_timeout(self, request: Request) -> Response:
        sandbox = self.sandboxes.get(request.path_params["id"])
        if sandbox is None:
            return _error(HTTPStatus.NOT_FOUND, "sandbox not found")
        sandbox.seconds = (await request.json())["timeout"]
        self.timeouts.append(sandbox.seconds)
        return Response(status_code=HTTPStatus.NO_CONTENT)

    def _sandbox(self, request: Request) -> Sandbox | Response:
        """The sandbox that a request to envd is for, or the proxy's answer."""
        sandbox = self.sandboxes.get(request.headers["e2b-sandbox-id"])
        if sandbox is None:
            return _error(HTTPStatus.BAD_GATEWAY, "The sandbox was not found")
        if request.headers.get("x-access-token") != f"token-{sandbox.id}":
            return _error(HTTPStatus.UNAUTHORIZED, "invalid access token")
        return sandbox

    async def health(self, request: Request) -> Response:
        sandbox = self._sandbox(request)
        return sandbox if isinstance(sandbox, Response) else Response(status_code=HTTPStatus.NO_CONTENT)

    async def download(self, request: Request) -> Response:
        sandbox = self._sandbox(request)
        if isinstance(sandbox, Response):
            return sandbox
        path = request.query_params["path"]
        try:
            return Response(sandbox.read(path), media_type="application/octet-stream")
        except IsADirectoryError:
            return _error(HTTPStatus.BAD_REQUEST, f"path '{path}' is a directory")
        except FileNotFoundError:
            return _error(HTTPStatus.NOT_FOUND, f"path '{path}' does not exist")

    async def upload(self, request: Request) -> Response:
        sandbox = self._sandbox(request)
        if isinstance(sandbox, Response):
            return sandbox
        path = request.query_params["path"]
        sandbox.write(path, _only_part(request.headers["content-type"], await request.body()))
        return JSONResponse([{"name": path.rpartition("/")[2], "path": path, "type": "file"}])

    async def start(self, request: Request) -> Response:
        sandbox = self._sandbox(request)
        if isinstance(sandbox, Response):
            return sandbox
        assert request.headers["content-type"] == "application/connect+json"
        body = await request.body()
        flags, size = struct.unpack_from(">BI", body)
        assert (flags, size) == (0, len(body) - 5)
        message = json.loads(body[5:])
        assert message["stdin"] is False
        process = message["process"]
        seconds = int(request.headers["connect-timeout-ms"]) / 1000
        events = self._run(sandbox, [process["cmd"], *process["args"]], seconds)
        return StreamingResponse(events, media_type="application/connect+json")

    async def _run(self, sandbox: Sandbox, command: list[str], seconds: float) -> AsyncIterator[bytes]:
        """Goes on when the client hangs up, as envd does."""
        process = await sandbox.start(*command)
        queue: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()

        async def pump() -> None:
            async def read(name: str, stream: asyncio.StreamReader) -> None:
                while data := await stream.read(2**15):
                    await queue.put({"data": {name: base64.b64encode(data).decode()}})

            assert process.stdout is not None
            assert process.stderr is not None
            try:
                async with asyncio.timeout(seconds):
                    await asyncio.gather(read("stdout", process.stdout), read("stderr", process.stderr))
            except TimeoutError:
                process.kill()
            code = await process.wait()
            await queue.put({"end": {"exitCode": code, "exited": code >= 0, "status": f"exit status {code}"}})
            await queue.put(None)

        task = asyncio.create_task(pump())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        yield _envelope({"event": {"start": {"pid": process.pid}}})
        while (event := await queue.get()) is not None:
            if sandbox.id not in self.sandboxes:
                return  # the proxy cuts the connection
            yield _envelope({"event": event})
        yield _envelope({}, flags=_END_OF_STREAM)


def _envelope(message: dict[str, Any], *, flags: int = 0) -> bytes:
    data = json.dumps(message).encode()
    return struct.pack(">BI", flags, len(data)) + data


def _error(status: HTTPStatus, message: str) -> Response:
    return JSONResponse({"code": int(status), "message": message}, status)


def _only_part(content_type: str, body: bytes) -> bytes:
    """The file in a form of one file."""
    boundary = content_type.partition("boundary=")[2].encode()
    part = body.removeprefix(b"--" + boundary + b"\r\n").removesuffix(b"\r\n--" + boundary + b"--\r\n")
    return part.partition(b"\r\n\r\n")[2]
