"""The program by which a sandbox of a service runs Python, and finds the files that code and commands have written.

Its source is copied there and run by the sandbox's Python (3.9 or later), so it uses the standard library only. Its own
folder has the code, `code.py`, and what it notes; the folder in which it is started is the working directory.

    python3 -u program.py begin       notes the files that are there at first
    python3 -u program.py given       notes the files that were written by the host, which `given-*.json` name
    python3 -u program.py run         runs code.py; the exit code is the code's
    python3 -u program.py keep        runs code.py in an interpreter that stays, and is reached by a Unix socket
    python3 -u program.py stop        ends that interpreter
    python3 -u program.py kill        ends it, too; the next `keep` says that variables are gone
    python3 -u program.py list        prints the files, as JSON
    python3 -u program.py changed     prints the names of the files that were written since the last time, as JSON
"""

from __future__ import annotations

import glob
import json
import linecache
import os
import signal
import socket
import stat
import subprocess
import sys
import time
import traceback
import types
from typing import Any

MAX_FILES = 50
MAX_FILE_BYTES = 5 * 1024 * 1024
MAX_BYTES_IN_ALL = 16 * 1024 * 1024
MAX_LISTED = 10_000

SECONDS_TO_START = 30.0

HOME = os.path.dirname(os.path.abspath(__file__))
CODE = "code.py"
KNOWN = os.path.join(HOME, "known.json")
"""The files that the host knows, by name, each with a text that changes when it is written."""

SOCKET = os.path.join(HOME, "socket")
INTERPRETER = os.path.join(HOME, "interpreter.pid")

FORGOTTEN = "The variables of earlier code are gone."


def main(command: str) -> int:
    if command == "begin":
        if not os.path.exists(KNOWN):
            note(statuses())
    elif command == "given":
        note_given()
    elif command == "run":
        return run(types.ModuleType("__main__"))
    elif command == "keep":
        return run_in_interpreter()
    elif command == "serve":
        serve()
    elif command == "stop":
        stop()
    elif command == "kill":
        kill()
    elif command == "list":
        print(json.dumps([(name, status.st_size, status.st_mtime_ns) for name, status in files().items()]))
    elif command == "changed":
        print_changed()
    return 0


# Files


def files() -> dict[str, os.stat_result]:
    """The regular files of the working directory by name, in its order."""
    found: dict[str, os.stat_result] = {}
    for folder, folders, names in os.walk("."):
        folders[:] = [name for name in folders if name != "__pycache__"]
        for name in names:
            path = os.path.join(folder, name)
            try:
                status = os.lstat(path)
            except FileNotFoundError:  # somebody has just removed it
                continue
            if stat.S_ISREG(status.st_mode) and len(found) < MAX_LISTED:
                found[shown(os.path.relpath(path))] = status
    return dict(sorted(found.items()))


def shown(name: str) -> str:
    """A name that JSON can have."""
    return os.fsencode(name).decode(errors="replace")


def status_text(status: os.stat_result) -> str:
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino}"


def statuses() -> dict[str, str]:
    return {name: status_text(status) for name, status in files().items()}


def known() -> dict[str, str]:
    try:
        with open(KNOWN) as file:
            return json.load(file)
    except FileNotFoundError:
        return {}


def note(now_known: dict[str, str]) -> None:
    unfinished = f"{KNOWN}.{os.getpid()}"
    with open(unfinished, "w") as file:
        json.dump(now_known, file)
    os.replace(unfinished, KNOWN)


def note_given() -> None:
    now_known = known()
    for path in glob.glob(os.path.join(HOME, "given-*.json")):
        with open(path) as file:
            for name in json.load(file):
                if os.path.isfile(name):
                    now_known[os.path.relpath(name)] = status_text(os.stat(name))
        os.remove(path)
    note(now_known)


def print_changed() -> None:
    """Prints the names of changed `files`, and of those that are `left_out`, because there are too many or they are too
    large; how many more there are is `not_named`.
    """
    before = known()
    present = files()
    note({name: status_text(status) for name, status in present.items()})

    kept: list[str] = []
    left_out: list[str] = []
    left = MAX_BYTES_IN_ALL
    for name, status in present.items():
        if before.get(name) == status_text(status):
            continue
        if status.st_size > min(MAX_FILE_BYTES, left) or len(kept) == MAX_FILES:
            left_out.append(name)
            continue
        left -= status.st_size
        kept.append(name)

    named = left_out[:MAX_FILES]
    print(json.dumps({"files": kept, "left_out": named, "not_named": len(left_out) - len(named)}))


# Code


def run(module: types.ModuleType) -> int:
    """Runs the code as this module. Returns its exit code."""
    sys.modules["__main__"] = module
    sys.path[0] = os.getcwd()
    sys.argv = [CODE]
    try:
        return execute(os.path.join(HOME, CODE), module.__dict__)
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()


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


# The interpreter that keeps variables


def run_in_interpreter() -> int:
    connection = connect()
    if connection is None:
        had_variables = os.path.exists(INTERPRETER)
        connection = start_interpreter()
        if had_variables:
            print(FORGOTTEN, file=sys.stderr, flush=True)

    with connection:
        socket.send_fds(connection, [b"run"], [1, 2])
        answer = connection.recv(16)
    if not answer:  # the code has ended the interpreter
        stop()
        print(FORGOTTEN, file=sys.stderr)
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


def kill() -> None:
    try:
        with open(INTERPRETER) as file:
            os.killpg(int(file.read()), signal.SIGKILL)
    except (FileNotFoundError, ProcessLookupError, ValueError):
        pass


def stop() -> None:
    kill()
    for path in (INTERPRETER, SOCKET):
        if os.path.exists(path):
            os.remove(path)


def serve() -> None:
    """Runs code.py for each connection, as the main module of one interpreter."""
    with open(INTERPRETER, "w") as file:
        file.write(str(os.getpid()))
    server = socket.socket(socket.AF_UNIX)
    server.bind(SOCKET)
    server.listen()

    working_dir = os.getcwd()
    module = types.ModuleType("__main__")
    while True:
        with server.accept()[0] as connection:
            streams = socket.recv_fds(connection, 16, 2)[1]
            if len(streams) != 2:  # somebody who only tried to connect
                continue
            os.chdir(working_dir)  # the code before may have left it
            connection.sendall(str(run_with(streams, module)).encode())


def run_with(streams: list[int], module: types.ModuleType) -> int:
    """Runs the code with these streams as standard output and error. Returns its exit code."""
    os.dup2(streams[0], 1)
    os.dup2(streams[1], 2)
    for stream in streams:
        os.close(stream)
    try:
        return run(module)
    finally:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        os.close(nowhere)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
