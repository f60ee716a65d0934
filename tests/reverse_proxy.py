"""nginx and Caddy (Debian's packages) in front of a server, with the configurations of docs/http.md."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import socket
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Literal, TypeAlias

from tests.processes import END_WITH_PARENT
from tests.requirements import skip_or_fail

ProxyName: TypeAlias = Literal["nginx", "nginx that removes the prefix", "caddy", "caddy that removes the prefix"]
PROXIES: tuple[ProxyName, ...] = (
    "nginx",
    "nginx that removes the prefix",
    "caddy",
    "caddy that removes the prefix",
)

PREFIX = "/agents"

_PAGE = Path(__file__).parents[1] / "docs" / "http.md"
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
    executable = shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin")
    if executable is None:
        skip_or_fail(f"There is no {program}; `make proxies` installs it")
    port = free_port()
    removes_prefix = name.endswith("removes the prefix")
    snippet = _snippet(program).replace("127.0.0.1:8000", f"127.0.0.1:{upstream_port}")
    file = folder / f"{program}.conf"
    if program == "nginx":
        if removes_prefix:
            snippet = snippet.replace(f"127.0.0.1:{upstream_port};", f"127.0.0.1:{upstream_port}/;")
        file.write_text(_NGINX.format(folder=folder, port=port, location=snippet))
        command = [executable, "-e", "stderr", "-p", str(folder), "-c", str(file)]
    else:
        if removes_prefix:
            snippet = snippet.replace("handle /", "handle_path /")
        site = snippet.replace("example.com", f"http://127.0.0.1:{port}")
        file.write_text(_CADDY.format(site=site))
        command = [executable, "run", "--adapter", "caddyfile", "--config", str(file)]
    homes = {name: str(folder) for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME")}
    process = await asyncio.create_subprocess_exec(*END_WITH_PARENT, *command, env={**os.environ, **homes})
    try:
        await until_it_listens(port, process)
        yield f"http://127.0.0.1:{port}{PREFIX}"
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


def _snippet(program: str) -> str:
    """The configuration that the documentation shows."""
    found = re.search(rf"<!-- tested: {program} -->\n```\w+\n(.*?)```", _PAGE.read_text(), re.DOTALL)
    assert found is not None
    return found[1]


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
