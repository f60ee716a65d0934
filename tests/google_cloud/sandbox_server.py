"""A small Vertex AI for tests: sandboxes and the code interpreter, which run code as processes of this machine.

Source of the formats: see `greenroom.google_cloud.sandboxes` and `greenroom.code_executors.vertex`.
"""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import sys
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from greenroom.google_cloud import vertex
from tests.environments.sandboxes import PROGRAM_FOLDER
from tests.server.quick_server import serving_routes

ENGINE = "projects/p/locations/l/reasoningEngines/7"

_CODES = {
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "UNAUTHENTICATED": 401,
    "NOT_FOUND": 404,
    "RESOURCE_EXHAUSTED": 429,
    "INTERNAL": 500,
    "UNAVAILABLE": 503,
}
_INTERPRETER = """
import contextlib, io, json, sys, traceback
names = {"__name__": "__main__"}
answers = sys.stdout
for line in sys.stdin:
    out, err, status = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            exec(compile(json.loads(line), "<code>", "exec"), names)
        except BaseException:
            status = 106
            traceback.print_exc()
    print(json.dumps([status, out.getvalue(), err.getvalue()]), file=answers, flush=True)
"""


class Refused(Exception):
    def __init__(self, status: str, message: str = "refused") -> None:
        self.status, self.message = status, message


class Interpreter:
    """A Python that keeps its variables, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process: asyncio.subprocess.Process | None = None
        self._is_busy = asyncio.Lock()

    async def run(self, code: str, files: dict[str, bytes]) -> tuple[int, str, str, dict[str, bytes]]:
        """The exit code, both outputs and the files that were created."""
        for name, content in files.items():
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_bytes(content)
        async with self._is_busy:
            before = set(self.folder.rglob("*"))
            line = await self._send(json.dumps(code).encode() + b"\n")
        if not line:
            raise Refused("NOT_FOUND", "The sandbox was deleted")
        status, out, err = json.loads(line)
        created = {
            path.relative_to(self.folder).as_posix(): path.read_bytes()
            for path in sorted(set(self.folder.rglob("*")) - before)
            if path.is_file() and "__pycache__" not in path.parts
        }
        return status, out, err, created

    async def _send(self, line: bytes) -> bytes:
        if self.process is None:
            pipe = asyncio.subprocess.PIPE
            command = [sys.executable, "-c", _INTERPRETER]
            self.process = await asyncio.create_subprocess_exec(
                *command, cwd=self.folder, stdin=pipe, stdout=pipe, limit=2**24
            )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(line)
        return await self.process.stdout.readline()

    async def stop(self) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()


@dataclass
class Sandbox:
    body: dict[str, Any]
    interpreter: Interpreter
    state: str = "STATE_RUNNING"


@dataclass
class SandboxServer:
    """failures: statuses of the next calls by method, such as `execute` or `GET`. calls: all so far, as `METHOD path`.
    outputs: what the next execution answers instead of running code.
    """

    folder: Path
    url: str = ""
    sandboxes: dict[str, Sandbox] = field(default_factory=dict[str, Sandbox])
    engines: list[dict[str, Any]] = field(default_factory=list[Any])
    templates: list[dict[str, Any]] = field(default_factory=list[Any])
    extensions: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    interpreters: dict[str, Interpreter] = field(default_factory=dict[str, Interpreter])
    operations: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    failures: dict[str, list[tuple[str, str]]] = field(default_factory=dict[str, list[tuple[str, str]]])
    calls: list[str] = field(default_factory=list[str])
    outputs: list[dict[str, Any]] | None = None
    program_folders: set[str] = field(default_factory=set[str])
    are_operations_slow: bool = False
    count: int = 100

    async def answer(self, request: Request) -> Response:
        path = request.path_params["path"]
        self.calls.append(f"{request.method} {path}")
        try:
            if request.headers.get("authorization") != "Bearer t-1":
                raise Refused("UNAUTHENTICATED", "no token")
            verb = path.rpartition(":")[2] if ":" in path else request.method
            if self.failures.get(verb):
                raise Refused(*self.failures[verb].pop(0))
            given = json.loads(await request.body() or b"{}")
            return JSONResponse(await self._dispatch(request.method, path, given, dict(request.query_params)))
        except Refused as error:
            code = _CODES[error.status]
            return JSONResponse({"error": {"code": code, "message": error.message, "status": error.status}}, code)

    async def _dispatch(self, method: str, path: str, given: dict[str, Any], query: dict[str, str]) -> Any:
        if path in self.operations:
            return self.operations[path]
        path, _, verb = path.partition(":")
        collection = path.rpartition("/")[2]
        if collection == "reasoningEngines":
            return self._engines(method, given, query)
        if collection == "extensions":
            return self._extensions(verb, given, query)
        if "/extensions/" in path:
            return await self._interpret(path, given)
        if collection == "sandboxEnvironmentTemplates":
            return self._templates(method, path, given)
        if collection == "sandboxEnvironments":
            return self._create(path, given)
        sandbox = self.sandboxes.get(path.rpartition("/")[2])
        if sandbox is None or not path.replace("/123/", "/p/").startswith(ENGINE):
            raise Refused("NOT_FOUND", path)
        if (method, verb) == ("POST", "execute"):
            return {"outputs": await self._execute(sandbox, given["inputs"])}
        if verb in ("pause", "resume"):
            sandbox.state = {"pause": "STATE_PAUSED", "resume": "STATE_RUNNING"}[verb]
            return self._operation(path, {"name": path})
        if method == "DELETE":
            del self.sandboxes[path.rpartition("/")[2]]
            await sandbox.interpreter.stop()
            return self._operation(path, {})
        return {"name": path, "state": sandbox.state, "displayName": sandbox.body["displayName"]}

    def _engines(self, method: str, given: dict[str, Any], query: dict[str, str]) -> Any:
        if method == "POST":
            self.engines.append({"name": ENGINE.replace("/p/", "/123/"), **given})
            return self._operation(self.engines[-1]["name"], self.engines[-1])
        found = [one for one in self.engines if query["filter"] == f'display_name="{one["displayName"]}"']
        return {"reasoningEngines": found} if found else {}

    def _templates(self, method: str, path: str, given: dict[str, Any]) -> Any:
        if method == "POST":
            assert given["defaultContainerEnvironment"] == {
                "defaultContainerCategory": "DEFAULT_CONTAINER_CATEGORY_SHELL_SANDBOX"
            }
            self.count += 1
            self.templates.append({"name": f"{path}/{self.count}", "state": "ACTIVE", **given})
            return self._operation(self.templates[-1]["name"], self.templates[-1])
        return {"sandboxEnvironmentTemplates": self.templates} if self.templates else {}

    def _create(self, path: str, given: dict[str, Any]) -> Any:
        """As the service does, it spells the project by its number."""
        known = {"displayName", "spec", "sandboxEnvironmentTemplate", "ttl"}
        is_whole = ("codeExecutionEnvironment" in given.get("spec", {})) != ("sandboxEnvironmentTemplate" in given)
        if path.replace("/123/", "/p/") != f"{ENGINE}/sandboxEnvironments" or given.keys() - known or not is_whole:
            raise Refused("INVALID_ARGUMENT", f"{path} {given}")
        self.count += 1
        self.sandboxes[str(self.count)] = Sandbox(given, self._interpreter(f"sandbox-{self.count}"))
        name = f"{path.replace('/p/', '/123/')}/{self.count}"
        return self._operation(name, {"name": name})

    def _interpreter(self, name: str) -> Interpreter:
        folder = self.folder / name
        folder.mkdir(parents=True)
        return Interpreter(folder)

    async def _execute(self, sandbox: Sandbox, inputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        if sandbox.state != "STATE_RUNNING":
            raise Refused("FAILED_PRECONDITION", "The sandbox is not running")
        if self.outputs is not None:
            return self.outputs
        chunks = [(one["mimeType"], base64.b64decode(one["data"]), one.get("metadata")) for one in inputs]
        if "sandboxEnvironmentTemplate" in sandbox.body:
            uri, port, request = chunks
            assert (uri[:2], port[:2]) == (
                ("application/x.sandbox-request-uri", b"/exec"),
                ("application/x.sandbox-request-port", b"8080"),
            )
            return [await self._run_command(sandbox.interpreter.folder, json.loads(request[1]))]
        (kind, code, _), *files = chunks
        assert kind == "application/json"
        given = {base64.b64decode(about["attributes"]["file_name"]).decode(): data for _, data, about in files if about}
        status, out, err, created = await sandbox.interpreter.run(json.loads(code)["code"], given)
        return [
            json_chunk({"exit_status_int": status, "msg_out": out, "msg_err": err}),
            *(file_chunk(name, content) for name, content in created.items()),
        ]

    async def _run_command(self, folder: Path, request: dict[str, Any]) -> dict[str, Any]:
        self.program_folders.update(PROGRAM_FOLDER.findall(request["command"]))
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            "bash", "-c", request["command"], cwd=folder, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe
        )
        try:
            async with asyncio.timeout(request["timeout"]):
                out, err = await process.communicate()
        except TimeoutError:
            process.kill()
            await process.wait()
            raise Refused("FAILED_PRECONDITION", "command failed: DEADLINE_EXCEEDED") from None
        printed = {"stdout": out.decode(), "stderr": err.decode(), "returncode": process.returncode, "duration_ms": 1}
        return json_chunk(printed)

    def _extensions(self, verb: str, given: dict[str, Any], query: dict[str, str]) -> Any:
        if verb == "import":
            if given.keys() - {"displayName", "description", "manifest"}:
                raise Refused("INVALID_ARGUMENT", str(given))
            self.count += 1
            name = f"projects/123/locations/l/extensions/{self.count}"
            self.extensions[name] = {"name": name, **given}
            return self._operation(name, self.extensions[name])
        found = [one for one in self.extensions.values() if query["filter"] == f'display_name="{one["displayName"]}"']
        return {"extensions": found} if found else {}

    async def _interpret(self, path: str, given: dict[str, Any]) -> Any:
        """Code with one session id shares variables."""
        if path.replace("/p/", "/123/") not in self.extensions:
            raise Refused("NOT_FOUND", path)
        assert given["operationId"] == "execute"
        params = given["operationParams"]
        self.count += 1
        session = params.get("session_id") or f"single-{self.count}"
        if session not in self.interpreters:
            self.interpreters[session] = self._interpreter(f"session-{len(self.interpreters)}")
        files = {one["name"]: base64.b64decode(one["contents"]) for one in params.get("files", ())}
        status, out, err, created = await self.interpreters[session].run(params["code"], files)
        content = {
            "execution_result": out,
            "execution_error": err if status else "",
            "output_files": [
                {"name": name, "contents": base64.b64encode(data).decode()} for name, data in created.items()
            ],
        }
        return {"content": json.dumps(content)}

    def _operation(self, name: str, response: Any) -> Any:
        """Done at the first look, unless operations are slow."""
        self.count += 1
        operation = f"{name}/operations/{self.count}"
        is_done = not self.are_operations_slow
        self.operations[operation] = {"name": operation, "done": is_done, "response": response}
        return {"name": operation}


def json_chunk(value: Any) -> dict[str, Any]:
    return {"mimeType": "application/json", "data": base64.b64encode(json.dumps(value).encode()).decode()}


def file_chunk(name: str, content: bytes) -> dict[str, Any]:
    """Empty content is left out, as protobuf does."""
    attributes = {"file_name": base64.b64encode(name.encode()).decode()}
    chunk: dict[str, Any] = {"metadata": {"attributes": attributes}}
    if content:
        chunk["data"] = base64.b64encode(content).decode()
    return chunk


@asynccontextmanager
async def running_sandboxes() -> AsyncGenerator[SandboxServer]:
    """Waits of the client are short meanwhile."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        server = SandboxServer(Path(folder))
        patch.setattr(vertex, "_FIRST_WAIT_SECONDS", 0.001)
        route = Route("/v1beta1/{path:path}", server.answer, methods=["GET", "POST", "DELETE"])
        async with serving_routes(route) as server.url:
            try:
                yield server
            finally:
                for one in [*(box.interpreter for box in server.sandboxes.values()), *server.interpreters.values()]:
                    await one.stop()
                for program_folder in server.program_folders:
                    shutil.rmtree(program_folder, ignore_errors=True)
