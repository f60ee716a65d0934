"""Runs code inside a WebAssembly sandbox. It is loaded into Pyodide, and is part of the snapshot."""

from __future__ import annotations

import asyncio
import builtins
import importlib
import linecache
import os
import random
import sys
import time
import traceback
import types
from typing import Any

CODE_NAME = "code.py"
INTERRUPTED = 130

ENVIRONMENT = {"LANG": "C.UTF-8", "TMPDIR": "/tmp", "PYTHONDONTWRITEBYTECODE": "1"}

LONGEST_SLEEP_SECONDS = 0.05
"""Between looks at whether the code is to be interrupted."""

MODULES_OF_JAVASCRIPT = ("js", "pyodide_js")

sources: dict[str, str] = {}
"""Code that has been run, for tracebacks."""

kept_module: types.ModuleType | None = None
kept_count = 0
working_dir = ""

builtin_names = builtins.__dict__
saved_builtins: dict[str, Any] = {}
loaded_modules = sys.modules
saved_modules: dict[str, types.ModuleType] = {}
"""Restored before each run, since code may remove or replace them."""


def start(folder: str) -> None:
    """Prepares this interpreter, which is a copy of the snapshot's."""
    global working_dir
    working_dir = folder
    os.makedirs(folder, exist_ok=True)

    for name in list(sys.modules):
        if name.partition(".")[0] in MODULES_OF_JAVASCRIPT:
            del sys.modules[name]

    time.sleep = sleep
    asyncio.run = getattr(asyncio.run, "__wrapped__", asyncio.run)  # Pyodide's own needs JavaScript's event loop
    asyncio.set_event_loop_policy(EventLoopPolicy())  # pyright: ignore[reportDeprecated]
    asyncio._set_running_loop(None)
    sys.dont_write_bytecode = True
    saved_builtins.update(builtin_names)
    saved_modules.update(loaded_modules)
    random.seed()  # every copy would have the same numbers


def run(code: str, keeps_variables: bool) -> int:
    """Runs code as the main module. Returns the exit code that a process would have."""
    global kept_module, kept_count

    builtin_names.update(saved_builtins)
    loaded_modules.update(saved_modules)
    sys.modules = loaded_modules

    if keeps_variables:
        module = kept_module = kept_module or new_main_module()
        kept_count += 1
        name = f"code-{kept_count}.py"
    else:
        module = new_main_module()
        name = CODE_NAME
        forget_modules_of_files()
        os.environ.clear()
        os.environ.update(ENVIRONMENT, HOME=working_dir, PWD=working_dir)

    loaded_modules["__main__"] = module
    sys.argv = [CODE_NAME]
    open_streams()

    try:
        enter_working_dir()
        return run_in(module.__dict__, code, name)
    finally:
        for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
            try:
                stream.flush()  # type: ignore[union-attr]
            except Exception:  # code may have put anything there, or have closed it
                pass
        if not keeps_variables:
            module.__dict__.clear()  # closes files before their numbers belong to others


def enter_working_dir() -> None:
    """Makes it anew if code has deleted it, and accessible if code has forbidden that."""
    os.makedirs(working_dir, exist_ok=True)
    os.chmod(working_dir, 0o755)
    os.chdir(working_dir)
    importlib.invalidate_caches()


def run_in(namespace: dict[str, Any], code: str, name: str) -> int:
    sources[name] = code
    try:
        exec(compile(code, name, "exec", dont_inherit=True), namespace)
    except SystemExit as error:
        if error.code is None:
            return 0
        if isinstance(error.code, int):
            return error.code & 0xFF
        print(error.code, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    except BaseException as error:
        print_error(error)
        return 1
    return 0


def print_error(error: BaseException) -> None:
    """Prints a traceback that begins in the code."""
    for name, code in sources.items():
        linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)

    outer = error.__traceback__
    traceback.print_exception(type(error), error, outer and outer.tb_next)


def new_main_module() -> types.ModuleType:
    module = types.ModuleType("__main__")
    module.__dict__["__builtins__"] = builtins
    return module


def forget_modules_of_files() -> None:
    """Code without variables of its own imports files of the working directory as they are now."""
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if isinstance(path, str) and path.startswith(working_dir):
            del sys.modules[name]


def open_streams() -> None:
    sys.stdin = sys.__stdin__ = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream = open(  # noqa: SIM115
            number, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def forget_variables() -> None:
    global kept_module
    kept_module = None


# Waiting, which is not left to JavaScript: so code can be interrupted, and leaves nothing to be done later

sleep_at_once = getattr(time.sleep, "__wrapped__", time.sleep)


def sleep(seconds: float, /) -> None:
    """`time.sleep` that can be interrupted."""
    deadline = time.monotonic() + seconds
    while seconds > LONGEST_SLEEP_SECONDS:
        sleep_at_once(LONGEST_SLEEP_SECONDS)
        seconds = deadline - time.monotonic()
    sleep_at_once(max(seconds, 0))


class Selector:
    """There is nothing to wait for but time."""

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("The event loop waits for something that can't happen")
        if timeout > 0:
            sleep(timeout)
        return []

    def close(self) -> None:
        pass


class EventLoop(asyncio.BaseEventLoop):
    """A loop of callbacks and timers."""

    def __init__(self) -> None:
        super().__init__()
        self._selector = Selector()

    def _process_events(self, events: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass


class EventLoopPolicy(asyncio.events._AbstractEventLoopPolicy):  # pyright: ignore[reportGeneralTypeIssues]
    loop: asyncio.AbstractEventLoop | None = None

    def get_event_loop(self) -> asyncio.AbstractEventLoop:
        if self.loop is None:
            self.loop = self.new_event_loop()
        return self.loop

    def set_event_loop(self, loop: asyncio.AbstractEventLoop | None) -> None:
        self.loop = loop

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        return EventLoop()
