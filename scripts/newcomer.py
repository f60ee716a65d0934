"""Follows a newcomer's first steps with a wheel, times them, and writes a page with the transcript.

`make newcomer` runs it: `python scripts/newcomer.py WHEEL PAGE`. Nothing of this machine is used but Python, a shell
and curl: the home folder is empty, so that pip and greenroom download all they need.
"""

from __future__ import annotations

import json
import os
import platform
import re
import resource
import shlex
import socket
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

_NETWORK = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "PIP_CERT", "PIP_INDEX_URL", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE")
_WIDTH = 100

_REQUEST = json.dumps(
    {
        "appName": "helper",
        "userId": "ada",
        "sessionId": "first",
        "newMessage": {"parts": [{"text": "Why is the sky blue?"}]},
    }
)

_PAGE = """# From nothing to a first answer

What you type on a machine that has Python, and what you see. `make newcomer` followed these steps on {date} with
Python {python} on {system} with {cores} cores, and wrote this page. The home folder was empty, so everything was
downloaded: steps with a * depend on the network. Other programs used the machine meanwhile, so a step can be much
faster: its CPU seconds are the least that it takes.

| step | command | seconds | of them CPU |
|---|---|---|---|
{rows}

From the first command to an answer in the terminal: {terminal:.0f} seconds; to an answer over HTTP, and the page:
{total:.0f} seconds. The small model shows that everything works; it is not clever. [Installation](installation.md)
explains the choices, and [the tutorial](tutorial/1-first-agent.md) continues from here.

{transcript}
"""


class Step(NamedTuple):
    text: str
    command: str
    seconds: float
    cpu_seconds: float | None
    output: str


class Newcomer:
    def __init__(self, folder: Path, wheel: Path) -> None:
        self.folder = folder
        self.wheel = wheel.resolve()
        self.steps: list[Step] = []
        self.environment = {name: os.environ[name] for name in _NETWORK if name in os.environ}
        self.environment |= {
            "HOME": str(folder),
            "PATH": f"{folder}/env/bin:{Path(sys.executable).parent}:/usr/bin:/bin",
            "COLUMNS": str(_WIDTH),
            "TERM": "dumb",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        }

    def run(self, text: str, command: str, *, really: str | None = None) -> None:
        """Runs a command in a shell. really: what is run in place of the command that the page shows."""
        begun = time.perf_counter()
        cpu_before = _cpu_seconds_of_children()
        done = subprocess.run(
            ["bash", "-c", really or command],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        seconds = time.perf_counter() - begun
        if done.returncode != 0:
            sys.exit(f"`{command}` failed:\n{done.stdout}")
        self._add(text, command, seconds, _cpu_seconds_of_children() - cpu_before, done.stdout)

    def serve(self, text: str, command: str, port: int) -> subprocess.Popen[str]:
        """Starts the server, and returns when it accepts connections."""
        begun = time.perf_counter()
        log = (self.folder / "server.log").open("w")
        server = subprocess.Popen(
            shlex.split(command), cwd=self.folder, env=self.environment, stdout=log, stderr=subprocess.STDOUT, text=True
        )
        while not _is_open(port):
            if server.poll() is not None or time.perf_counter() - begun > 60:
                server.kill()
                sys.exit(f"`{command}` failed:\n{(self.folder / 'server.log').read_text()}")
            time.sleep(0.01)
        self._add(text, command, time.perf_counter() - begun, None, (self.folder / "server.log").read_text())
        return server

    def _add(self, text: str, command: str, seconds: float, cpu_seconds: float | None, output: str) -> None:
        output = output.replace(f"{self.folder}/", "~/").replace(self.wheel.as_uri(), "…")
        self.steps.append(Step(text, command, seconds, cpu_seconds, output.strip()))
        print(f"{seconds:6.1f} s  {command}", flush=True)


def main(wheel: Path, page: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="newcomer-") as name:
        newcomer = Newcomer(Path(name), wheel)
        follow(newcomer)
    page.write_text(written(newcomer.steps), encoding="utf-8")


def follow(newcomer: Newcomer) -> None:
    port = 8000 if not _is_open(8000) else _free_port()
    url = f"http://127.0.0.1:{port}"
    option = "" if port == 8000 else f" --port {port}"
    install = shlex.quote(f"greenroom[local] @ {newcomer.wheel.as_uri()}")

    newcomer.run("an environment", "python3 -m venv env && . env/bin/activate")
    newcomer.run(
        "greenroom, and what runs its model *", "pip install 'greenroom[local]'", really=f"pip install {install}"
    )
    newcomer.run("a new app", "greenroom init agents/helper")
    newcomer.run("a small model *", "greenroom models pull smollm2-135m")
    newcomer.run("a first answer", "greenroom run agents/helper 'Why is the sky blue?'")
    server = newcomer.serve("a server", f"greenroom serve agents{option}", port)
    try:
        newcomer.run("a session", f"curl -s -X POST {url}/apps/helper/users/ada/sessions/first")
        newcomer.run("an answer over HTTP", f"curl -s {url}/run -H 'content-type: application/json' -d '{_REQUEST}'")
        newcomer.run(
            "the page in a browser",
            f"curl -s -o page.html -w '%{{http_code}} %{{content_type}}' {url}/dev-ui/index.html",
        )
    finally:
        server.terminate()
        server.wait(timeout=30)


def written(steps: list[Step]) -> str:
    total = 0.0
    terminal = 0.0
    for step in steps:
        total += step.seconds
        if " run " in step.command:
            terminal = total
    rows: list[str] = []
    for step in steps:
        cpu = "" if step.cpu_seconds is None else f"{step.cpu_seconds:.1f}"
        rows.append(f"| {step.text} | `{_shortened(step.command, 60)}` | {step.seconds:.1f} | {cpu} |")
    return _PAGE.format(
        date=datetime.now(UTC).date().isoformat(),
        python=platform.python_version(),
        cores=os.cpu_count(),
        system=platform.system(),
        rows="\n".join(rows),
        terminal=terminal,
        total=total,
        transcript="\n\n".join(map(_transcript, steps)),
    )


def _transcript(step: Step) -> str:
    lines = [
        line for line in step.output.splitlines() if not re.match(r" *(Collecting|Downloading|Processing)|.*━", line)
    ]
    shown = "\n".join(_shortened(line, 300) for line in lines)
    if not shown:
        return f"```console\n$ {step.command}\n```"
    return f"<!-- not tested: written by `make newcomer` -->\n```console\n$ {step.command}\n{shown}\n```"


def _shortened(line: str, length: int) -> str:
    return line if len(line) <= length else line[: length - 1] + "…"


def _cpu_seconds_of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _is_open(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


main(Path(sys.argv[1]), Path(sys.argv[2]))
