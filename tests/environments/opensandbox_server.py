"""A small server with the interface of OpenSandbox: the sandboxes' REST interface and, inside each sandbox, execd's files
and commands, whose output comes as server-sent events.

Source: OpenSandbox's OpenAPI documents of both, and execd's source for the events.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.environments.sandboxes import Sandbox
from tests.server.quick_server import serving_routes

KEY = "osb_0123456789abcdef"


class OpenSandboxServer:
    def __init__(self) -> None:
        self.url = ""
        self.private_folder: Path | None = None
        """A folder that has other files in each sandbox."""
        self.sandboxes: dict[str, Sandbox] = {}
        self.created: list[dict[str, Any]] = []
        """The bodies of requests that created sandboxes."""
        self.renewals: list[datetime] = []
        """New ends that sandboxes were given."""

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncGenerator[OpenSandboxServer]:
        execd = "/execd/{id}"
        routes = [
            Route("/v1/sandboxes", self.create, methods=["POST"]),
            Route("/v1/sandboxes/{id}", self.get),
            Route("/v1/sandboxes/{id}", self.kill, methods=["DELETE"]),
            Route("/v1/sandboxes/{id}/endpoints/{port:int}", self.endpoint),
            Route("/v1/sandboxes/{id}/renew-expiration", self.renew, methods=["POST"]),
            Route(f"{execd}/ping", self.ping),
            Route(f"{execd}/command", self.command, methods=["POST"]),
            Route(f"{execd}/files/info", self.file_info),
            Route(f"{execd}/files/download", self.download),
            Route(f"{execd}/files/upload", self.upload, methods=["POST"]),
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
        if request.headers.get("open-sandbox-api-key") != KEY:
            return _error(HTTPStatus.UNAUTHORIZED, "UNAUTHORIZED", "Invalid API key")
        body = await request.json()
        self.created.append(body)
        if body["image"]["uri"] == "missing":
            return _error(HTTPStatus.BAD_REQUEST, "IMAGE", "image 'missing' not found")
        sandbox = Sandbox(env=body.get("env", {}), seconds=body["timeout"], private_folder=self.private_folder)
        self.sandboxes[sandbox.id] = sandbox
        return JSONResponse(_description(sandbox), HTTPStatus.ACCEPTED)

    async def get(self, request: Request) -> Response:
        sandbox = self.sandboxes.get(request.path_params["id"])
        if sandbox is None:
            return _error(HTTPStatus.NOT_FOUND, "NOT_FOUND", "sandbox not found")
        return JSONResponse(_description(sandbox))

    async def kill(self, request: Request) -> Response:
        sandbox = self.sandboxes.pop(request.path_params["id"], None)
        if sandbox is None:
            return _error(HTTPStatus.NOT_FOUND, "NOT_FOUND", "sandbox not found")
        await sandbox.end()
        return Response(status_code=HTTPStatus.NO_CONTENT)

    async def endpoint(self, request: Request) -> Response:
        host = self.url.removeprefix("http://")
        return JSONResponse({"endpoint": f"{host}/execd/{request.path_params['id']}"})

    async def renew(self, request: Request) -> Response:
        if request.path_params["id"] not in self.sandboxes:
            return _error(HTTPStatus.NOT_FOUND, "NOT_FOUND", "sandbox not found")
        ends_at = (await request.json())["expiresAt"]
        self.renewals.append(datetime.fromisoformat(ends_at))
        return JSONResponse({"expiresAt": ends_at})

    def _sandbox(self, request: Request) -> Sandbox | Response:
        """The sandbox that a request to execd is for, or the proxy's answer."""
        sandbox = self.sandboxes.get(request.path_params["id"])
        if sandbox is None:
            return Response("no such container", HTTPStatus.BAD_GATEWAY)
        return sandbox

    async def ping(self, request: Request) -> Response:
        sandbox = self._sandbox(request)
        return sandbox if isinstance(sandbox, Response) else Response()

    async def command(self, request: Request) -> Response:
        sandbox = self._sandbox(request)
        if isinstance(sandbox, Response):
            return sandbox
        command = (await request.json())["command"]
        return StreamingResponse(self._run(sandbox, command), media_type="text/event-stream")

    async def _run(self, sandbox: Sandbox, command: str) -> AsyncIterator[str]:
        process = await sandbox.start("/bin/bash", "-c", command)
        yield _event("init", text="execution")
        stdout, stderr = await process.communicate()
        if sandbox.id not in self.sandboxes:
            return  # the proxy cuts the connection
        for name, data in (("stdout", stdout), ("stderr", stderr)):
            for line in data.decode(errors="replace").split("\n"):
                if line:  # as execd does: without the ends of lines
                    yield _event(name, text=line)
        if process.returncode:
            error = {"ename": "CommandExecError", "evalue": str(process.returncode), "traceback": []}
            yield _event("error", error=error)
        else:
            yield _event("execution_complete", execution_time=1)

    async def file_info(self, request: Request) -> Response:
        sandbox = self._sandbox(request)
        if isinstance(sandbox, Response):
            return sandbox
        path = request.query_params["path"]
        try:
            is_dir, size = sandbox.status(path)
        except FileNotFoundError:
            return _error(HTTPStatus.NOT_FOUND, "FILE_NOT_FOUND", f"file not found: {path}")
        entry = {"path": path, "size": size, "type": "directory" if is_dir else "file", "mode": 644}
        times = {"modified_at": _now(), "created_at": _now(), "owner": "root", "group": "root"}
        return JSONResponse({path: {**entry, **times}})

    async def download(self, request: Request) -> Response:
        sandbox = self._sandbox(request)
        if isinstance(sandbox, Response):
            return sandbox
        return Response(sandbox.read(request.query_params["path"]), media_type="application/octet-stream")

    async def upload(self, request: Request) -> Response:
        sandbox = self._sandbox(request)
        if isinstance(sandbox, Response):
            return sandbox
        boundary = request.headers["content-type"].partition("boundary=")[2].strip('"').encode()
        _, metadata, content, _ = (b"\r\n" + await request.body()).split(b"\r\n--" + boundary)
        path = json.loads(metadata.partition(b"\r\n\r\n")[2])["path"]
        sandbox.write(path, content.partition(b"\r\n\r\n")[2])
        await asyncio.sleep(0)
        return Response()


def _description(sandbox: Sandbox) -> dict[str, Any]:
    return {
        "id": sandbox.id,
        "status": {"state": "Running"},
        "createdAt": _now(),
        "expiresAt": _now(),
        "entrypoint": ["tail", "-f", "/dev/null"],
        "image": {"uri": "image"},
    }


def _event(kind: str, **fields: Any) -> str:
    return json.dumps({"type": kind, "timestamp": 1, **fields}) + "\n\n"


def _error(status: HTTPStatus, code: str, message: str) -> Response:
    return JSONResponse({"code": code, "message": message}, status)


def _now() -> str:
    return datetime.now(UTC).isoformat()
