"""Sandboxes that are containers of Docker or podman."""

from __future__ import annotations

import asyncio
import inspect
import logging
import socket
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from shlex import quote
from typing import Self
from uuid import uuid4

from greenroom.environments import guest
from greenroom.environments.container_engine import (
    DEFAULT_IMAGE,
    DEFAULT_IMAGE_TAG,
    ContainerEngine,
    ContainerSettings,
    in_thread,
)
from greenroom.environments.container_streams import ContainerStreams, open_streams
from greenroom.environments.guest_connection import GuestWriter
from greenroom.environments.guest_sandbox import GuestSandbox
from greenroom.environments.sandbox import SandboxLimits
from greenroom.errors import ToolError

WORKING_DIR = Path("/tmp/workspace")

_LOADER = """
import os

source = b""
while len(source) < {size}:
    source += os.read(0, {size} - len(source)) or os._exit(0)
exec(compile(source, "guest.py", "exec"))
"""
"""Reads the program from stdin: as an argument, code would see all of it in the list of processes."""

_log = logging.getLogger("greenroom.environments")
_removals: set[asyncio.Task[None]] = set()
"""Those that run: asyncio itself keeps only weak references."""


class ContainerSandbox(GuestSandbox):
    """Runs code in a container of Docker or podman, as an unprivileged user without capabilities. Needs
    `greenroom[container]`, and an image with Python 3.8 or newer as `python3`.

    The container has a read-only root file system, no network, and nothing of the host; `/tmp`, with the working
    directory, is in memory.

    image: never pulled in a run; `greenroom sandbox pull` does that.
    docker_path: the folder from which `greenroom sandbox build` makes the image, whose name then is
        `adk-code-executor:latest` by default.
    base_url: the engine's address, `unix:///…` or `tcp://…`. None: `DOCKER_HOST`, else the first that exists of the
        usual sockets of Docker and podman.
    network: the engine's default network, from which the host and its private networks may be reached, too.
    """

    seconds_to_start = 180.0  # when many start at once, they wait for each other
    counts_processes = False  # the kernel would count those of all containers, which have the same user

    def __init__(
        self,
        *,
        image: str | None = None,
        docker_path: str | Path | None = None,
        base_url: str | None = None,
        network: bool = False,
        limits: SandboxLimits | None = None,
    ) -> None:
        super().__init__(limits=limits)
        if docker_path is None:
            self.image = image or DEFAULT_IMAGE
        else:
            self.image = image or DEFAULT_IMAGE_TAG
        self._docker_path = docker_path
        self._network = network
        self._engine = ContainerEngine(base_url)
        self._container: _Container | None = None

    @property
    def working_dir(self) -> Path:
        return WORKING_DIR

    def new(self) -> Self:
        sandbox = type(self)(image=self.image, docker_path=self._docker_path, network=self._network, limits=self.limits)
        sandbox._engine = self._engine
        return sandbox

    async def _start(self) -> tuple[asyncio.StreamReader, GuestWriter]:
        settings = ContainerSettings(
            image=self.image,
            how_to_get_image=self._command_for_image(),
            code=_LOADER.format(size=len(_guest_source())),
            network=self._network,
            limits=self.limits,
        )
        name = f"greenroom-sandbox-{uuid4().hex}"
        container = _Container(name, in_thread(self._engine.start, name, settings))
        self._container = container

        connection = await asyncio.wrap_future(container.starting)
        reader, container.writer, container.streams = await open_streams(connection)
        container.writer.write(_guest_source())
        return reader, container.writer

    async def _kill(self) -> str:
        container = self._container
        self._container = None
        if container is None:
            return ""

        removal = asyncio.create_task(container.remove(self._engine))
        _removals.add(removal)
        removal.add_done_callback(_removals.discard)
        await asyncio.shield(removal)
        return container.complaint()

    def _command_for_image(self) -> str:
        if self._docker_path is None:
            return f"greenroom sandbox pull {quote(self.image)}"
        command = f"greenroom sandbox build {quote(str(self._docker_path))}"
        if self.image != DEFAULT_IMAGE_TAG:
            command += f" --tag {quote(self.image)}"
        return command


@dataclass
class _Container:
    name: str
    starting: Future[socket.socket]
    writer: asyncio.StreamWriter | None = None
    """None until the socket has been taken over."""

    streams: ContainerStreams | None = None

    async def remove(self, engine: ContainerEngine) -> None:
        """Waits for its start, which can't be interrupted, and removes it. Only logs if the engine refuses."""
        if self.starting.cancel():
            return

        try:
            connection = await asyncio.wrap_future(self.starting)
        except ToolError:  # which has been raised where it was started
            return

        try:
            await asyncio.wrap_future(in_thread(engine.remove, self.name))
        except ToolError as error:
            _log.warning("The container %s was not removed: %s", self.name, error)
        finally:
            if self.writer is None:
                connection.close()
            else:
                self.writer.close()

    def complaint(self) -> str:
        """Returns what the container has printed to stderr."""
        if self.streams is None:
            return ""
        return self.streams.stderr.decode(errors="replace").strip()


@cache
def _guest_source() -> bytes:
    return inspect.getsource(guest).encode()
