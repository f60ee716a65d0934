"""A podman service with storage of its own, started by the tests. `make sandboxes` installs podman and runc."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.environments.container_image import write_root_file_system
from tests.environments.image_registry import running_registry
from tests.processes import END_WITH_PARENT
from tests.requirements import skip_or_fail

IMAGE = "localhost/greenroom-tests:latest"
"""Has python3, a shell and a few commands."""

IMAGE_WITHOUT_PYTHON = "localhost/greenroom-tests:without-python"

_START_SECONDS = 30.0

# The host's network where a container has one: a bridge would change the machine's network, and browsers of other tests
# then end their requests. Podman raises the limits of files and processes if none are set, which takes a capability that tests may not have.
_ENGINE = """
[engine]
cgroup_manager = "cgroupfs"
events_logger = "none"
lock_type = "file"
tmp_dir = "{folder}/tmp"
runtime = "runc"

[network]
network_config_dir = "{folder}/networks"

[containers]
netns = "host"
default_ulimits = ["nofile=4096:4096", "nproc=16384:16384"]
"""

_REGISTRIES = """
[[registry]]
location = "{registry}"
insecure = true
"""

_STORAGE = """
[storage]
driver = "{driver}"
runroot = "{folder}/run"
graphroot = "{folder}/storage"
"""


_REMOVE_AT_END = """
read -r _
while [ -e "$0" ]; do
    awk -v folder="$0/" 'index($2, folder) == 1 { print $2 }' /proc/mounts | sort -r | xargs -r umount --lazy
    rm -rf "$0" || sleep 1
done 2>/dev/null
"""
"""Waits for the end of its input, which comes when the tests' process ends in any way. The overlay of podman keeps its
storage mounted, and containers end a moment later."""


class PodmanService:
    """`uri` is what Docker's clients take as `base_url` and `DOCKER_HOST`.

    registry: address of a registry, whose only image is the one that `publish` was called with.
    """

    def __init__(self, folder: Path, registry: str) -> None:
        self.folder = folder
        self.registry = registry
        self.uri = f"unix://{folder}/podman.sock"
        self.env = {
            **os.environ,
            "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin",
            "CONTAINERS_CONF": str(folder / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
            "CONTAINERS_REGISTRIES_CONF": str(folder / "registries.conf"),
        }
        (folder / "registries.conf").write_text(_REGISTRIES.format(registry=registry))
        (folder / "containers.conf").write_text(_ENGINE.format(folder=folder))
        try:
            self._write_storage("overlay")
            self.run("info")
        except RuntimeError:  # the folder is itself on an overlay, as in a container
            self._write_storage("vfs")
            self.run("info")

    def _write_storage(self, driver: str) -> None:
        (self.folder / "storage.conf").write_text(_STORAGE.format(folder=self.folder, driver=driver))

    def run(self, *command: str) -> str:
        """Runs a podman command, and returns its output."""
        done = subprocess.run(["podman", *command], env=self.env, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"podman {' '.join(command)}: {done.stderr[-2000:]}")
        return done.stdout

    def publish(self, image: str) -> None:
        """Puts the image into the registry, where it has all names."""
        self.run("save", "--quiet", "--format=oci-dir", "--output", str(self.folder / "registry"), image)

    def containers(self) -> list[str]:
        """Names of all containers, stopped ones included."""
        return self.run("ps", "--all", "--format", "{{.Names}}").split()


@contextmanager
def running_podman() -> Generator[PodmanService]:
    """Skips the test where podman and runc aren't installed."""
    if shutil.which("podman") is None or shutil.which("runc", path="/usr/sbin:" + os.environ["PATH"]) is None:
        skip_or_fail("needs podman and runc: make sandboxes")

    # A short path, since the address of a Unix socket has at most 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="greenroom-podman-"))
    with (
        subprocess.Popen(["sh", "-c", _REMOVE_AT_END, folder], stdin=subprocess.PIPE, start_new_session=True),
        running_registry(folder / "registry") as registry,
        open(folder / "log", "ab") as log,
    ):
        service = PodmanService(folder, registry)
        command = [*END_WITH_PARENT, "podman", "system", "service", "--time=0", service.uri]
        with subprocess.Popen(command, env=service.env, stdout=log, stderr=log, start_new_session=True) as process:
            try:
                _import(service, IMAGE, with_python=True)
                _import(service, IMAGE_WITHOUT_PYTHON, with_python=False)
                _wait_for_socket(service, process)
                yield service
            finally:
                service.run("rm", "--all", "--force", "--time=0")
                process.kill()


def _import(service: PodmanService, image: str, *, with_python: bool) -> None:
    tar = service.folder / "root.tar"
    write_root_file_system(tar, with_python=with_python)
    service.run("import", "--quiet", str(tar), image)
    tar.unlink()


def _wait_for_socket(service: PodmanService, process: subprocess.Popen[Any]) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not (service.folder / "podman.sock").exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"podman does not start: {(service.folder / 'log').read_text()[-2000:]}")
        time.sleep(0.05)
