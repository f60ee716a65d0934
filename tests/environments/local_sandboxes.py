"""The sandboxes of this machine. One line here, and a sandbox goes through the escape attempts."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from greenroom.environments.bubblewrap import BubblewrapSandbox
from greenroom.environments.container import ContainerSandbox
from greenroom.environments.sandbox import Sandbox
from greenroom.environments.webassembly import WebAssemblySandbox
from tests.environments.podman import IMAGE
from tests.requirements import require_bubblewrap, require_pyodide


def _bubblewrap() -> Sandbox:
    require_bubblewrap()
    return BubblewrapSandbox()


def _container() -> Sandbox:
    return ContainerSandbox(image=IMAGE)


def _webassembly() -> Sandbox:
    require_pyodide()
    return WebAssemblySandbox()


SANDBOXES: dict[str, Callable[[], Sandbox]] = {
    "bubblewrap": _bubblewrap,
    "container": _container,
    "webassembly": _webassembly,
}
"""Functions that skip the test where the sandbox's programs are missing."""

ALLOWED = {
    "container": {"users", "new terminal", "the tree of devices"},
    "webassembly": {
        "folders in folders",
        "writing into the system",
        "magic system request",
        "devices",
        "giving a file to root",
        "filter of system calls",
        "names of the network",
    },
}
"""Attempts that succeed in a sandbox. A container has users and terminals of its own, and engines show the names of
devices. WebAssembly's system is imitated in the sandbox's own memory, where code may do as it likes; deleting folders in
folders ends it.
"""


def make_sandbox(name: str, request: pytest.FixtureRequest) -> Sandbox:
    """Starts the service that the sandbox needs, if it needs one."""
    if name == "container":
        request.getfixturevalue("docker_host")
    return SANDBOXES[name]()
