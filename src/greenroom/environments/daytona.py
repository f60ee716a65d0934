"""Sandboxes of Daytona, by its SDK."""

from __future__ import annotations

import importlib
import math
import os
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from shlex import quote
from typing import Any, Self

from greenroom.environments.remote import MAX_READ_BYTES, RemoteEnvironment, too_large
from greenroom.errors import AgentConfigError, MissingExtra, ToolError

_SECONDS_TO_START = 300.0
_SECONDS_TO_ANSWER = 10.0

_ENDED = {
    "archived",
    "archiving",
    "build_failed",
    "destroyed",
    "destroying",
    "error",
    "paused",
    "pausing",
    "stopped",
    "stopping",
}
"""States of a sandbox in which nothing can run."""


class DaytonaEnvironment(RemoteEnvironment[Any]):
    """A sandbox of Daytona. Raises MissingExtra and AgentConfigError when it is initialized.

    image: of a container; None: Daytona's default snapshot.
    timeout: the sandbox is deleted when it was not used for so many seconds, in whole minutes.
    api_key: None: the variable DAYTONA_API_KEY.
    api_url: of a Daytona server; None: the variable DAYTONA_API_URL, or Daytona's own service.
    env_vars: variables of the sandbox's processes.
    working_dir: created if missing.

    Source of names and defaults: ADK.
    """

    service = "Daytona"

    def __init__(
        self,
        image: str | None = None,
        timeout: float = 300,
        api_key: str | None = None,
        api_url: str | None = None,
        env_vars: dict[str, str] | None = None,
        *,
        working_dir: Path | str = "/home/daytona",
    ) -> None:
        super().__init__(working_dir=working_dir, timeout=timeout, env_vars=env_vars)
        self._image = image
        self._api_key = api_key
        self._api_url = api_url
        self._client: Any = None

    def new(self) -> Self:
        return type(self)(
            self._image,
            self._timeout,
            self._api_key,
            self._api_url,
            self._env_vars,
            working_dir=self._working_dir,
        )

    async def initialize(self) -> None:
        """Raises MissingExtra, and AgentConfigError without an API key."""
        try:
            _sdk()
        except ImportError as error:
            raise MissingExtra("daytona", "daytona") from error
        if not (self._api_key or os.environ.get("DAYTONA_API_KEY")):
            raise AgentConfigError("DaytonaEnvironment: set api_key, or the variable DAYTONA_API_KEY")

    async def close(self) -> None:
        await super().close()
        client = self._client
        self._client = None
        if client is not None:
            await client.close()

    async def _create(self) -> Any:
        sdk = _sdk()
        if self._client is None:
            self._client = sdk.AsyncDaytona(sdk.DaytonaConfig(api_key=self._api_key, api_url=self._api_url))

        settings: dict[str, Any] = {
            "env_vars": self._env_vars,
            "auto_stop_interval": _minutes(self._timeout),
            "ephemeral": True,  # deleted when it stops
        }
        if self._image is None:
            parameters = sdk.CreateSandboxFromSnapshotParams(**settings)
        else:
            parameters = sdk.CreateSandboxFromImageParams(image=self._image, **settings)
        return await self._client.create(parameters, timeout=_SECONDS_TO_START)

    async def _kill(self, sandbox: Any) -> None:
        await sandbox.delete()

    async def _extend(self, sandbox: Any, seconds: float) -> None:
        """Each request counts as use; only a use that takes longer than that needs more."""
        self._ends_at = time.monotonic() + max(seconds, self._timeout)
        if _minutes(seconds) > sandbox.auto_stop_interval:
            await sandbox.set_autostop_interval(_minutes(seconds))

    async def _run(self, sandbox: Any, script: str, seconds: float) -> str:
        response = await sandbox.process.exec(f"sh -c {quote(script)}", timeout=math.ceil(seconds))
        return response.result

    async def _read(self, sandbox: Any, path: str) -> AsyncGenerator[bytes]:
        try:
            info = await sandbox.fs.get_file_info(path)
        except _sdk().DaytonaNotFoundError as error:
            if await self._has_ended(sandbox, error):
                raise
            raise FileNotFoundError(path) from error
        if info.is_dir:
            raise ToolError(f"{path!r} is a directory")
        if info.size > MAX_READ_BYTES:
            raise too_large(path)
        if info.size == 0:
            return  # the SDK takes an empty file for a missing one

        async for chunk in await sandbox.fs.download_file_stream(path):
            yield chunk

    async def _write(self, sandbox: Any, path: str, data: bytes) -> None:
        await sandbox.fs.upload_file(data, path)

    async def _has_ended(self, sandbox: Any, error: Exception) -> bool:
        """Asks Daytona: what it answers to a request for a sandbox that has ended varies."""
        sdk = _sdk()
        try:
            await sandbox.refresh_data(request_timeout=_SECONDS_TO_ANSWER)
        except sdk.DaytonaNotFoundError:
            return True
        except Exception:  # Daytona can't be reached, or refuses the request: what failed first is more to the point
            return False
        return sandbox.state in _ENDED


def _sdk() -> Any:
    return importlib.import_module("daytona")  # its pins keep it out of the environment of the checks


def _minutes(seconds: float) -> int:
    return math.ceil(seconds / 60)
