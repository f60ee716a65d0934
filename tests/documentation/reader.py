"""A reader who follows a page literally: writes the files it shows, types its commands, compares what appears."""

from __future__ import annotations

import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.documentation.pages import CTRL_C, Command, File, Step, blocks_of, steps_in
from tests.documentation.transcript import Comparison
from tests.processes import END_WITH_PARENT

_WAITS_SECONDS = 90.0
"""For a server to start, and for what the server does by itself."""

_PAGES_PORT = "8000"

_COMMAND = """
. "$0"
{line}
status=$?
{{ export -p; printf 'cd %q\\n' "$PWD"; }} >"$0"
exit $status
"""
"""Variables and the folder of one command are those of the next."""


class Reader:
    """Has one terminal for commands, and one for a server: starting a server stops the one before, as the port is one.

    A command that only asks a server is repeated until it shows what the page shows: the server works meanwhile.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.folder = folder
        self.comparison = Comparison()
        self.server: subprocess.Popen[bytes] | None = None

        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = str(free.getsockname()[1])
        self._state = folder.with_name("terminal.sh")
        self._state.write_text("")
        self.environment = {
            **environment,
            "GREENROOM_PORT": self.port,
            "COLUMNS": "100",
            "TERM": "dumb",
            "PYTHONUNBUFFERED": "1",
        }

    def follow(self, page: Path) -> None:
        for step in steps_in(blocks_of(page)):
            self.do(step)

    def do(self, step: Step) -> None:
        try:
            if isinstance(step, File):
                path = self.folder / step.path
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(step.text)
            elif step.line == CTRL_C:
                self.stop_server()
            elif shlex.split(step.line, comments=True)[:2] == ["greenroom", "serve"]:
                self._serve(step)
            elif _only_asks(step.line):
                self._repeat(step)
            else:
                self._type(step)
        except AssertionError as error:
            shown = step.line if isinstance(step, Command) else step.path
            raise AssertionError(f"{step.place}: {shown}\n{error}") from error

    def _type(self, step: Command) -> None:
        done = subprocess.run(
            self._shell(step),
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        output = done.stdout.decode()
        assert done.returncode == step.exit_code, f"{step.line}\nexits with {done.returncode}:\n{output}"
        self._compare(step, output)

    def _repeat(self, step: Command) -> None:
        deadline = time.monotonic() + _WAITS_SECONDS
        while True:
            try:
                return self._type(step)
            except (AssertionError, ValueError):  # ValueError: an answer that isn't JSON yet
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.1)

    def _serve(self, step: Command) -> None:
        self.stop_server()
        log = self.folder.with_name("server.log")
        with open(log, "wb") as output:
            self.server = subprocess.Popen(
                [*END_WITH_PARENT, *self._shell(step, replaces_shell=True)],
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

        deadline = time.monotonic() + _WAITS_SECONDS
        while True:
            try:
                self._compare(step, log.read_text())
                assert self._is_ready()
                return
            except AssertionError:
                if time.monotonic() > deadline or self.server.poll() is not None:
                    raise
            time.sleep(0.1)

    def _is_ready(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", int(self.port))) == 0

    def stop_server(self) -> None:
        """Ctrl-C in the server's terminal."""
        if self.server is not None:
            self.server.send_signal(signal.SIGINT)
            try:
                self.server.wait(_WAITS_SECONDS)
            finally:
                self.server.kill()
                self.server.wait()
            self.server = None

    def _shell(self, step: Command, *, replaces_shell: bool = False) -> list[str]:
        line = self.comparison.real_command(step.line).replace(f":{_PAGES_PORT}", f":{self.port}")
        script = f'. "$0"\nexec {line}' if replaces_shell else _COMMAND.format(line=line)
        return ["bash", "-c", script, str(self._state)]

    def _compare(self, step: Command, output: str) -> None:
        if step.output is not None:
            self.comparison.compare_output(step.output, output.replace(f":{self.port}", f":{_PAGES_PORT}"))


def _only_asks(line: str) -> bool:
    words = shlex.split(line)
    return words[0] == "curl" and not {"--json", "-d", "--data", "-X"} & set(words)


@contextmanager
def reading(folder: Path, environment: Mapping[str, str]) -> Generator[Reader]:
    """A reader in an empty folder, with an empty home."""
    work = folder / "work"
    home = folder / "home"
    work.mkdir()
    home.mkdir()
    reader = Reader(work, {"HOME": str(home), "LANG": "C.UTF-8", **environment})
    try:
        yield reader
    finally:
        reader.stop_server()
