"""The sandboxes of this machine. One line here, and a sandbox goes through the escape attempts."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from greenroom.environments.bubblewrap import BubblewrapSandbox
from greenroom.environments.container import ContainerSandbox
from greenroom.environments.sandbox import Sandbox
from tests.environments.podman import IMAGE
from tests.requirements import require_bubblewrap


def _bubblewrap() -> Sandbox:
    require_bubblewrap()
    return BubblewrapSandbox()


def _container() -> Sandbox:
    return ContainerSandbox(image=IMAGE)


SANDBOXES: dict[str, Callable[[], Sandbox]] = {
    "bubblewrap": _bubblewrap,
    "container": _container,
}
"""Functions that skip the test where the sandbox's programs are missing."""

ALLOWED = {"container": {"users", "new terminal", "the tree of devices"}}
"""Attempts that succeed in a sandbox. A container has users and terminals of its own, and engines show the names of
devices."""


def make_sandbox(name: str, request: pytest.FixtureRequest) -> Sandbox:
    """Starts the service that the sandbox needs, if it needs one."""
    if name == "container":
        request.getfixturevalue("docker_host")
    return SANDBOXES[name]()
