"""The servers and the load balancer of `greenroom deploy compose`, as processes on one PostgreSQL."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncGenerator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from greenroom.cli import deploy
from greenroom.client.async_client import AsyncClient
from tests.cli.compose_file import read_compose
from tests.processes import END_WITH_PARENT
from tests.replicas.requests import texts
from tests.replicas.servers import AGENTS, APP, USER, Server, Servers
from tests.requirements import skip_or_fail
from tests.reverse_proxy import free_port, until_it_listens

_GIVEN = ("GREENROOM_SESSION_SERVICE", "GREENROOM_ARTIFACT_SERVICE", "GREENROOM_GRACE_SECONDS")
"""Variables in place of which `Servers` passes flags."""


@pytest.mark.parametrize("end", ["kill", "stop"])
async def test_a_run_survives_the_end_of_its_server(servers: Servers, tmp_path: Path, end: str) -> None:
    shutil.copytree(AGENTS, tmp_path / "served", ignore=shutil.ignore_patterns(".*"))
    deploy.compose(tmp_path / "served")
    compose = read_compose(tmp_path / "served")
    (tmp_path / "webhooks.toml").write_text(compose["configs"]["webhooks"]["content"])
    environment: dict[str, Any] = compose["services"]["greenroom-1"]["environment"]
    environment = {name: value for name, value in environment.items() if name not in _GIVEN}
    environment["GREENROOM_WEBHOOK_SECRETS"] = str(tmp_path / "webhooks.toml")

    first = await servers.start(agents=tmp_path / "served", **environment)
    second = await servers.start(agents=tmp_path / "served", **environment)
    await servers.wait_until_shared(first, second)
    key = await servers.key_of(first)
    caddyfile: str = compose["configs"]["caddy"]["content"]
    async with _load_balancer(caddyfile, first, second, tmp_path) as url, AsyncClient(url) as client:
        await client.create_session(app_name=APP, user_id=USER, session_id=key.session_id)
        run = partial(client.run, app_name=APP, user_id=USER, session_id=key.session_id)
        stream = await run(message="slow 30", streaming=True)
        await anext(aiter(stream))
        await (first.kill() if end == "kill" else first.stop())
        await stream.wait()
        assert stream.run is not None
        assert stream.run.status == "succeeded"

        # From then on, the other server answers all.
        for number in range(6):
            await (await run(message=f"hello {number}")).wait()
        log = (await second.http.get(f"/apps/{APP}/users/{USER}/sessions/{key.session_id}/events")).json()
    expected = ["".join(f"word{number} " for number in range(30)), *(f"You said hello {number}" for number in range(6))]
    assert [text for text in texts(log["events"]) if text in expected] == expected


@contextlib.asynccontextmanager
async def _load_balancer(caddyfile: str, first: Server, second: Server, folder: Path) -> AsyncGenerator[str]:
    """Caddy with the written configuration. Returns its URL."""
    caddy = shutil.which("caddy")
    if caddy is None:
        skip_or_fail("There is no caddy; `make proxies` installs it")
    for name, server in (("greenroom-1:8000", first), ("greenroom-2:8000", second)):
        assert name in caddyfile
        caddyfile = caddyfile.replace(name, server.url.removeprefix("http://"))
    file = folder / "Caddyfile"
    file.write_text("{\n    admin off\n}\n" + caddyfile)

    port = free_port()
    url = f"http://127.0.0.1:{port}"
    folders = {name: str(folder) for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME")}
    command = [*END_WITH_PARENT, caddy, "run", "--adapter", "caddyfile", "--config", str(file)]
    process = await asyncio.create_subprocess_exec(
        *command, env={**os.environ, **folders, "SITE_ADDRESS": url}, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        await until_it_listens(port, process)
        yield url
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
