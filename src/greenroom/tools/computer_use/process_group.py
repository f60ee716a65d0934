"""Processes that end with the process that has started them, however it ends."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

STOP_SECONDS = 5.0

# Other processes may still write to the folder while it is deleted for the first time.
_GUARD = """
read _
kill -s "$1" -- "-$2"
[ -z "$3" ] || rm -rf -- "$3" || { sleep 1; rm -rf -- "$3"; }
"""


class ProcessGroup:
    """A command with the processes that it starts; `stop` ends those of its group, and so does the end of this process.

    A shell waits for the end of a pipe, which the kernel closes however this process ends, and signals the group.

    stop_signal: its name, as "TERM".
    folder: deleted then.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        stop_signal: str,
        env: Mapping[str, str],
        cwd: Path,
        folder: Path | None = None,
        stderr: int = subprocess.DEVNULL,
        pass_fds: Sequence[int] = (),
    ) -> None:
        """Raises OSError if the program can't be started."""
        self._process = subprocess.Popen(
            command,
            env=env,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            pass_fds=pass_fds,
            start_new_session=True,
        )
        self.stderr = self._process.stderr
        try:
            self._guard = subprocess.Popen(
                ["sh", "-c", _GUARD, "sh", stop_signal, str(self._process.pid), str(folder or "")],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except BaseException:
            self._process.kill()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """Of the command; None while it runs. It isn't reaped before `stop`, so that the group's id stays its own."""
        if self._process.returncode is not None:
            return self._process.returncode

        ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return None if ended is None else ended.si_status

    async def stop(self) -> None:
        """Signals the group, and waits for the end of the command, which is killed after 5 seconds."""
        if self._process.returncode is not None:
            return

        assert self._guard.stdin is not None
        self._guard.stdin.close()
        await asyncio.to_thread(self._guard.wait)
        try:
            await asyncio.to_thread(self._process.wait, STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(self.pid, signal.SIGKILL)
            await asyncio.to_thread(self._process.wait)
