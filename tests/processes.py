"""Processes that tests start."""

from __future__ import annotations

import shutil
import subprocess


def _with_parent_death_signal() -> tuple[str, ...]:
    setpriv = shutil.which("setpriv")
    prefix = (setpriv or "", "--pdeathsig", "KILL", "--")
    if setpriv is None or subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode:
        return ()
    return prefix


END_WITH_PARENT = _with_parent_death_signal()
"""Prefix of a command that Linux kills when the thread that started it ends, even by SIGKILL. It keeps its process id.

Processes that outlive killed tests would hold the pipe of `make`'s output open, and whatever reads it would not end.
Empty where util-linux' setpriv is missing."""


def children_of(pid: int) -> list[int]:
    """Ids of the processes that a process has started and that run, the oldest first."""
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False)
    return [int(child) for child in found.stdout.split()]


def is_running(pid: int) -> bool:
    """False for a zombie, too."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return state.stdout.strip()[:1] not in ("", "Z")
