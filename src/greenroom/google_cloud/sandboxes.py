"""Sandboxes of Vertex AI's agent engines: containers in which code and commands of agents run.

Source: `reasoningEngines.sandboxEnvironments` and `sandboxEnvironmentTemplates` of the Vertex AI API, v1beta1,
https://docs.cloud.google.com/gemini-enterprise-agent-platform/reference/rest/v1beta1/projects.locations.reasoningEngines.sandboxEnvironments.
What the chunks of code sandboxes and of shell sandboxes contain: `execute_code` and `execute_bash` of the package
google-cloud-aiplatform, 2.3.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import msgspec

from greenroom.errors import NotFound, StorageError
from greenroom.google_cloud.vertex import VertexClient
from greenroom.records.base import JsonObject, Record

_ENGINE = r"projects/[\w.:-]+/locations/[a-z0-9-]+/reasoningEngines/[0-9]+"
_SANDBOX = rf"({_ENGINE})/sandboxEnvironments/[0-9]+"
_ENGINE_VARIABLE = "GOOGLE_CLOUD_AGENT_ENGINE_ID"
_ENGINE_NAME = "greenroom-sandboxes"
_TEMPLATE_NAME = "greenroom-shell"
_SHELL_IMAGE: JsonObject = {"defaultContainerCategory": "DEFAULT_CONTAINER_CATEGORY_SHELL_SANDBOX"}

_CREATION_SECONDS = 300.0
_DELETION_SECONDS = 10.0
_STATE_SECONDS = 2.0

CODE: Final[JsonObject] = {"codeExecutionEnvironment": {"codeLanguage": "LANGUAGE_PYTHON"}}
"""Specification of a sandbox for Python."""

RUNNING = "STATE_RUNNING"
_PAUSED = "STATE_PAUSED"
GONE = ("STATE_TERMINATED", "STATE_DELETED")


def is_engine_name(name: str) -> bool:
    """True for the full resource name of a reasoning engine. The location in it becomes part of a host name."""
    return re.fullmatch(_ENGINE, name, re.ASCII) is not None


def engine_of(sandbox: str) -> str | None:
    """The engine in the full resource name of a sandbox; None if the name is something else."""
    match = re.fullmatch(_SANDBOX, sandbox, re.ASCII)
    return match[1] if match else None


class ChunkMetadata(Record, kw_only=True):
    attributes: dict[str, bytes] = msgspec.field(default_factory=dict[str, bytes])


class Chunk(Record, kw_only=True):
    """A piece of input to a sandbox, or of its output."""

    mime_type: str = ""
    data: bytes = b""
    metadata: ChunkMetadata | None = None

    @property
    def file_name(self) -> str | None:
        """None if this is no file."""
        name = self.metadata.attributes.get("file_name") if self.metadata is not None else None
        return None if name is None else name.decode(errors="replace")


def file_chunk(name: str, content: bytes, mime_type: str) -> Chunk:
    """A file for the working directory."""
    return Chunk(mime_type=mime_type, data=content, metadata=ChunkMetadata(attributes={"file_name": name.encode()}))


class AgentEngineSandboxes:
    """Creates, uses and deletes sandboxes. Methods raise what `VertexClient.call` does."""

    def __init__(self, client: VertexClient) -> None:
        self._client = client
        self._default_engine: str | None = None
        self._finding_engine = asyncio.Lock()

    async def default_engine(self) -> str:
        """The engine named by GOOGLE_CLOUD_AGENT_ENGINE_ID; else one called greenroom-sandboxes, which is created if
        the project has none.
        """
        async with self._finding_engine:
            if self._default_engine is None:
                named = os.environ.get(_ENGINE_VARIABLE)
                self._default_engine = self._client.engine(named) if named else await self._found_or_created_engine()
            return self._default_engine

    async def _found_or_created_engine(self) -> str:
        path = f"{self._client.parent()}/reasoningEngines"
        async for engine in self._client.pages(path, "reasoningEngines", filter=f'display_name="{_ENGINE_NAME}"'):
            return engine["name"]

        operation = await self._client.call("POST", path, {"displayName": _ENGINE_NAME})
        return (await self._client.finish(operation, timeout_seconds=_CREATION_SECONDS))["name"]

    async def shell_template(self, engine: str) -> str:
        """The engine's template of sandboxes for shell commands, called greenroom-shell, which is created if it is
        missing. Google makes such sandboxes of templates only.
        """
        path = f"{engine}/sandboxEnvironmentTemplates"
        async for template in self._client.pages(path, "sandboxEnvironmentTemplates"):
            if template.get("displayName") == _TEMPLATE_NAME and template.get("state") == "ACTIVE":
                return template["name"]

        body = {"displayName": _TEMPLATE_NAME, "defaultContainerEnvironment": _SHELL_IMAGE}
        operation = await self._client.call("POST", path, body)
        return (await self._client.finish(operation, timeout_seconds=_CREATION_SECONDS))["name"]

    async def create(
        self,
        engine: str,
        *,
        display_name: str,
        spec: JsonObject | None = None,
        template: str | None = None,
        ttl_seconds: int | None = None,
    ) -> str:
        """Returns the name of a new sandbox once it is ready. spec, template: what it is made of, one of them."""
        body: JsonObject = {"displayName": display_name}
        if spec is not None:
            body["spec"] = spec
        if template is not None:
            body["sandboxEnvironmentTemplate"] = template
        if ttl_seconds is not None:
            body["ttl"] = f"{ttl_seconds}s"

        operation = await self._client.call("POST", f"{engine}/sandboxEnvironments", body)
        try:
            return (await self._client.finish(operation, timeout_seconds=_CREATION_SECONDS))["name"]
        except BaseException:  # the caller is cancelled, too, while a sandbox starts
            unfinished = operation.get("name", "").partition("/operations/")[0]
            if engine_of(unfinished) is not None:
                await self.discard(unfinished)
            raise

    async def get(self, sandbox: str) -> JsonObject:
        return await self._client.call("GET", sandbox)

    async def discard(self, sandbox: str) -> None:
        """Deletes a sandbox with all that runs in it. If that fails, it is left to its time to live."""
        with suppress(NotFound, StorageError, TimeoutError):
            async with asyncio.timeout(_DELETION_SECONDS):
                await self._client.call("DELETE", sandbox)

    async def execute(
        self, sandbox: str, inputs: Sequence[Chunk], *, timeout_seconds: float | None = None
    ) -> list[Chunk]:
        """The outputs of a code sandbox, or of a server in a sandbox that the inputs are sent to.

        timeout_seconds: for the response; None for no limit. The sandbox is not stopped by it.
        """
        body = {"inputs": inputs}
        reply = await self._client.call("POST", f"{sandbox}:execute", body, timeout_seconds=timeout_seconds)
        try:
            return msgspec.convert(reply.get("outputs") or [], list[Chunk])
        except msgspec.ValidationError as error:
            raise StorageError("A request to Vertex AI", f"its answer can't be read: {error}") from error

    async def pause(self, sandbox: str) -> None:
        """Releases its machine, and keeps its files."""
        if (await self.get(sandbox)).get("state") == RUNNING:
            await self._client.finish(
                await self._client.call("POST", f"{sandbox}:pause", {}), timeout_seconds=_CREATION_SECONDS
            )

    async def wait_until_running(self, sandbox: str) -> None:
        """Resumes a sandbox that is paused, and waits for one that starts. Raises NotFound if it has ended."""
        try:
            async with asyncio.timeout(_CREATION_SECONDS):
                while (state := (await self.get(sandbox)).get("state")) != RUNNING:
                    if state in GONE:
                        raise NotFound(f"The sandbox {sandbox} has ended")
                    if state == _PAUSED:
                        await self._client.finish(await self._client.call("POST", f"{sandbox}:resume", {}))
                    else:
                        await asyncio.sleep(_STATE_SECONDS)
        except TimeoutError:
            raise StorageError("A request to Vertex AI", f"{sandbox} did not start") from None

    async def close(self) -> None:
        await self._client.close()
