"""nginx and Caddy (Debian's packages) and Traefik in front of a server, with the configurations of docs/proxies.md."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import socket
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Literal, TypeAlias, get_args

import httpx
import yaml

from tests.processes import END_WITH_PARENT
from tests.requirements import skip_or_fail, traefik_path

ProxyName: TypeAlias = Literal[
    "nginx",
    "nginx that removes the prefix",
    "caddy",
    "caddy that removes the prefix",
    "traefik",
    "traefik that removes the prefix",
]
PROXIES: tuple[ProxyName, ...] = get_args(ProxyName)

PREFIX = "/agents"

_PAGE = Path(__file__).parents[1] / "docs" / "proxies.md"
_START_SECONDS = 30.0

_NGINX = """
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log stderr warn;
events {{ worker_connections 256; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen 127.0.0.1:{port};
{location}
    }}
}}
"""

_CADDY = """
{{
    admin off
    auto_https off
}}
{site}
"""


@contextlib.asynccontextmanager
async def reverse_proxy(name: ProxyName, upstream_port: int, folder: Path) -> AsyncGenerator[str]:
    """The URL of the server behind a proxy. folder: for its files."""
    program = name.split()[0]
    port = free_port()
    removes_prefix = name.endswith("removes the prefix")
    snippet = _snippet(program).replace("127.0.0.1:8000", f"127.0.0.1:{upstream_port}")
    if program == "nginx":
        if removes_prefix:
            snippet = snippet.replace(f"127.0.0.1:{upstream_port};", f"127.0.0.1:{upstream_port}/;")
        file = _written(folder / "nginx.conf", _NGINX.format(folder=folder, port=port, location=snippet))
        command = [_executable(program), "-e", "stderr", "-p", str(folder), "-c", str(file)]
    elif program == "caddy":
        if removes_prefix:
            snippet = snippet.replace("handle /", "handle_path /")
        site = snippet.replace("example.com", f"http://127.0.0.1:{port}")
        file = _written(folder / "caddy.conf", _CADDY.format(site=site))
        command = [_executable(program), "run", "--adapter", "caddyfile", "--config", str(file)]
    else:
        routing = yaml.safe_load(snippet.replace("example.com", "127.0.0.1"))
        del routing["http"]["routers"]["agents"]["tls"]
        if removes_prefix:
            routing["http"]["middlewares"]["agents-prefix"] = {"stripPrefix": {"prefixes": [PREFIX]}}
        entry_point = _snippet("traefik's entry point").replace("address: :443", f"address: 127.0.0.1:{port}")
        static = yaml.safe_load(entry_point)
        static["entryPoints"]["websecure"]["transport"]["lifeCycle"] = {"graceTimeOut": 0}
        static |= {
            "providers": {"file": {"filename": str(_written(folder / "routing.yaml", yaml.safe_dump(routing)))}},
            "global": {"checkNewVersion": False, "sendAnonymousUsage": False},
            "log": {"level": "WARN"},
        }
        file = _written(folder / "traefik.yaml", yaml.safe_dump(static))
        command = [traefik_path(), f"--configFile={file}"]
    homes = {name: str(folder) for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME")}
    process = await asyncio.create_subprocess_exec(*END_WITH_PARENT, *command, env={**os.environ, **homes})
    try:
        await until_it_listens(port, process)
        url = f"http://127.0.0.1:{port}{PREFIX}"
        if program == "traefik":
            await _until_it_knows_its_routes(url)
        yield url
    finally:
        if process.returncode is None:
            if program == "traefik":
                process.kill()  # its stop takes more than a second
            else:
                process.terminate()
        await process.wait()


def _executable(program: str) -> str:
    found = shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin")
    return found or skip_or_fail(f"There is no {program}; `make proxies` installs it")


def _written(file: Path, text: str) -> Path:
    file.write_text(text)
    return file


def _snippet(name: str) -> str:
    """A configuration that the documentation shows."""
    found = re.search(rf"<!-- tested: {name} -->\n```\w+\n(.*?)```", _PAGE.read_text(), re.DOTALL)
    assert found is not None
    return found[1]


async def _until_it_knows_its_routes(url: str) -> None:
    async with asyncio.timeout(_START_SECONDS), httpx.AsyncClient() as client:
        while (await client.get(f"{url}/livez")).status_code == 404:
            await asyncio.sleep(0.02)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def until_it_listens(port: int, process: asyncio.subprocess.Process) -> None:
    async with asyncio.timeout(_START_SECONDS):
        while True:
            assert process.returncode is None, "the proxy has ended; see the captured output"
            with contextlib.suppress(ConnectionRefusedError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                await writer.wait_closed()
                return
            await asyncio.sleep(0.02)
