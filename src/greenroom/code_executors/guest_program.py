"""The program by which EnvironmentCodeExecutor runs code in an environment.

Its source is copied there, beside the code, and run by the environment's Python (3.9 or later), so it uses the standard
library only. It knows one folder, in which it stands: `code.py` is the code, and `files` its working directory.

    python3 program.py run [--stateful] [--continues]     runs code.py; the exit code is the code's
    python3 program.py changes [--once]                   prints the files that the code has written, as JSON
    python3 program.py stop                               ends the interpreter that keeps variables

--stateful: code.py runs in an interpreter that stays, and is reached by a Unix socket. It gets the caller's standard
    output and error for as long as the code runs, and ends when it was not used for a while.
--continues: runs nothing in a folder in which nothing has run before.
--once: removes the folder, if there are no files to be read.
"""

from __future__ import annotations

import json
import linecache
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import traceback
import types
from typing import Any

MAX_FILES = 50
MAX_FILE_BYTES = 5 * 1024 * 1024
MAX_BYTES_IN_ALL = 16 * 1024 * 1024
MAX_WALKED = 10_000
MAX_LEFT_OUT = 20

SECONDS_TO_START = 30.0
IDLE_SECONDS = 1800.0

CODE = "code.py"
FILES = "files"
BEFORE = "before.json"
"""The files before the code ran."""

SOCKET = "socket"
INTERPRETER = "interpreter.pid"

FORGOTTEN = "Note: the variables of earlier code are gone, because its interpreter has ended."


def main(command: str, *options: str) -> int:
    os.chdir(os.path.dirname(os.path.abspath(__file__)))  # the path of a socket must be short
    if command == "run":
        return run(is_stateful="--stateful" in options, continues="--continues" in options)
    if command == "changes":
        print_changes(once="--once" in options)
    elif command == "stop":
        stop()
    elif command == "serve":
        serve()
    return 0


def run(*, is_stateful: bool, continues: bool) -> int:
    was_used = os.path.exists(BEFORE)
    if continues and not was_used:
        return 0

    os.makedirs(FILES, exist_ok=True)
    with open(BEFORE, "w") as file:
        json.dump(statuses(), file)

    if is_stateful:
        return run_in_interpreter(was_used=was_used)

    path = os.pathsep.join(filter(None, [os.path.abspath(FILES), os.environ.get("PYTHONPATH")]))
    env = {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}
    code = subprocess.run([sys.executable, os.path.abspath(CODE)], cwd=FILES, env=env, check=False).returncode
    return code if code >= 0 else 128 - code


# Files


def statuses() -> dict[str, str]:
    """The files by name, with a text that changes when they are written."""
    found: dict[str, str] = {}
    for folder, folders, names in os.walk(FILES):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(names):
            path = os.path.join(folder, name)
            if os.path.islink(path) or not os.path.isfile(path) or len(found) == MAX_WALKED:
                continue
            status = os.stat(path)
            found[os.path.relpath(path, FILES)] = f"{status.st_size} {status.st_mtime_ns} {status.st_ino}"
    return found


def print_changes(*, once: bool) -> None:
    """Prints `ran`, False if `run` had nothing to continue; the names of `files`, and of those that are `left_out`,
    because there are too many or they are too large.
    """
    try:
        with open(BEFORE) as file:
            before: dict[str, str] = json.load(file)
    except FileNotFoundError:
        print(json.dumps({"ran": False, "files": [], "left_out": []}))
        return

    kept: list[str] = []
    left_out: list[str] = []
    left = MAX_BYTES_IN_ALL
    for name, status in statuses().items():
        if before.get(name) == status:
            continue
        size = int(status.split()[0])
        if size > min(MAX_FILE_BYTES, left) or len(kept) == MAX_FILES:
            left_out.append(name)
            continue
        left -= size
        kept.append(name)

    if len(left_out) > MAX_LEFT_OUT:
        left_out[MAX_LEFT_OUT:] = [f"and {len(left_out) - MAX_LEFT_OUT} more"]
    print(json.dumps({"ran": True, "files": kept, "left_out": left_out}))
    if once and not kept:
        shutil.rmtree(os.getcwd(), ignore_errors=True)


# The interpreter that keeps variables


def run_in_interpreter(*, was_used: bool) -> int:
    connection = connect()
    if connection is None:
        connection = start_interpreter()
        if was_used:
            print(FORGOTTEN, flush=True)

    with connection:
        socket.send_fds(connection, [b"run"], [1, 2])
        answer = connection.recv(16)
    if not answer:
        print("The code has ended its interpreter; its variables are gone.", file=sys.stderr)
        return 1
    return int(answer)


def connect() -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(SOCKET)
    except OSError:
        connection.close()
        return None
    return connection


def start_interpreter() -> socket.socket:
    stop()
    process = subprocess.Popen(
        [sys.executable, "-u", os.path.abspath(__file__), "serve"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    ends_at = time.monotonic() + SECONDS_TO_START
    while time.monotonic() < ends_at and process.poll() is None:
        connection = connect()
        if connection is not None:
            return connection
        time.sleep(0.01)
    raise SystemExit("The interpreter could not be started.")


def stop() -> None:
    try:
        with open(INTERPRETER) as file:
            os.killpg(int(file.read()), signal.SIGKILL)
    except (FileNotFoundError, ProcessLookupError, ValueError):
        pass
    for name in (INTERPRETER, SOCKET):
        if os.path.exists(name):
            os.remove(name)


def serve() -> None:
    """Runs code.py for each connection, as the main module of one interpreter."""
    with open(INTERPRETER, "w") as file:
        file.write(str(os.getpid()))
    server = socket.socket(socket.AF_UNIX)
    server.bind(SOCKET)
    server.listen()
    server.settimeout(IDLE_SECONDS)

    home = os.getcwd()
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    os.chdir(FILES)
    sys.path[0] = os.getcwd()
    sys.argv = [CODE]
    while True:
        try:
            connection = server.accept()[0]
        except OSError:  # nobody came
            break
        with connection:
            connection.settimeout(None)
            streams = socket.recv_fds(connection, 16, 2)[1]
            if len(streams) != 2:  # somebody who only tried to connect
                continue
            code = run_with(streams, os.path.join(home, CODE), module.__dict__)
            connection.sendall(str(code).encode())

    os.chdir(home)
    for name in (INTERPRETER, SOCKET):
        os.remove(name)


def run_with(streams: list[int], path: str, variables: dict[str, Any]) -> int:
    """Runs the code of a file with these streams as standard output and error. Returns its exit code."""
    os.dup2(streams[0], 1)
    os.dup2(streams[1], 2)
    for stream in streams:
        os.close(stream)
    try:
        return execute(path, variables)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        os.close(nowhere)


def execute(path: str, variables: dict[str, Any]) -> int:
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        linecache.cache[CODE] = (len(text), None, text.splitlines(keepends=True), CODE)  # for tracebacks
        exec(compile(text, CODE, "exec"), variables)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return (end.code or 0) & 255
        print(end.code, file=sys.stderr)
        return 1
    except BaseException as error:
        own = error.__traceback__  # begins with this function
        traceback.print_exception(type(error), error, own and own.tb_next)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
