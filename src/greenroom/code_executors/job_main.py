"""Runs a piece of code as a process in a folder of its own, and prints the outcome.

`job.program` copies this text into a program for another machine: it imports nothing of greenroom, and Python 3.8 is
enough for it.
"""

from __future__ import annotations

import base64
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import zlib
from typing import IO, Any

LINE_CHARACTERS = 8000
PR_SET_PDEATHSIG = 1


def run(job: dict[str, Any]) -> None:
    """Runs the job that `job.program` describes; prints the outcome, compressed, in lines that begin with its mark."""
    scratch = tempfile.mkdtemp(prefix="code-", dir=job["folder"])
    try:
        outcome = run_in(scratch, job)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)

    text = base64.b64encode(zlib.compress(json.dumps(outcome).encode())).decode()
    sys.stdout.write("\n")
    for start in range(0, len(text), LINE_CHARACTERS):
        sys.stdout.write(job["mark"] + text[start : start + LINE_CHARACTERS] + "\n")
    sys.stdout.flush()


def run_in(scratch: str, job: dict[str, Any]) -> dict[str, Any]:
    folder = os.path.join(scratch, "files")
    os.mkdir(folder)
    inputs = {name: base64.b64decode(content) for name, content in job["files"].items()}
    for name, content in inputs.items():
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content)

    script = os.path.join(scratch, "code.py")
    with open(script, "w", encoding="utf-8") as file:
        file.write(job["code"])

    outcome = run_script(script, folder, job["seconds"], job["output_bytes"])
    outcome["files"], outcome["left_out"] = created_files(folder, inputs, job)
    return outcome


def run_script(script: str, folder: str, seconds: float | None, output_bytes: int) -> dict[str, Any]:
    env = {**os.environ, "HOME": folder, "PYTHONPATH": folder, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        [sys.executable, script],
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=end_with_parent,
    )
    streams = [Stream(pipe, output_bytes) for pipe in (process.stdout, process.stderr)]

    timed_out = False
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        timed_out = True
    try:
        os.killpg(process.pid, signal.SIGKILL)  # with all that it started
    except ProcessLookupError:
        pass
    exit_code = process.wait()

    stdout, stderr = [stream.kept_and_size() for stream in streams]
    return {"exit_code": exit_code, "timed_out": timed_out, "stdout": stdout, "stderr": stderr}


def end_with_parent() -> None:
    """Lets Linux kill this process when the program that started it has ended."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Stream:
    """Reads a stream to its end, and keeps the beginning."""

    def __init__(self, pipe: IO[bytes] | None, limit: int) -> None:
        assert pipe is not None
        self.pipe = pipe
        self.limit = limit
        self.kept = b""
        self.size = 0
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self) -> None:
        for data in iter(lambda: os.read(self.pipe.fileno(), 65536), b""):
            self.size += len(data)
            self.kept += data[: self.limit - len(self.kept)]

    def kept_and_size(self) -> tuple[str, int]:
        self.thread.join(1)  # a process that has left the group may hold the pipe open
        return self.kept.decode(errors="replace"), self.size


def created_files(folder: str, inputs: dict[str, bytes], job: dict[str, Any]) -> tuple[dict[str, str], list[str]]:
    """Returns new and changed files by name, and the names of those that are too many or too large."""
    created: dict[str, str] = {}
    left_out: list[str] = []
    left: int = job["max_bytes"]
    for parent, _, names in sorted(os.walk(folder)):
        if os.path.basename(parent) == "__pycache__":
            continue
        for name in sorted(names):
            path = os.path.join(parent, name)
            if os.path.islink(path) or not os.path.isfile(path):
                continue

            shown = os.path.relpath(path, folder)
            size = os.path.getsize(path)
            if size > min(job["max_file_bytes"], left) or len(created) == job["max_files"]:
                left_out.append(ascii(shown))
                continue

            with open(path, "rb") as file:
                content = file.read()
            if inputs.get(shown) != content:
                left -= size
                created[shown] = base64.b64encode(content).decode()
    return created, left_out[:1000]
