"""Containers as sandboxes: Docker's SDK, podman and runc."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from greenroom.environments import container_engine
from greenroom.environments.container import ContainerSandbox
from greenroom.environments.container_engine import DEFAULT_IMAGE, OWNER_LABEL, ContainerEngine
from greenroom.environments.default import default_sandbox
from greenroom.environments.process import ExecutionResult
from greenroom.environments.sandbox import SandboxLimits
from greenroom.errors import MissingExtra, ToolError
from greenroom.testing.contracts.sandbox import *  # noqa: F403
from tests.environments.container_image import write_root_file_system
from tests.environments.podman import IMAGE, IMAGE_WITHOUT_PYTHON, PodmanService
from tests.server.serving import until


@pytest.fixture
async def sandbox(podman: PodmanService) -> AsyncIterator[ContainerSandbox]:
    sandbox = ContainerSandbox(image=IMAGE, base_url=podman.uri)
    yield sandbox
    await sandbox.close()
    assert podman.containers() == []


async def test_it_is_confined_by_the_engine_too(sandbox: ContainerSandbox, podman: PodmanService) -> None:
    """Beside what the program inside forbids itself."""
    await sandbox.initialize()
    (name,) = podman.containers()
    seen = podman.run("exec", name, "python3", "-c", "print(open('/proc/1/status').read())")
    status = dict(line.split(":\t") for line in seen.splitlines() if ":\t" in line)
    assert status["Uid"].split() == ["65534"] * 4
    assert {status[f"Cap{kind}"] for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {"0" * 16}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")

    found = podman.run("inspect", name, "--format", "{{json .HostConfig}}")
    for setting in ('"NetworkMode":"none"', '"ReadonlyRootfs":true', '"PidsLimit":', '"Memory":872415232'):
        assert setting in found


async def test_an_engine_that_drops_limits_is_refused(podman: PodmanService) -> None:
    podman.run(
        "run",
        "--detach",
        "--name=limited",
        "--pids-limit=9",
        "--network=none",
        "--stop-signal=KILL",
        IMAGE,
        "sleep",
        "99",
    )
    with ContainerEngine(podman.uri)._client() as client:
        container_engine._check_limits(client, "limited", PidsLimit=9)
        with pytest.raises(ToolError, match=r"can't limit what a sandbox uses \(Memory\)"):
            container_engine._check_limits(client, "limited", PidsLimit=9, Memory=2**29)
    podman.run("rm", "--force", "--time=0", "limited")


async def test_it_is_the_default_where_there_is_no_bubblewrap(
    podman: PodmanService, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("GREENROOM_CACHE_DIR", str(tmp_path))  # nor is there Pyodide
    monkeypatch.setenv("DOCKER_HOST", podman.uri)
    with pytest.raises(ToolError, match=f"bubblewrap.*greenroom sandbox pull {DEFAULT_IMAGE}"):
        await default_sandbox()

    podman.run("tag", IMAGE, f"docker.io/library/{DEFAULT_IMAGE}")
    try:
        sandbox = await default_sandbox(limits=SandboxLimits(processes=9))
        assert isinstance(sandbox, ContainerSandbox)
        assert (sandbox.is_running, sandbox.limits.processes) == (False, 9)
        assert podman.containers() == []
    finally:
        podman.run("untag", IMAGE, f"docker.io/library/{DEFAULT_IMAGE}")


async def test_it_has_no_network_but_where_it_is_wanted(sandbox: ContainerSandbox, podman: PodmanService) -> None:
    with_network = ContainerSandbox(image=IMAGE, base_url=podman.uri, network=True)
    try:
        with socket.create_server(("0.0.0.0", 0)) as server:
            address = ("host.containers.internal", server.getsockname()[1])
            code = f"import socket\nsocket.create_connection({address}, 5)"
            assert (await sandbox.run_python(code)).exit_code == 1
            assert await with_network.run_python(code) == ExecutionResult()
    finally:
        await with_network.close()


async def test_only_its_own_folders_can_be_written_to(sandbox: ContainerSandbox) -> None:
    """Podman would mount others that can be, without a limit."""
    result = await sandbox.execute(
        "for d in /run /var/tmp /usr /dev; do touch $d/x 2>&1; done; touch /tmp/x /dev/shm/x"
    )
    assert result.stdout.count("Read-only file system") + result.stdout.count("Permission denied") == 4
    assert result.exit_code == 0


async def test_it_has_no_proxies_of_the_servers_user(
    sandbox: ContainerSandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The SDK would set them as variables, passwords included."""
    proxies = {"default": {"httpProxy": "http://user:password@proxy.invalid"}}
    (tmp_path / "config.json").write_text(json.dumps({"proxies": proxies}))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    assert "proxy" not in (await sandbox.execute("env")).stdout.lower()


async def test_an_image_of_ones_own_runs_whatever_its_dockerfile_says(podman: PodmanService, tmp_path: Path) -> None:
    write_root_file_system(tmp_path / "root.tar")
    (tmp_path / "Dockerfile").write_text(
        'FROM scratch\nADD root.tar /\nRUN ["mkdir", "-m", "777", "/data"]\nVOLUME /data\n'
        'ENTRYPOINT ["false"]\nUSER 0\nWORKDIR /nowhere\nHEALTHCHECK CMD touch /tmp/healthy\n'
    )
    engine = ContainerEngine(podman.uri)
    said: list[str] = []
    await asyncio.to_thread(engine.build, tmp_path, "localhost/own:1", said.append)
    assert any("FROM scratch" in line for line in said)
    sandbox = ContainerSandbox(image="localhost/own:1", base_url=podman.uri)
    result = await sandbox.execute("id -u; touch /data/x")
    await sandbox.close()
    assert result.stdout == "65534\n"
    assert "Read-only file system" in result.stderr


@pytest.mark.parametrize(
    ("image", "base_url", "complaint"),
    [
        ("nothing:1", None, r"nothing:1 isn't there.*greenroom sandbox pull nothing:1"),
        (IMAGE_WITHOUT_PYTHON, None, "has no python3"),
        ("BAD NAME", None, "refuses"),
        (IMAGE, "unix:///nowhere.sock", "No container engine answers at unix:///nowhere.sock.*Start Docker or podman"),
        (IMAGE, "ssh://host", "can't use ssh://host"),
    ],
)
async def test_a_sandbox_that_cannot_start_says_what_to_do(
    podman: PodmanService, image: str, base_url: str | None, complaint: str
) -> None:
    sandbox = ContainerSandbox(image=image, base_url=base_url or podman.uri)
    with pytest.raises(ToolError, match=complaint):
        await sandbox.initialize()
    await sandbox.close()
    assert podman.containers() == []


async def test_the_sdk_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "docker", None)
    with pytest.raises(MissingExtra, match=r"greenroom\[container\]"):
        await ContainerSandbox(image=IMAGE).initialize()


@pytest.mark.parametrize("seconds", [0.0, 0.02, 0.1, 0.2, 0.3])
async def test_a_start_that_is_cancelled_leaves_no_container(podman: PodmanService, seconds: float) -> None:
    sandbox = ContainerSandbox(image=IMAGE, base_url=podman.uri)
    starting = asyncio.create_task(sandbox.initialize())
    await asyncio.sleep(seconds)
    starting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await starting
    await sandbox.close()
    await until(lambda: podman.containers() == [])


async def test_many_start_in_few_threads(podman: PodmanService) -> None:
    sandboxes = [ContainerSandbox(image=IMAGE, base_url=podman.uri) for _ in range(8)]
    try:
        results = await asyncio.gather(*(sandbox.run_python(f"print({n})") for n, sandbox in enumerate(sandboxes)))
        assert [result.stdout for result in results] == [f"{n}\n" for n in range(8)]
        threads = [thread for thread in threading.enumerate() if thread.name.startswith("container-engine")]
        assert len(threads) <= 4
    finally:
        await asyncio.gather(*(sandbox.close() for sandbox in sandboxes))
    assert podman.containers() == []


async def test_a_container_that_others_remove_is_started_again(
    sandbox: ContainerSandbox, podman: PodmanService
) -> None:
    await sandbox.write_file("a.txt", "x")
    running = asyncio.create_task(sandbox.execute("sleep 60"))
    podman.run("rm", "--all", "--force", "--time=0")
    result = await running
    assert (result.exit_code, "Its files and variables are gone" in result.stderr) == (137, True)
    assert await sandbox.list_files() == []


_PROGRAM = """
import asyncio, sys
from greenroom.environments.container import ContainerSandbox

async def main():
    sandbox = ContainerSandbox(image=sys.argv[1], base_url=sys.argv[2])
    await sandbox.initialize()
    print("ready", flush=True)
    await sandbox.execute("sleep 1000")

asyncio.run(main())
"""


async def test_a_container_ends_with_a_server_that_is_killed(podman: PodmanService) -> None:
    command = [sys.executable, "-c", _PROGRAM, IMAGE, podman.uri]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert await process.stdout.readline() == b"ready\n"
    assert len(podman.containers()) == 1
    process.kill()
    await process.wait()
    await until(lambda: podman.containers() == [])


async def test_leftovers_of_servers_that_have_ended_are_removed_at_the_next_start(
    podman: PodmanService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the engine was stopped at the same time as the server."""

    def start(name: str, owner: str) -> None:
        options = [f"--name={name}", f"--label={OWNER_LABEL}={owner}", "--network=none", "--stop-signal=KILL"]
        podman.run("run", "--detach", *options, IMAGE, "sleep", "100")

    own = container_engine._owner()
    host, _, process = own.rpartition(" ")
    ended = await asyncio.create_subprocess_exec("true")
    await ended.wait()
    start("own", own)
    start("of-an-ended-process", f"{host} {ended.pid}/1")
    start("of-an-earlier-process-with-our-id", f"{host} {os.getpid()}/1")
    start("of-another-machine", f"another-boot {process}")
    start("stopped", f"another-boot {process}")
    podman.run("stop", "--time=0", "stopped")

    sandbox = ContainerSandbox(image=IMAGE, base_url=podman.uri)
    try:
        await sandbox.initialize()
        await sandbox.close()
        assert podman.containers() == ["own", "of-another-machine", "stopped"]

        monkeypatch.setattr(container_engine, "SECONDS_TO_START", 0.0)
        sandbox = ContainerSandbox(image=IMAGE, base_url=podman.uri)
        await sandbox.initialize()
        await sandbox.close()
        assert podman.containers() == ["own", "of-another-machine"]
    finally:
        podman.run("rm", "--all", "--force", "--time=0")
