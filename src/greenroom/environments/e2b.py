"""Sandboxes of E2B, by its SDK."""

from __future__ import annotations

import math
import os
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import TYPE_CHECKING, Self

from greenroom.environments.remote import RemoteEnvironment
from greenroom.errors import AgentConfigError, MissingExtra, ToolError

if TYPE_CHECKING:
    from e2b import AsyncSandbox

_SECONDS_TO_ANSWER = 10.0


class E2BEnvironment(RemoteEnvironment["AsyncSandbox"]):
    """A sandbox of E2B. Raises MissingExtra and AgentConfigError when it is initialized.

    image: name or id of the template.
    timeout: the sandbox is killed when it was not used for so many seconds. E2B limits how long a sandbox may exist in
        all, by your plan.
    api_key: None: the variable E2B_API_KEY.
    env_vars: variables of the sandbox's processes.
    working_dir: created if missing.

    Source of names and defaults: ADK.
    """

    service = "E2B"

    def __init__(
        self,
        image: str = "base",
        timeout: float = 300,
        api_key: str | None = None,
        env_vars: dict[str, str] | None = None,
        *,
        working_dir: Path | str = "/home/user",
    ) -> None:
        super().__init__(working_dir=working_dir, timeout=timeout, env_vars=env_vars)
        self._image = image
        self._api_key = api_key

    def new(self) -> Self:
        return type(self)(
            self._image,
            self._timeout,
            self._api_key,
            self._env_vars,
            working_dir=self._working_dir,
        )

    async def initialize(self) -> None:
        """Raises MissingExtra, and AgentConfigError without an API key."""
        try:
            import e2b  # noqa: F401  # pyright: ignore[reportUnusedImport]
        except ImportError as error:
            raise MissingExtra("e2b", "e2b") from error
        if not (self._api_key or os.environ.get("E2B_API_KEY")):
            raise AgentConfigError("E2BEnvironment: set api_key, or the variable E2B_API_KEY")

    async def _create(self) -> AsyncSandbox:
        from e2b import AsyncSandbox

        return await AsyncSandbox.create(
            self._image,
            timeout=math.ceil(self._timeout),
            envs=self._env_vars,
            api_key=self._api_key,
        )

    async def _kill(self, sandbox: AsyncSandbox) -> None:
        await sandbox.kill()

    async def _renew(self, sandbox: AsyncSandbox, seconds: float) -> None:
        await sandbox.set_timeout(math.ceil(seconds))

    async def _run(self, sandbox: AsyncSandbox, script: str, seconds: float) -> str:
        from e2b import CommandExitException

        try:
            result = await sandbox.commands.run(script, timeout=seconds)
        except CommandExitException as error:
            raise ToolError(f"The sandbox could not run the command: {error.stderr or error.stdout}") from error
        return result.stdout

    async def _read(self, sandbox: AsyncSandbox, path: str) -> AsyncGenerator[bytes]:
        from e2b import FileNotFoundException, InvalidArgumentException

        try:
            reader = await sandbox.files.read(path, format="stream")
        except FileNotFoundException as error:
            raise FileNotFoundError(path) from error
        except InvalidArgumentException as error:  # it is a directory
            raise ToolError(str(error)) from error

        async with reader:
            async for chunk in reader:
                yield chunk

    async def _write(self, sandbox: AsyncSandbox, path: str, data: bytes) -> None:
        await sandbox.files.write(path, data)  # pyright: ignore[reportUnknownMemberType]

    async def _has_ended(self, sandbox: AsyncSandbox, error: Exception) -> bool:
        from e2b import SandboxNotFoundException
        from e2b.exceptions import SandboxNotRunningException

        if isinstance(error, SandboxNotFoundException | SandboxNotRunningException):
            return True

        # A sandbox that ends while a command runs may also just end the stream of its output.
        try:
            return not await sandbox.is_running(request_timeout=_SECONDS_TO_ANSWER)
        except Exception:  # E2B can't be reached, or refuses the request: what failed first is more to the point
            return False
