"""Sandboxes of an OpenSandbox server, by its SDK."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Self

from greenroom.environments.remote import MAX_READ_BYTES, RemoteEnvironment, too_large
from greenroom.errors import MissingExtra, ToolError

if TYPE_CHECKING:
    from opensandbox import Sandbox

_START = timedelta(minutes=5)
_ENDED = {"Pausing", "Paused", "Stopping", "Terminated", "Failed"}
"""States of a sandbox in which nothing can run."""


class OpenSandboxEnvironment(RemoteEnvironment["Sandbox"]):
    """A sandbox of an OpenSandbox server. Raises MissingExtra when it is initialized.

    image: of a container, with bash.
    timeout: the sandbox is killed when it was not used for so many seconds.
    api_key: None: the variable OPEN_SANDBOX_API_KEY, if the server asks for a key.
    domain: address of the server, as `sandbox.example.com` or `https://sandbox.example.com`; None: the variable
        OPEN_SANDBOX_DOMAIN, or localhost:8080.
    env_vars: variables of the sandbox's processes.
    working_dir: created if missing.

    Source of the name: ADK.
    """

    service = "OpenSandbox"

    def __init__(
        self,
        image: str = "python:3.12",
        timeout: float = 300,
        api_key: str | None = None,
        domain: str | None = None,
        env_vars: dict[str, str] | None = None,
        *,
        working_dir: Path | str = "/workspace",
    ) -> None:
        super().__init__(working_dir=working_dir, timeout=timeout, env_vars=env_vars)
        self._image = image
        self._api_key = api_key
        self._domain = domain

    def new(self) -> Self:
        return type(self)(
            self._image,
            self._timeout,
            self._api_key,
            self._domain,
            self._env_vars,
            working_dir=self._working_dir,
        )

    async def initialize(self) -> None:
        """Raises MissingExtra."""
        try:
            import opensandbox  # noqa: F401  # pyright: ignore[reportUnusedImport]
        except ImportError as error:
            raise MissingExtra("opensandbox", "opensandbox") from error

    async def _create(self) -> Sandbox:
        from opensandbox import Sandbox
        from opensandbox.config import ConnectionConfig
        from opensandbox.transport import RetryPolicy

        return await Sandbox.create(
            self._image,
            timeout=timedelta(seconds=self._timeout),
            ready_timeout=_START,
            env=self._env_vars,
            connection_config=ConnectionConfig(
                api_key=self._api_key,
                domain=self._domain,
                protocol="https" if (self._domain or "").startswith("https:") else "http",  # of the sandboxes
                request_timeout=_START,
                retry_policy=RetryPolicy(max_retries=1),  # the model can try again
                disable_metrics=True,
            ),
        )

    async def _kill(self, sandbox: Sandbox) -> None:
        await sandbox.destroy()

    async def _renew(self, sandbox: Sandbox, seconds: float) -> None:
        await sandbox.renew(timedelta(seconds=seconds))

    async def _run(self, sandbox: Sandbox, script: str, seconds: float) -> str:
        try:
            async with asyncio.timeout(seconds):
                execution = await sandbox.commands.run(script)
        except TimeoutError:
            raise ToolError("OpenSandbox did not answer in time") from None
        return execution.text or "\n".join(message.text for message in execution.logs.stderr)

    async def _read(self, sandbox: Sandbox, path: str) -> AsyncGenerator[bytes]:
        from opensandbox.exceptions import SandboxApiException

        try:
            info = (await sandbox.files.get_file_info([path]))[path]
        except SandboxApiException as error:
            if error.status_code != 404 or await self._has_ended(sandbox, error):
                raise
            raise FileNotFoundError(path) from error
        if info.entry_type == "directory":
            raise ToolError(f"{path!r} is a directory")
        if info.size > MAX_READ_BYTES:
            raise too_large(path)

        async for chunk in await sandbox.files.read_bytes_stream(path):
            yield chunk

    async def _write(self, sandbox: Sandbox, path: str, data: bytes) -> None:
        await sandbox.files.write_file(path, data, mode=644)

    async def _has_ended(self, sandbox: Sandbox, error: Exception) -> bool:
        """Asks the server: the connection to a sandbox that has ended just fails."""
        from opensandbox.exceptions import SandboxApiException

        try:
            info = await sandbox.get_info()
        except SandboxApiException as answer:
            return answer.status_code == 404
        except Exception:  # the server can't be reached: what failed first is more to the point
            return False
        return info.status.state in _ENDED

    async def _release(self, sandbox: Sandbox) -> None:
        await sandbox.close()
