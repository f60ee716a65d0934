"""Shell sandboxes of Vertex AI's Agent Engine.

Source: `google_cloud.sandboxes`. Names of the settings, and what the service answers to a command in a sandbox that is
paused or starts: ADK.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import math
import time
from collections.abc import AsyncGenerator
from pathlib import Path, PurePosixPath
from shlex import quote
from typing import Any, Self
from uuid import uuid4

import msgspec

from greenroom.environments.remote import MAX_READ_BYTES, RemoteEnvironment, too_large
from greenroom.errors import AgentConfigError, InvalidRequest, NotFound, StorageError, ToolError
from greenroom.google_cloud.sandboxes import (
    GONE,
    RUNNING,
    AgentEngineSandboxes,
    Chunk,
    engine_of,
    is_engine_name,
)
from greenroom.google_cloud.vertex import VertexClient, VertexFailure, tool_errors
from greenroom.records import wire
from greenroom.records.base import JsonObject

_COMMAND_SECONDS = 300.0
_OPERATION = "Using a sandbox of Agent Engine"
_PORT = b"8080"

_READ_BYTES = 3 * 2**20
_WRITE_BYTES = 72 * 2**10
"""Of a file in one command: Linux allows 128 KiB for an argument, and base64 takes a third more."""

_MISSING = 66
_FOLDER = 67

_UNREACHABLE = "Unable to reach the sandbox environment"
_UNREACHABLE_SECONDS = 60.0
_UNREACHABLE_PAUSE_SECONDS = 2.0


class AgentEngineEnvironment(RemoteEnvironment[str]):
    """A container of Agent Engine, without a network. Commands without a timeout of their own have 300 seconds.

    sandbox_name: of a shell sandbox to use, `projects/…/locations/…/reasoningEngines/…/sandboxEnvironments/…`; `close`
        pauses it, and its next use resumes it with its files. None: one that `close` deletes.
    agent_engine_name: of the engine that gets the sandbox: `projects/…/locations/…/reasoningEngines/…`. None: the one
        named by GOOGLE_CLOUD_AGENT_ENGINE_ID, else the project's engine called greenroom-sandboxes, which is created
        if it is missing.
    sandbox_template_name: what the sandbox is made of, `…/sandboxEnvironmentTemplates/…`. None: the engine's template
        called greenroom-shell, of Google's image, which is created if it is missing.
    sandbox_ttl_seconds: the sandbox is deleted after that time. None: as the service does.
    project_id, location, credentials, base_url: see `VertexClient`.
    """

    service = "Agent Engine"

    def __init__(
        self,
        *,
        project_id: str | None = None,
        location: str | None = None,
        agent_engine_name: str | None = None,
        sandbox_name: str | None = None,
        sandbox_template_name: str | None = None,
        sandbox_ttl_seconds: int | None = None,
        working_dir: Path | str = "/workspace",
        credentials: Any = None,
        base_url: str | None = None,
    ) -> None:
        super().__init__(working_dir=working_dir, timeout=_COMMAND_SECONDS, env_vars=None)
        if sandbox_name is not None and engine_of(sandbox_name) is None:
            raise AgentConfigError(f"{sandbox_name!r} is not the resource name of a sandbox")
        if agent_engine_name is not None and not is_engine_name(agent_engine_name):
            raise AgentConfigError(f"{agent_engine_name!r} is not the resource name of an agent engine")

        self._given = sandbox_name
        self._engine = agent_engine_name
        self._template = sandbox_template_name
        self._ttl_seconds = sandbox_ttl_seconds
        self._project = project_id
        self._location = location
        self._credentials = credentials
        self._base_url = base_url
        client = VertexClient(project_id, location, credentials=credentials, base_url=base_url)
        self._sandboxes = AgentEngineSandboxes(client)

    def new(self) -> Self:
        """Raises AgentConfigError if the sandbox was given."""
        if self._given is not None:
            raise AgentConfigError(
                "AgentEngineEnvironment: sandbox_name is of one sandbox, and there must be others; leave it out"
            )
        return type(self)(
            project_id=self._project,
            location=self._location,
            agent_engine_name=self._engine,
            sandbox_template_name=self._template,
            sandbox_ttl_seconds=self._ttl_seconds,
            working_dir=self._working_dir,
            credentials=self._credentials,
            base_url=self._base_url,
        )

    async def close(self) -> None:
        try:
            await super().close()
        finally:
            await self._sandboxes.close()

    async def _create(self) -> str:
        with tool_errors(_OPERATION):
            if self._given is not None:
                await self._sandboxes.wait_until_running(self._given)
                return self._given

            engine = self._engine or await self._sandboxes.default_engine()
            return await self._sandboxes.create(
                engine,
                display_name="greenroom-environment",
                template=self._template or await self._sandboxes.shell_template(engine),
                ttl_seconds=self._ttl_seconds,
            )

    async def _kill(self, sandbox: str) -> None:
        if self._given is None:
            await self._sandboxes.discard(sandbox)
        else:
            await self._sandboxes.pause(sandbox)

    async def _extend(self, sandbox: str, seconds: float) -> None:
        """The time to live counts from the sandbox's creation."""
        self._ends_at = math.inf

    async def _run(self, sandbox: str, script: str, seconds: float) -> str:
        ran = await self._execute(sandbox, script, seconds)
        return ran.get("stdout") or ran.get("stderr") or ""

    async def _read(self, sandbox: str, path: str) -> AsyncGenerator[bytes]:
        name = quote(path)
        size = await self._checked(
            sandbox, f"[ -e {name} ] || exit {_MISSING}; [ -d {name} ] && exit {_FOLDER}; wc -c < {name}", path
        )
        if int(size) > MAX_READ_BYTES:
            raise too_large(path)

        for start in range(0, int(size), _READ_BYTES):
            piece = f"tail -c +{start + 1} {name} | head -c {_READ_BYTES} | base64"
            try:
                yield base64.b64decode(await self._checked(sandbox, piece, path))
            except binascii.Error as error:
                raise ToolError(f"{path} can't be read: the sandbox returned a part of it") from error

    async def _write(self, sandbox: str, path: str, data: bytes) -> None:
        """The file has its old content until it has all of the new one."""
        folder = quote(str(PurePosixPath(path).parent))
        unfinished = quote(f"{path}.{uuid4().hex}.part")

        await self._checked(sandbox, f"mkdir -p {folder} && : > {unfinished}", path)
        for start in range(0, len(data), _WRITE_BYTES):
            piece = base64.b64encode(data[start : start + _WRITE_BYTES]).decode()
            await self._checked(sandbox, f"echo {piece} | base64 -d >> {unfinished}", path)
        await self._checked(sandbox, f"mv {unfinished} {quote(path)}", path)

    async def _has_ended(self, sandbox: str, error: Exception) -> bool:
        try:
            return (await self._sandboxes.get(sandbox)).get("state") in GONE
        except NotFound:
            return True
        except StorageError:  # Google can't be reached: what failed first is more to the point
            return False

    async def _checked(self, sandbox: str, command: str, path: str) -> str:
        """The output of a command about a file. Raises FileNotFoundError, ToolError."""
        ran = await self._execute(sandbox, command, self._timeout)
        match ran.get("returncode"):
            case 0:
                return ran.get("stdout") or ""
            case code if code == _MISSING:
                raise FileNotFoundError(path)
            case code if code == _FOLDER:
                raise ToolError(f"{path!r} is a directory")
            case code:
                raise ToolError(f"The command for {path!r} failed: {ran.get('stderr') or code}")

    async def _execute(self, sandbox: str, command: str, seconds: float) -> JsonObject:
        """Sends a command, again if it surely did not reach the sandbox: while that starts, or was paused."""
        inputs = [
            Chunk(mime_type="application/x.sandbox-request-uri", data=b"/exec"),
            Chunk(mime_type="application/x.sandbox-request-port", data=_PORT),
            Chunk(mime_type="application/json", data=wire.encode({"command": command, "timeout": math.ceil(seconds)})),
        ]
        reachable_until = time.monotonic() + _UNREACHABLE_SECONDS
        was_resumed = False
        with tool_errors(_OPERATION):
            while True:
                try:
                    return _answer(await self._sandboxes.execute(sandbox, inputs))
                except (InvalidRequest, StorageError) as error:
                    if _UNREACHABLE in str(error) and time.monotonic() < reachable_until:
                        await asyncio.sleep(_UNREACHABLE_PAUSE_SECONDS)
                        continue
                    if was_resumed or not _is_refusal(error):
                        raise
                    if (await self._sandboxes.get(sandbox)).get("state") == RUNNING:
                        raise
                    await self._sandboxes.wait_until_running(sandbox)
                    was_resumed = True


def _is_refusal(error: Exception) -> bool:
    """True if the command was not run, as in a paused sandbox. The service reports a command that took too long as
    FAILED_PRECONDITION, too.
    """
    cause = error.__cause__
    if not isinstance(cause, VertexFailure) or "DEADLINE_EXCEEDED" in str(cause):
        return False
    return cause.status == 503 or cause.code == "FAILED_PRECONDITION"


def _answer(outputs: list[Chunk]) -> JsonObject:
    for chunk in outputs:
        if chunk.data:
            try:
                return msgspec.json.decode(chunk.data, type=dict[str, Any])
            except msgspec.DecodeError as error:
                raise StorageError("A request to Vertex AI", f"the output can't be read: {error}") from error
    raise StorageError("A request to Vertex AI", "the sandbox returned nothing")
