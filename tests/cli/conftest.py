"""Runs the command: in this process, in a process of its own, or in a terminal."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import select
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import patch

import pytest

from greenroom.cli.main import main
from greenroom.cli.terminal import console
from tests.processes import END_WITH_PARENT

SRC = Path(__file__).parents[2] / "src"

MAIN = "from greenroom.cli.main import main; main()"
COMMAND = [*END_WITH_PARENT, sys.executable, "-c", MAIN]
COMMAND_IN_TERMINAL = [
    *END_WITH_PARENT,
    sys.executable,
    "-c",
    f"import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); {MAIN}",
]
"""Makes its standard input its controlling terminal, so that Ctrl-C reaches it."""

CTRL_C, CTRL_D = "\x03", "\x04"

PARROT = """
import asyncio
from greenroom import BaseLlm, LlmAgent, LlmResponse, types


def shout(text: str) -> dict:
    '''Shouts.'''
    return {"shouted": text.upper()}


class Parrot(BaseLlm):
    async def generate_content_async(self, llm_request, stream=False):
        last = llm_request.contents[-1].parts[-1]
        if last.text == "boom":
            raise RuntimeError("the model is on fire")
        if last.text == "shout":
            call = types.FunctionCall(name="shout", args={"text": "hey"})
            yield LlmResponse(content=types.Content(role="model", parts=[types.Part(function_call=call)]))
            return
        text = last.text or f"The tool said {last.function_response.response['shouted']}"
        for word in text.split() if stream else ():
            yield answer(word + " ", partial=True)
            if word == "forever":
                await asyncio.Event().wait()
        yield answer("".join(word + " " for word in text.split()))


def answer(text, partial=None):
    return LlmResponse(content=types.Content(role="model", parts=[types.Part(text=text)]), partial=partial)


root_agent = LlmAgent(name="parrot", model=Parrot(model="parrot"), tools=[shout])
"""


class Cli:
    """Runs `greenroom` in a folder that holds the app `agents/parrot`.

    A call runs the command in this process. `run_process` and `start` run it in one of its own, for servers and for
    what depends on signals, logging or the start of Python. Each command has a test that does so.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "PYTHONPATH": str(SRC),
            "PYTHONWARNINGS": "error",
            "COLUMNS": "200",
            "TERM": "dumb",
        }
        self.write("agents/parrot/agent.py", PARROT)

    def write(self, file: str, text: str) -> None:
        path = self.folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))

    def __call__(self, *args: str, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        """Runs the command in another thread: in this one, the event loop of an async test is running."""
        assert args[:1] != ("serve",), "a server installs signal handlers"
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(self._run_main, args, stdin, {**self.environment, **environment}).result()

    def _run_main(
        self, args: tuple[str, ...], stdin: str, environment: dict[str, str]
    ) -> subprocess.CompletedProcess[str]:
        stdout = io.BytesIO()
        stderr = io.BytesIO()
        code: str | int | None = 0
        console.cache_clear()  # it has the width of the first command's terminal
        with (
            contextlib.chdir(self.folder),
            patch.dict(os.environ, environment, clear=True),
            patch.object(sys, "argv", ["greenroom", *args]),
            patch.object(sys, "stdin", io.StringIO(stdin)),
            contextlib.redirect_stdout(io.TextIOWrapper(stdout, encoding="utf-8", write_through=True)),
            contextlib.redirect_stderr(io.TextIOWrapper(stderr, encoding="utf-8", write_through=True)),
        ):
            try:
                main()
            except SystemExit as end:
                code = end.code
            output = stdout.getvalue().decode()
            errors = stderr.getvalue().decode()
        assert isinstance(code, int)
        return subprocess.CompletedProcess(args, code, output, errors)

    def run_process(self, *args: str, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*COMMAND, *args],
            cwd=self.folder,
            env={**self.environment, **environment},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )

    def start(self, *args: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*COMMAND, *args],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


class Terminal:
    """`greenroom` in a pseudo-terminal."""

    def __init__(self, cli: Cli, *args: str) -> None:
        self._seen = ""
        self._fd, inner = pty.openpty()
        self._process = subprocess.Popen(
            [*COMMAND_IN_TERMINAL, *args],
            cwd=cli.folder,
            env=cli.environment,
            stdin=inner,
            stdout=inner,
            stderr=inner,
            start_new_session=True,
        )
        os.close(inner)

    def expect(self, text: str) -> str:
        """Read on until the text is there; returns what came up to and with it."""
        give_up_at = time.monotonic() + 20
        while text not in self._seen:
            ready, _, _ = select.select([self._fd], [], [], max(0.0, give_up_at - time.monotonic()))
            assert ready, f"waited for {text!r}, got {self._seen!r}"
            try:
                data = os.read(self._fd, 65536)
            except OSError:  # how Linux says that the other side is gone
                data = b""
            assert data, f"ended before {text!r}: {self._seen!r}"
            self._seen += data.decode()
        end = self._seen.index(text) + len(text)
        found, self._seen = self._seen[:end], self._seen[end:]
        return found

    def type(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def exit_code(self, *, while_pressing: str = "") -> int:
        """Wait for the end, pressing keys again and again, but not so fast that they'd meet a process that is ending."""
        give_up_at = time.monotonic() + 20
        press_at = time.monotonic() + 0.2
        while (status := self._process.poll()) is None:
            if while_pressing and time.monotonic() >= press_at:
                press_at += 5
                with contextlib.suppress(OSError):
                    self.type(while_pressing)
            ready, _, _ = select.select([self._fd], [], [], 0.05)
            if ready:
                try:
                    self._seen += os.read(self._fd, 65536).decode()
                except OSError:
                    time.sleep(0.01)  # its side of the terminal is closed, and it is about to end
            assert time.monotonic() < give_up_at, f"still there: {self._seen!r}"
        return status

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._fd)


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path)


@pytest.fixture
def terminal(cli: Cli) -> Iterator[Terminal]:
    """A chat with the parrot."""
    opened = Terminal(cli, "run", "agents/parrot")
    yield opened
    opened.close()
