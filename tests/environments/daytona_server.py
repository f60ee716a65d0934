"""A small server with the interface of Daytona: the sandboxes' REST interface, and the toolbox inside each sandbox.

Source: Daytona's OpenAPI documents of both, and the toolbox's source for the forms of files.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from http import HTTPStatus
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.environments.sandboxes import Sandbox
from tests.server.quick_server import serving_routes

KEY = "dtn_0123456789abcdef"
_BOUNDARY = "DAYTONA-FILE-BOUNDARY"


class DaytonaServer:
    def __init__(self) -> None:
        self.url = ""
        self.private_folder: Path | None = None
        """A folder that has other files in each sandbox."""
        self.sandboxes: dict[str, Sandbox] = {}
        self.stopped: set[str] = set()
        """Sandboxes that were stopped and not deleted."""
        self.created: list[dict[str, Any]] = []
        """The bodies of requests that created sandboxes."""
        self.intervals: list[int] = []
        """New minutes after which sandboxes stop that are not used."""

    @property
    def api_url(self) -> str:
        return f"{self.url}/api"

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncGenerator[DaytonaServer]:
        toolbox = "/toolbox/{id}"
        routes = [
            Route("/api/sandbox", self.create, methods=["POST"]),
            Route("/api/sandbox/{id}", self.get),
            Route("/api/sandbox/{id}", self.delete, methods=["DELETE"]),
            Route("/api/sandbox/{id}/autostop/{minutes:int}", self.set_interval, methods=["POST"]),
            Route(f"{toolbox}/process/execute", self.execute, methods=["POST"]),
            Route(f"{toolbox}/files/info", self.file_info),
            Route(f"{toolbox}/files/bulk-download", self.download, methods=["POST"]),
            Route(f"{toolbox}/files/bulk-upload", self.upload, methods=["POST"]),
        ]
        try:
            async with serving_routes(*routes) as self.url:
                yield self
        finally:
            await self.end_all()

    async def end_all(self, *, delete: bool = True) -> None:
        """Ends all sandboxes, as after their time.

        delete: False: they are only stopped.
        """
        ending = list(self.sandboxes.values())
        if delete:
            self.sandboxes.clear()
        else:
            self.stopped.update(self.sandboxes)
        for sandbox in ending:
            await sandbox.end()

    async def create(self, request: Request) -> Response:
        if request.headers.get("authorization") != f"Bearer {KEY}":
            return _error(HTTPStatus.UNAUTHORIZED, "Invalid credentials")
        body = await request.json()
        self.created.append(body)
        if "missing" in body.get("buildInfo", {}).get("dockerfileContent", ""):
            return _error(HTTPStatus.BAD_REQUEST, "image not found: missing")
        sandbox = Sandbox(env=body["env"], seconds=body["autoStopInterval"] * 60, private_folder=self.private_folder)
        self.sandboxes[sandbox.id] = sandbox
        return JSONResponse(self._description(sandbox, "starting"))

    async def get(self, request: Request) -> Response:
        sandbox = self.sandboxes.get(request.path_params["id"])
        if sandbox is None:
            return _error(HTTPStatus.NOT_FOUND, "Sandbox not found")
        return JSONResponse(self._description(sandbox))

    async def delete(self, request: Request) -> Response:
        sandbox = self.sandboxes.pop(request.path_params["id"], None)
        if sandbox is None:
            return _error(HTTPStatus.NOT_FOUND, "Sandbox not found")
        await sandbox.end()
        return JSONResponse(self._description(sandbox, "destroying"))

    async def set_interval(self, request: Request) -> Response:
        sandbox = self.sandboxes[request.path_params["id"]]
        sandbox.seconds = request.path_params["minutes"] * 60
        self.intervals.append(request.path_params["minutes"])
        return JSONResponse(self._description(sandbox))

    def _description(self, sandbox: Sandbox, state: str | None = None) -> dict[str, Any]:
        return {
            "id": sandbox.id,
            "organizationId": "org",
            "name": sandbox.id,
            "user": "daytona",
            "env": sandbox.env,
            "labels": {"code-toolbox-language": "python"},
            "public": False,
            "networkBlockAll": False,
            "kvm": False,
            "target": "eu",
            "cpu": 1,
            "gpu": 0,
            "memory": 1,
            "disk": 3,
            "state": state or ("stopped" if sandbox.id in self.stopped else "started"),
            "autoStopInterval": sandbox.seconds / 60,
            "toolboxProxyUrl": f"{self.url}/toolbox",
        }

    def _sandbox(self, request: Request) -> Sandbox | Response:
        """The sandbox that a request to a toolbox is for, or the proxy's answer."""
        if request.headers.get("authorization") != f"Bearer {KEY}":
            return _error(HTTPStatus.UNAUTHORIZED, "Invalid credentials")
        sandbox_id = request.path_params["id"]
        if sandbox_id in self.stopped:
            return _error(HTTPStatus.BAD_REQUEST, "bad request: no IP address found. Is the Sandbox started?")
        if sandbox_id not in self.sandboxes:
            return _error(HTTPStatus.NOT_FOUND, "not found: sandbox container not found")
        return self.sandboxes[sandbox_id]

    async def execute(self, request: Request) -> Response:
        sandbox = self._sandbox(request)
        if isinstance(sandbox, Response):
            return sandbox
        body = await request.json()
        process = await sandbox.start("/bin/bash", "-c", body["command"], merge=True)
        assert process.stdout is not None
        output = await process.stdout.read()
        code = await process.wait()
        if sandbox.id not in self.sandboxes or sandbox.id in self.stopped:
            return Response(status_code=HTTPStatus.BAD_GATEWAY)
        return JSONResponse({"exitCode": code, "result": output.decode(errors="replace")})

    async def file_info(self, request: Request) -> Response:
        sandbox = self._sandbox(request)
        if isinstance(sandbox, Response):
            return sandbox
        path = request.query_params["path"]
        try:
            is_dir, size = sandbox.status(path)
        except FileNotFoundError:
            return _error(HTTPStatus.NOT_FOUND, f"file not found: {path}")
        answer = {"name": Path(path).name, "size": size, "isDir": is_dir, "mode": "0644", "modTime": "", "owner": ""}
        return JSONResponse({**answer, "group": "", "permissions": "", "modifiedAt": ""})

    async def download(self, request: Request) -> Response:
        sandbox = self._sandbox(request)
        if isinstance(sandbox, Response):
            return sandbox
        (path,) = (await request.json())["paths"]
        head = f'Content-Disposition: form-data; name="file"; filename="{path}"\r\n\r\n'
        body = f"--{_BOUNDARY}\r\n{head}".encode() + sandbox.read(path) + f"\r\n--{_BOUNDARY}--\r\n".encode()
        return Response(body, headers={"content-type": f"multipart/form-data; boundary={_BOUNDARY}"})

    async def upload(self, request: Request) -> Response:
        sandbox = self._sandbox(request)
        if isinstance(sandbox, Response):
            return sandbox
        parts = _parts(request.headers["content-type"], await request.body())
        sandbox.write(parts["files[0].path"].decode(), parts["files[0].file"])
        return JSONResponse({"files": []})


def _error(status: HTTPStatus, message: str) -> Response:
    return JSONResponse({"statusCode": int(status), "message": message}, status)


def _parts(content_type: str, body: bytes) -> dict[str, bytes]:
    """The parts of a form by their names."""
    boundary = content_type.partition("boundary=")[2].encode()
    parts: dict[str, bytes] = {}
    for part in (b"\r\n" + body).split(b"\r\n--" + boundary)[1:-1]:
        head, _, content = part.partition(b"\r\n\r\n")
        parts[head.partition(b'name="')[2].partition(b'"')[0].decode()] = content
    return parts
