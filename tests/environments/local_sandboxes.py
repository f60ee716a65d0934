"""The sandboxes of this machine. One line here, and a sandbox goes through the escape attempts."""

from __future__ import annotations

from collections.abc import Callable

from greenroom.environments.bubblewrap import BubblewrapSandbox
from greenroom.environments.sandbox import Sandbox
from tests.requirements import require_bubblewrap


def _bubblewrap() -> Sandbox:
    require_bubblewrap()
    return BubblewrapSandbox()


SANDBOXES: dict[str, Callable[[], Sandbox]] = {
    "bubblewrap": _bubblewrap,
}
"""Functions that skip the test where the sandbox's programs are missing."""
