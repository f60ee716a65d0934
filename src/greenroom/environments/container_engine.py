"""Docker and podman, by way of Docker's SDK, whose calls block."""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, TypeAlias, TypeVar, cast

from greenroom.environments.sandbox import SandboxLimits
from greenroom.errors import MissingExtra, ToolError

DEFAULT_IMAGE = "python:3.13-slim"
DEFAULT_IMAGE_TAG = "adk-code-executor:latest"
"""Name of images that are built from a folder. Source: ADK."""

OWNER_LABEL = "greenroom.sandbox.owner"
"""Label of our containers. Its value names the process that started the container."""

PYTHON = "python3"

_Client: TypeAlias = Any
"""`docker.APIClient`, which has no type hints."""

_P = ParamSpec("_P")
_R = TypeVar("_R")

_THREADS = ThreadPoolExecutor(4, thread_name_prefix="container-engine")
_TIMEOUT_SECONDS = 60
_UNPRIVILEGED = "65534:65534"
_SHARED_MEMORY_BYTES = 16 * 1024 * 1024
_OVERHEAD_BYTES = 64 * 1024 * 1024
"""Of the program inside, and shared memory."""

_NOT_WRITABLE = "ro,size=64m"
"""Podman copies what the image has there."""

_SECONDS_TO_END = 5.0
SECONDS_TO_START = 600.0
"""A container that isn't running after this time is not about to start."""

_SOCKETS = (
    "/var/run/docker.sock",
    "{run}/docker.sock",
    "/run/podman/podman.sock",
    "{run}/podman/podman.sock",
)

_log = logging.getLogger("greenroom.environments")


@dataclass(frozen=True, kw_only=True)
class ContainerSettings:
    """A container: what runs in it, and what it may use."""

    image: str
    how_to_get_image: str
    """A command."""

    code: str
    """Python code that is passed to `python3`."""

    network: bool
    limits: SandboxLimits
    """The disk is `/tmp`, the only folder that can be written to, apart from 16 MiB of `/dev/shm`."""


def in_thread(function: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> Future[_R]:
    """Calls a function in one of four threads."""
    return _THREADS.submit(function, *args, **kwargs)


class ContainerEngine:
    """A container engine that speaks Docker's API.

    base_url: `unix:///…` or `tcp://…`. None: `DOCKER_HOST`, else the first that
    exists of the usual sockets of Docker and podman.

    Its methods block: call them by `in_thread`. They raise ToolError with what the engine says.
    """

    def __init__(self, base_url: str | None = None) -> None:
        self._base_url = base_url
        self._api_version = "auto"
        """Asked for once, which takes podman longer than starting a container."""

        self._has_removed_leftovers = False

    def start(self, name: str, settings: ContainerSettings) -> socket.socket:
        """Starts a container, and returns the socket of its standard streams.

        The container's input ends with the socket, even if this process is killed, and the engine removes the container
        when its command has ended. The socket receives stdout and stderr as Docker's frames.
        """
        with self._client() as client:
            if not self._has_removed_leftovers:
                self._has_removed_leftovers = True
                _remove_leftovers(client)

            volumes = _volumes_of(client, settings)
            try:
                return _start(client, name, settings, volumes)
            except BaseException as error:
                _remove(client, name)
                if _says_that_python_is_missing(error):
                    raise ToolError(f"The image {settings.image} has no {PYTHON}, which a sandbox needs") from error
                raise

    def remove(self, name: str) -> None:
        """Kills and removes a container. Does nothing if it is gone."""
        with self._client() as client:
            _remove(client, name)

    def pull(self, image: str, on_status: Callable[[str], None]) -> None:
        """Pulls an image from its registry. on_status: called with what the engine reports."""
        with self._client(timeout_seconds=None) as client:
            _report(client.pull(image, stream=True, decode=True), on_status)

    def build(self, folder: Path, tag: str, on_status: Callable[[str], None]) -> None:
        """Builds an image from a folder that has a Dockerfile."""
        if not (folder / "Dockerfile").is_file():
            raise ToolError(f"There is no Dockerfile in {folder}")

        with self._client(timeout_seconds=None) as client:
            _report(client.build(path=str(folder), tag=tag, rm=True, forcerm=True, decode=True), on_status)

    @contextmanager
    def _client(self, *, timeout_seconds: int | None = _TIMEOUT_SECONDS) -> Generator[_Client]:
        try:
            from docker import APIClient
            from docker.errors import APIError, DockerException
            from requests import RequestException
        except ImportError:
            raise MissingExtra("container", "docker") from None

        address = self._address()
        try:
            client: _Client = cast("Any", APIClient)(address, version=self._api_version, timeout=timeout_seconds)
            self._api_version = client.api_version
            try:
                yield client
            finally:
                client.close()
        except APIError as error:
            raise ToolError(f"The container engine refuses: {error.explanation or error}") from error
        except (DockerException, RequestException) as error:
            raise _no_engine(address, str(error)) from error

    def _address(self) -> str:
        address = self._base_url or os.environ.get("DOCKER_HOST")
        if not address:
            run = os.environ.get("XDG_RUNTIME_DIR", "/run")
            paths = [path.format(run=run) for path in _SOCKETS]
            address = "unix://" + next((path for path in paths if os.path.exists(path)), paths[0])

        if not address.startswith(("unix://", "tcp://", "http://")):
            raise ToolError(
                f"A container sandbox needs an engine at unix://… or tcp://…, and can't use {address}. "
                "For another machine, forward a local socket to it with ssh -L."
            )
        if address.startswith("unix://") and not os.path.exists(address.removeprefix("unix://")):
            raise _no_engine(address, "there is no such socket")
        return address


def _no_engine(address: str, reason: str) -> ToolError:
    return ToolError(
        f"No container engine answers at {address}: {reason}. Start Docker or podman's service "
        "(`systemctl enable --now podman.socket`), and set DOCKER_HOST or base_url if it listens elsewhere."
    )


def _start(client: _Client, name: str, settings: ContainerSettings, volumes: Iterable[str]) -> socket.socket:
    # Files in memory count as memory. The program inside stops code that uses more than its own share.
    memory_bytes = settings.limits.memory_bytes + settings.limits.disk_bytes + _OVERHEAD_BYTES
    processes = settings.limits.processes + 1
    host_config = client.create_host_config(
        auto_remove=True,
        cap_drop=["ALL"],
        init=False,
        ipc_mode="private",
        log_config={"Type": "none"},  # else a container that prints fills the engine's disk
        mem_limit=memory_bytes,
        memswap_limit=memory_bytes,
        nano_cpus=int(settings.limits.cpus * 1e9),
        network_mode="bridge" if settings.network else "none",
        pids_limit=processes,
        read_only=True,
        security_opt=["no-new-privileges"],
        shm_size=_SHARED_MEMORY_BYTES,
        # Podman mounts writable /run and /var/tmp of any size where there is nothing else, engines also volumes.
        tmpfs={
            **dict.fromkeys(("/run", "/var/tmp", *volumes), _NOT_WRITABLE),
            "/tmp": f"size={settings.limits.disk_bytes},mode=1777,nosuid,nodev,exec",
        },
    )
    threads = str(max(1, round(settings.limits.cpus)))
    client.create_container(
        settings.image,
        name=name,
        entrypoint=[PYTHON],
        command=["-I", "-c", settings.code],
        environment={
            "HOME": "/tmp",
            "LANG": "C.UTF-8",
            "OMP_NUM_THREADS": threads,
            "OPENBLAS_NUM_THREADS": threads,
            "PYTHONDONTWRITEBYTECODE": "1",
            "TMPDIR": "/tmp",
            "USER": "sandbox",
        },
        healthcheck={"test": ["NONE"]},
        host_config=host_config,
        hostname="sandbox",
        labels={OWNER_LABEL: _owner()},
        stdin_open=True,
        stop_signal="SIGKILL",
        use_config_proxy=False,  # proxies of this user's Docker, in variables, with their passwords
        user=_UNPRIVILEGED,
        working_dir="/tmp",
    )
    _check_limits(client, name, Memory=memory_bytes, PidsLimit=processes)

    # Attached first, so that nothing of what it says is lost.
    connection = _attach(client, name)
    try:
        client.start(name)
    except BaseException:
        connection.close()
        raise

    connection.setblocking(False)
    return connection


def _attach(client: _Client, name: str) -> socket.socket:
    from docker.errors import APIError

    try:
        attached = client.attach_socket(name, params={"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1})
    except APIError as error:
        if error.response is not None:
            error.response.close()  # the SDK leaves the connection open
        raise
    return socket.socket(fileno=attached._sock.detach())


def _volumes_of(client: _Client, settings: ContainerSettings) -> Iterable[str]:
    """Returns the folders that the image declares as volumes. Raises ToolError if the image isn't there."""
    from docker.errors import ImageNotFound

    try:
        image: dict[str, Any] = client.inspect_image(settings.image)
    except ImageNotFound:
        raise ToolError(
            f"The image {settings.image} isn't there, and is not fetched in a run. "
            f"Get it with: {settings.how_to_get_image}"
        ) from None
    return image["Config"].get("Volumes") or ()


def _says_that_python_is_missing(error: BaseException) -> bool:
    """Recognizes the errors of runc, which Docker reports at the start and podman when something attaches."""
    return PYTHON in str(error) and ("not found" in str(error) or "no such file" in str(error))


def _check_limits(client: _Client, name: str, **wanted: int) -> None:
    """Raises ToolError if the engine has dropped limits, as without control groups. It does so silently."""
    kept: dict[str, Any] = client.inspect_container(name)["HostConfig"]
    dropped = [limit for limit, value in wanted.items() if kept.get(limit) != value]
    if dropped:
        raise ToolError(
            f"The container engine can't limit what a sandbox uses ({', '.join(dropped)}). Podman without root needs a "
            "system with control groups of version 2."
        )


def _remove(client: _Client, name: str) -> None:
    """Tries again for a while: while a container is ending by itself, engines refuse with various errors."""
    from docker.errors import APIError, NotFound

    deadline = time.monotonic() + _SECONDS_TO_END
    while True:
        try:
            client.remove_container(name, force=True, v=True)
            return
        except NotFound:
            return
        except APIError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.1)


def _remove_leftovers(client: _Client) -> None:
    """Removes containers whose process has ended without removing them, as after `kill -9`."""
    for container in client.containers(all=True, filters={"label": OWNER_LABEL}):
        if _is_left_over(container):
            _log.info("Removing the container %s of a process that has ended", container["Id"][:12])
            _remove(client, container["Id"])


def _is_left_over(container: dict[str, Any]) -> bool:
    host, _, process = container["Labels"][OWNER_LABEL].rpartition(" ")
    own_host, _, _ = _owner().rpartition(" ")
    if host == own_host:
        pid, _, started_at = process.partition("/")
        return _start_time(pid) != started_at

    # Of another machine or an earlier boot.
    age = time.time() - container["Created"]
    return container["State"] != "running" and age > SECONDS_TO_START


def _owner() -> str:
    """Names this process among those of all machines: `boot and pid namespace, pid/start time`."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        host = f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:  # not Linux
        host = socket.gethostname()
    return f"{host} {os.getpid()}/{_start_time(str(os.getpid()))}"


def _start_time(pid: str) -> str | None:
    """Returns when a process has started, in clock ticks; "0" elsewhere than on Linux. None if it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (FileNotFoundError, ProcessLookupError):
        pass
    if os.path.exists("/proc/self"):
        return None

    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return None
    except OSError:
        pass
    return "0"


def _report(lines: Iterable[dict[str, Any]], on_status: Callable[[str], None]) -> None:
    for line in lines:
        if "error" in line:
            raise ToolError(f"The container engine refuses: {line['error']}")
        status = line.get("status") or line.get("stream") or ""
        if status.strip():
            on_status(" ".join(filter(None, (line.get("id"), status.strip(), line.get("progress")))))
