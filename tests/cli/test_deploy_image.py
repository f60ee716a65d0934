"""The image of `greenroom deploy docker`, built and run by podman."""

from __future__ import annotations

import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from greenroom.models.local import files as local_files
from tests.cli.conftest import Cli
from tests.environments.container_image import write_root_file_system
from tests.environments.podman import PodmanService
from tests.environments.wheels import write_wheels

_PYTHON_IMAGE = "localhost/greenroom-tests:python"
_IMAGE = "localhost/greenroom-tests:agents"
_NAME = "agents"
_START_SECONDS = 60.0
_WEATHER = Path(__file__).parents[2] / "examples" / "weather"
_LARGEST_MB = 300
"""Limit of what the image adds to its base. The local model's library is the largest part."""

_DATA = "--volume=agents:/srv/agents/.greenroom"
_OPTIONS = (
    f"--name={_NAME}",
    "--detach",
    "--read-only",
    "--read-only-tmpfs=false",
    "--tmpfs=/tmp",
    "--cap-drop=ALL",
    "--security-opt=no-new-privileges",
    _DATA,
)


@pytest.fixture
def image(cli: Cli, podman: PodmanService, tmp_path: Path) -> Iterator[str]:
    """Built from the written files. No registry can be reached: this machine's files are the base image."""
    folder = tmp_path / "served"
    cli("init", str(folder / "desk"), "--template", "workflow")
    shutil.copytree(_WEATHER, folder / "weather", ignore=shutil.ignore_patterns("__pycache__", ".*"))
    done = cli("deploy", "docker", str(folder))
    assert done.returncode == 0, done.stderr

    requirements = folder / "requirements.txt"
    write_wheels(folder / "wheels", requirements.read_text().strip())
    requirements.write_text(f"--no-index\n{requirements.read_text()}")
    root = tmp_path / "root.tar"
    write_root_file_system(root, with_pip=True)
    podman.run("import", "--quiet", str(root), _PYTHON_IMAGE)
    base = f"PYTHON_IMAGE={_PYTHON_IMAGE}"
    podman.run("build", "--format=docker", "--network=none", f"--build-arg={base}", "--tag", _IMAGE, str(folder))
    yield _IMAGE
    podman.run("rm", "--all", "--force", "--time=0")


@pytest.mark.timeout(300)
def test_the_image_serves_as_an_unprivileged_user(image: str, podman: PodmanService) -> None:
    key = podman.run("run", "--rm", _DATA, image, "keys", "create", "/srv/agents", "--user", "ada").strip()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    model = local_files.pull("smollm2-135m")
    mounted = f"--volume={model}:/srv/agents/.greenroom/models/models/{model.name}:ro"
    network = f"--env=GREENROOM_PORT={port}"  # in the host's network: see `podman.py`
    podman.run("run", *_OPTIONS, mounted, network, image)

    with _client(port, key) as client:
        _wait_until_healthy(podman)
        assert client.post("/apps/desk/users/ada/sessions/s1").status_code == 200
        assert "Accepted: 2 lamps." in _run(client, "desk", "2 lamps")
        assert client.post("/apps/weather/users/ada/sessions/s1").status_code == 200
        assert "light snow" in _run(client, "weather", "What is the weather in Oslo?")
        assert client.get("/list-apps", headers={"Authorization": ""}).status_code == 401

    added = _size_mb(podman, image) - _size_mb(podman, _PYTHON_IMAGE)
    print(f"the image adds {added:.0f} MB to its base")
    assert added < _LARGEST_MB

    assert podman.run("exec", _NAME, "id", "-u").strip() == "10001"
    for place in ("/", "/srv/agents", "/opt/greenroom", "/srv/agents/desk"):
        with pytest.raises(RuntimeError, match=r"Read-only file system"):
            podman.run("exec", _NAME, "touch", f"{place}/x")

    started = time.monotonic()
    podman.run("stop", "--time=30", _NAME)
    assert time.monotonic() - started < 15  # `grace_seconds`, and the time of a busy machine
    assert podman.run("inspect", _NAME, "--format", "{{.State.ExitCode}}").strip() == "0"

    podman.run("start", _NAME)
    with _client(port, key) as client:
        _wait_until_healthy(podman)
        assert "2 lamps" in client.get("/apps/desk/users/ada/sessions/s1").text


def _size_mb(podman: PodmanService, image: str) -> float:
    return int(podman.run("image", "inspect", image, "--format", "{{.Size}}")) / 1e6


def _client(port: int, key: str) -> httpx.Client:
    address = f"http://127.0.0.1:{port}"
    return httpx.Client(base_url=address, headers={"Authorization": f"Bearer {key}"}, timeout=120)


def _wait_until_healthy(podman: PodmanService) -> None:
    """Runs the health check as an engine does."""
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            podman.run("healthcheck", "run", _NAME)
            return
        except RuntimeError as error:
            if time.monotonic() > deadline:
                raise AssertionError(podman.run("logs", _NAME)) from error


def _run(client: httpx.Client, app: str, text: str) -> str:
    message = {"role": "user", "parts": [{"text": text}]}
    body = {"appName": app, "userId": "ada", "sessionId": "s1", "newMessage": message}
    response = client.post("/run", json=body)
    assert response.status_code == 200, response.text
    return response.text
