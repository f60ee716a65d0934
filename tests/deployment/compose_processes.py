"""The services of a `compose.yaml` as processes of this machine, each on a loopback address of its own.

Commands, variables, configurations, health checks, the order of the start and restart policies are those of the file
and of the Dockerfile. Of the images, the PostgreSQL of the tests stands in for `postgres`, Debian's Caddy for `caddy`, and
servers of the tests for `minio` and `opentelemetry-collector`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import yaml

from tests.cli.compose_file import read_compose
from tests.postgres.postgres_server import PostgresServer, started_server
from tests.processes import END_WITH_PARENT, children_of
from tests.requirements import skip_or_fail

_REPOSITORY = Path(__file__).parents[2]
_TESTS = Path(__file__).parent
_CACHE_OF_IMAGE = ("HOME", "PATH", "PYTHONDONTWRITEBYTECODE")
"""Variables of the Dockerfile that say where its image has its files."""

_RESTARTED = ("always", "unless-stopped", "on-failure")
_FIRST_RESTART_SECONDS = 0.1
_HEALTHY_SECONDS = 60.0
_STEADY_SECONDS = 10.0
"""An engine doubles the pause between restarts, and begins anew after a run of this length."""


@cache
def _python_with_moto() -> str:
    """The interpreter of an environment in uv's cache."""
    uv = os.environ.get("UV") or shutil.which("uv", path=f"{os.environ['PATH']}:{_REPOSITORY}/.uv/bin")
    if uv is None:
        skip_or_fail("needs uv, which fetches moto")
    command = [uv, "tool", "run", "--from", "moto[server]==5.1.*", "python", "-c", "import sys; print(sys.executable)"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


class Program(NamedTuple):
    command: list[str]
    environment: dict[str, str]


class Topology:
    """The services of a folder's `compose.yaml`. profiles: of those to start."""

    def __init__(self, folder: Path, scratch: Path, network: str, *, profiles: tuple[str, ...] = ()) -> None:
        """network: the first three numbers of the services' addresses."""
        self.folder = folder
        self.scratch = scratch
        self.dot_env = dict(
            line.split("=", 1) for line in (folder / ".env").read_text().splitlines() if line and line[0] != "#"
        )
        self.compose: Any = read_compose(folder, **self.dot_env)
        self.addresses = {name: f"{network}.{number}" for number, name in enumerate(self.compose["services"], start=1)}
        self.services = {
            name: _service(self, name, content)
            for name, content in self.compose["services"].items()
            if set(content.get("profiles", profiles)) <= set(profiles)
        }
        self.url = self.dot_env["SITE_ADDRESS"]

    @property
    def database_uri(self) -> str:
        """That of the servers."""
        return self.resolve(self.compose["services"]["greenroom-1"]["environment"]["GREENROOM_SESSION_SERVICE"])

    @property
    def collector(self) -> Collector:
        found = self.services["collector"]
        assert isinstance(found, Collector)
        return found

    async def start(self) -> None:
        """Starts all services, each when those that it depends on are as it wants them."""
        started = {name: asyncio.Event() for name in self.services}

        async def start(service: Service) -> None:
            wanted = service.content.get("depends_on", {})
            conditions = wanted if isinstance(wanted, Mapping) else {other: {} for other in wanted}
            for name, condition in conditions.items():
                await started[name].wait()
                if condition.get("condition") == "service_healthy":
                    await self.services[name].wait_until_healthy()
            await service.start()
            started[service.name].set()

        async with asyncio.TaskGroup() as group:
            for service in self.services.values():
                group.create_task(start(service))
        await asyncio.gather(*(service.wait_until_healthy() for service in self.services.values()))

    async def close(self) -> None:
        for service in self.services.values():
            await service.close()

    def resolve(self, text: str) -> str:
        """Replaces the names of services, where a host stands, by their addresses."""
        for name, address in self.addresses.items():
            text = re.sub(rf"(?:(?<=//)|(?<=@)|(?<=\s)){re.escape(name)}(?=[:/])", address, text)
        return text


class Service(ABC):
    """A service, which is started again as its restart policy says."""

    def __init__(self, topology: Topology, name: str, content: Any) -> None:
        self.topology = topology
        self.name = name
        self.content = content
        self.address = topology.addresses[name]
        self.folder = topology.scratch / name
        self.folder.mkdir(parents=True)
        self.starts = 0
        self._process: asyncio.subprocess.Process | None = None
        self._watch: asyncio.Task[None] | None = None
        self._may_start = asyncio.Event()
        self._may_start.set()

    @abstractmethod
    async def is_healthy(self) -> bool:
        """Runs the health check of the file or of the image; without one, connects."""

    def program(self) -> Program:
        """Returns the command of the image. A service that starts its processes otherwise has none."""
        raise NotImplementedError(self.name)

    async def start(self) -> None:
        await self._start()
        self._watch = asyncio.create_task(self._keep_running())

    async def kill(self, *, down_seconds: float = 0.0) -> None:
        """Ends it by SIGKILL. down_seconds: the time until its machine lets it start again."""
        before = self.starts
        self._may_start.clear()
        await self._kill()
        await asyncio.sleep(down_seconds)
        self._may_start.set()
        async with asyncio.timeout(_HEALTHY_SECONDS):
            while self.starts == before:
                await asyncio.sleep(0.01)
        await self.wait_until_healthy()

    async def replace(self) -> None:
        """Stops it and starts it again, as an update does. Fails if it doesn't end in its time, or not by itself."""
        assert self._watch is not None
        assert self._process is not None
        self._watch.cancel()
        self._process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(float(self.content["stop_grace_period"].removesuffix("s"))):
            assert await self._process.wait() == 0, f"{self.name} has ended:\n{self.log()[-2000:]}"
        await self.start()
        await self.wait_until_healthy()

    async def wait_until_healthy(self) -> None:
        try:
            async with asyncio.timeout(_HEALTHY_SECONDS):
                while not await self.is_healthy():
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"{self.name} is not healthy:\n{self.log()[-2000:]}") from None

    def log(self) -> str:
        path = self.folder / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    async def close(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
        await self._kill()

    async def _keep_running(self) -> None:
        pause = _FIRST_RESTART_SECONDS
        while True:
            started_at = time.monotonic()
            await self._wait()
            if self.content.get("restart") not in _RESTARTED:
                return
            pause = _FIRST_RESTART_SECONDS if time.monotonic() - started_at > _STEADY_SECONDS else pause * 2
            await asyncio.sleep(pause)
            await self._may_start.wait()
            await self._start()

    async def _start(self) -> None:
        command, environment = self.program()
        with (self.folder / "log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *END_WITH_PARENT, *command, cwd=self.folder, env={**os.environ, **environment},
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        self.starts += 1

    async def _wait(self) -> None:
        assert self._process is not None
        await self._process.wait()

    async def _kill(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            await self._process.wait()

    def config(self, name: str) -> Path:
        """Writes a config of the file, with the addresses of services."""
        path = self.folder / f"{name}.config"
        path.write_text(self.topology.resolve(self.topology.compose["configs"][name]["content"]))
        return path

    async def _accepts_connections(self, port: int) -> bool:
        try:
            _, writer = await asyncio.open_connection(self.address, port)
        except OSError:
            return False
        writer.close()
        return True


class _Greenroom(Service):
    """The image of the Dockerfile, with this environment's Python."""

    def program(self) -> Program:
        environment = self.topology.dot_env | self._image_environment() | self._environment()
        entrypoint, *rest = [*self._instruction("ENTRYPOINT"), *self._instruction("CMD")]
        assert entrypoint == "greenroom"
        return Program([sys.executable, "-m", "greenroom", *map(self._path, rest)], environment)

    async def is_healthy(self) -> bool:
        command = [word.replace("127.0.0.1", self.address) for word in self._instruction("CMD", "HEALTHCHECK")]
        assert command[0] == "python"
        checking = await asyncio.create_subprocess_exec(
            sys.executable, *command[1:], env=self.program().environment, stderr=asyncio.subprocess.DEVNULL
        )
        return await checking.wait() == 0

    def _environment(self) -> dict[str, str]:
        return {name: self._path(self.topology.resolve(value)) for name, value in self.content["environment"].items()}

    def _image_environment(self) -> dict[str, str]:
        found = re.search(r"^ENV ((?:.*\\\n)*.*)$", self._dockerfile(), re.MULTILINE)
        assert found is not None
        variables = dict(word.split("=", 1) for word in found[1].replace("\\\n", " ").split())
        variables["GREENROOM_HOST"] = variables["GREENROOM_HOST"].replace("0.0.0.0", self.address)
        return {name: self._path(value) for name, value in variables.items() if name not in _CACHE_OF_IMAGE}

    def _instruction(self, name: str, outer: str | None = None) -> list[str]:
        start = f"^{outer} .*\\\\\n +" if outer else "^"
        found = re.search(rf"{start}{name} (\[.*\])$", self._dockerfile(), re.MULTILINE)
        assert found is not None, name
        return json.loads(found[1])

    def _dockerfile(self) -> str:
        return (self.topology.folder / "Dockerfile").read_text()

    def _path(self, text: str) -> str:
        """The path in this file system of one in the container."""
        for config in self.content.get("configs", ()):
            if text == config["target"]:
                return str(self.config(config["source"]))
        return text.replace("/srv/agents", str(self.topology.folder))


class _Caddy(Service):
    def program(self) -> Program:
        caddy = shutil.which("caddy")
        if caddy is None:
            skip_or_fail("There is no caddy; `make proxies` installs it")
        (config,) = self.content["configs"]
        file = self.config(config["source"])
        file.write_text("{\n    admin off\n}\n" + file.read_text())
        folders = dict.fromkeys(("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"), str(self.folder))
        command = [caddy, "run", "--adapter", "caddyfile", "--config", str(file)]
        return Program(command, {**folders, **self.content["environment"]})

    async def is_healthy(self) -> bool:
        return await self._accepts_connections(urlsplit(self.topology.url).port or 80)


class _Postgres(Service):
    """Has the user, the database and the password of the file's variables."""

    def __init__(self, topology: Topology, name: str, content: Any) -> None:
        super().__init__(topology, name, content)
        self._server: PostgresServer | None = None

    async def _start(self) -> None:
        if self._server is None:
            self._server = await asyncio.to_thread(self._first_start)
        else:
            await asyncio.to_thread(self._server.start)
        self.starts += 1

    def _first_start(self) -> PostgresServer:
        # It keeps what is committed when its processes are killed, but not when the machine is.
        server = started_server(
            f"listen_addresses={self.address}", "fsync=off", "full_page_writes=off", "max_connections=100"
        )
        variables: dict[str, str] = self.content["environment"]
        user = variables["POSTGRES_USER"]
        server.run_sql(
            f"CREATE ROLE {user} LOGIN SUPERUSER PASSWORD '{variables['POSTGRES_PASSWORD']}'",
            f"CREATE DATABASE {variables['POSTGRES_DB']} OWNER {user}",
        )
        with (server.folder / "data" / "pg_hba.conf").open("a") as access:
            access.write("host all all 127.0.0.0/8 scram-sha-256\n")
        server.run_sql("SELECT pg_reload_conf()")
        return server

    async def is_healthy(self) -> bool:
        kind, program, *options = self.content["healthcheck"]["test"]
        assert (kind, program) == ("CMD", "pg_isready")
        assert self._server is not None
        command = [word.replace("127.0.0.1", self.address) for word in options]
        checking = await asyncio.create_subprocess_exec(
            self._server.program(program), *command, stdout=asyncio.subprocess.DEVNULL
        )
        return await checking.wait() == 0

    async def _wait(self) -> None:
        assert self._server is not None
        while self._server.is_running:
            await asyncio.sleep(0.02)

    async def _kill(self) -> None:
        """Ends all its processes at once, as a container's end does."""
        if self._server is not None and self._server.is_running:
            pid = self._server.pid
            for one in (pid, *children_of(pid)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(one, signal.SIGKILL)
            while self._server.is_running:
                await asyncio.sleep(0.01)

    async def close(self) -> None:
        await super().close()
        if self._server is not None:
            await asyncio.to_thread(self._server.remove)


class _ObjectStore(Service):
    def program(self) -> Program:
        bucket = re.search(r"mkdir -p /data/(\w+) && exec minio server /data", " ".join(self.content["entrypoint"]))
        assert bucket is not None
        arguments = [self.address, "9000", str(self.folder / "objects"), bucket[1]]
        return Program([_python_with_moto(), str(_TESTS / "object_store.py"), *arguments], {})

    async def is_healthy(self) -> bool:
        return await self._accepts_connections(9000)


class Collector(Service):
    def program(self) -> Program:
        (config,) = self.content["configs"]
        content: Any = yaml.safe_load(self.config(config["source"]).read_text())
        self.port = content["receivers"]["otlp"]["protocols"]["http"]["endpoint"].rpartition(":")[2]
        file = str(_TESTS / "collector.py")
        return Program([sys.executable, file, self.address, self.port, str(self.folder / "spans")], {})

    def spans(self) -> list[str]:
        """The names of those that it has received."""
        path = self.folder / "spans"
        return path.read_text().splitlines() if path.exists() else []

    async def is_healthy(self) -> bool:
        return await self._accepts_connections(int(self.port))


_KINDS: dict[str, type[Service]] = {
    "greenroom-agents": _Greenroom,
    "docker.io/library/caddy": _Caddy,
    "docker.io/library/postgres": _Postgres,
    "docker.io/minio/minio": _ObjectStore,
    "docker.io/otel/opentelemetry-collector": Collector,
}


def _service(topology: Topology, name: str, content: Any) -> Service:
    return _KINDS[re.sub(r":[^/]*$", "", content["image"])](topology, name, content)


@contextlib.asynccontextmanager
async def running(topology: Topology) -> AsyncGenerator[Topology]:
    try:
        await topology.start()
        yield topology
    finally:
        await topology.close()
