"""Counts the file system calls of Python code. Those of libraries in C, such as SQLite, are not among them."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

import pytest

_AUDITED = frozenset(
    {
        "open",
        "os.listdir",
        "os.mkdir",
        "os.remove",
        "os.rename",
        "os.rmdir",
        "os.scandir",
        "os.truncate",
        "os.utime",
        "os.walk",
    }
)
_UNAUDITED = ("access", "lstat", "readlink", "stat")


class FileSystemCall(NamedTuple):
    name: str
    path: str
    thread: int

    @property
    def is_on_this_thread(self) -> bool:
        """In an async test: on the event loop."""
        return self.thread == threading.get_ident()


_sinks: list[list[FileSystemCall]] = []


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if _sinks and event in _AUDITED:
        _record(event, arguments[0] if arguments else "")


def _record(name: str, path: object) -> None:
    call = FileSystemCall(name, str(path), threading.get_ident())
    for sink in _sinks:
        sink.append(call)


sys.addaudithook(_audit)  # stays until the process ends


@contextlib.contextmanager
def file_system_calls(monkeypatch: pytest.MonkeyPatch) -> Generator[list[FileSystemCall]]:
    """The calls of all threads, in their order, as long as the context is open."""
    calls: list[FileSystemCall] = []

    def recorded(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, *arguments: Any, **options: Any) -> Any:
            _record(f"os.{name}", path)
            return function(path, *arguments, **options)

        return call

    with monkeypatch.context() as patch:
        for name in _UNAUDITED:
            patch.setattr(os, name, recorded(name, getattr(os, name)))
        _sinks.append(calls)
        try:
            yield calls
        finally:
            _sinks.remove(calls)
