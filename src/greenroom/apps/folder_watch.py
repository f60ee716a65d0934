"""Detects changes in a folder of apps: fingerprints of files, and a thread that polls them.

Looking costs less than a millisecond for a dozen apps, and works where file-system events don't: in
containers with mounted folders, on network drives, and when a process may watch no more files.
"""

from __future__ import annotations

import hashlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeAlias
from weakref import WeakMethod

_log = logging.getLogger("greenroom.apps")

POLL_SECONDS = 0.25
STOP_SECONDS = 1.0
MAX_CPU_SHARE = 0.02
"""Greatest share of a core for scanning; where it would be more, as with a thousand apps, scans are
less frequent.
"""

_SOURCES = (".py", ".yaml", ".yml")
_ENV_FILE = ".env"
_WATCHED = (*_SOURCES, _ENV_FILE)
_SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages"})

Fingerprint: TypeAlias = frozenset[tuple[str, int, int]]


def fingerprint(folder: Path, also: Iterable[Path] = ()) -> Fingerprint:
    """Returns a value that changes with any file of the folder, apart from hidden files and Python's caches."""
    return _stat_all((*_files(folder, ()), *map(str, also)))


def _stat_all(files: Iterable[str]) -> Fingerprint:
    statuses: set[tuple[str, int, int]] = set()
    for path in files:
        try:
            status = os.stat(path)
        except OSError:  # deleted meanwhile
            continue
        statuses.add((path, status.st_mtime_ns, status.st_size))

    return frozenset(statuses)


def _files(folder: str | Path, suffixes: tuple[str, ...]) -> Iterator[str]:
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return

    for entry in entries:
        if entry.is_dir():
            if not entry.is_symlink() and not entry.name.startswith(".") and entry.name not in _SKIPPED:
                yield from _files(entry.path, suffixes)
        elif entry.name == _ENV_FILE or (
            not entry.name.startswith(".") and (not suffixes or entry.name.endswith(suffixes))
        ):
            yield entry.path


def visible_files(folder: Path) -> list[Path]:
    """The files of a folder and of those below it, without hidden ones and Python's caches."""
    return [Path(path) for path in _files(folder, ()) if os.path.basename(path) != _ENV_FILE]


def version_of(folder: Path, also: Iterable[Path] = ()) -> str:
    """A hash of the sources of an app, which stays the same wherever and whenever they are copied.

    also: other files that were read.
    """
    files = {os.path.relpath(path, folder): path for path in (*_files(folder, _SOURCES), *map(str, also))}
    digest = hashlib.sha256()
    for name, path in sorted(files.items()):
        if os.path.basename(path) == _ENV_FILE:
            continue

        try:
            with open(path, "rb") as file:
                content = file.read()
        except OSError:  # deleted meanwhile
            continue

        digest.update(f"{name}\0{len(content)}\0".encode() + content)

    return digest.hexdigest()[:16]


class Changes:
    """The apps that have changed since they were loaded, and not again since the last poll.

    An app consists of the Python, YAML and `.env` files of its folder, and of other files that it has read.
    """

    def __init__(self, agents_dir: Path) -> None:
        self._agents_dir = str(agents_dir)
        self._loaded: dict[str, Fingerprint] = {}
        self._seen: dict[str, Fingerprint] = {}
        self._read: dict[str, frozenset[Path]] = {}
        self._modules: dict[str, Fingerprint] = {}
        self._modules_seen: Fingerprint | None = None

    def record_loading(self, app_name: str) -> None:
        self._loaded[app_name] = self._fingerprint(app_name)

    def record_files(self, app_name: str, files: frozenset[Path]) -> None:
        self._read[app_name] = files
        self._loaded[app_name] |= _stat_all(map(str, files))

    def forget(self, app_name: str) -> None:
        for known in (self._loaded, self._seen, self._read):
            known.pop(app_name, None)

    def has_settled(self, app_name: str) -> bool:
        now = self._fingerprint(app_name)
        if now == self._loaded.get(app_name):
            self._seen.pop(app_name, None)
            return False
        before = self._seen.get(app_name)
        self._seen[app_name] = now
        return now == before

    def record_modules(self, names: set[str]) -> dict[str, Fingerprint]:
        """Records the files of new modules; returns the current state of all modules' files."""
        files = {path for name in names if (path := getattr(sys.modules.get(name), "__file__", None))}
        now = {path: _stat_all([path]) for path in files}
        self._modules = now | self._modules
        return now

    def changed_modules(self, names: set[str]) -> set[str]:
        """Returns all of these modules if any of their files has changed since it was recorded, else none."""
        now = self.record_modules(names)
        if all(self._modules[path] == taken for path, taken in now.items()):
            return set()

        statuses = frozenset[tuple[str, int, int]]().union(*now.values())
        if statuses != self._modules_seen:
            self._modules_seen = statuses
            return set()

        self._modules = now

        return names

    def _fingerprint(self, app_name: str) -> Fingerprint:
        folder = os.path.join(self._agents_dir, *app_name.split("."))
        return _stat_all((*_files(folder, _WATCHED), *map(str, self._read.get(app_name, ()))))


class FolderWatch:
    """Calls a method of an object every `POLL_SECONDS`, as long as the object lives and `stop`
    isn't called.

    look: answers whether it did more than look.
    """

    def __init__(self, look: Callable[[], bool]) -> None:
        self._look = WeakMethod(look)
        self._stopped = threading.Event()
        self._thread = threading.Thread(
            target=self._run,
            name="greenroom-folder-watch",
            daemon=True,
        )
        self._thread.start()

    def stop(self) -> None:
        """Stops the thread; returns after a second even while an app is being imported."""
        self._stopped.set()
        if self._thread is not threading.current_thread():
            self._thread.join(STOP_SECONDS)

    def _run(self) -> None:
        pause = POLL_SECONDS
        while not self._stopped.wait(pause):
            look = self._look()
            if look is None:
                return

            started = time.thread_time()
            pause = POLL_SECONDS
            try:
                if not look():
                    pause = max(POLL_SECONDS, (time.thread_time() - started) / MAX_CPU_SHARE)
            except Exception:  # a folder that can't be read for a moment must not end the watch
                _log.exception("the folder of apps could not be looked at")

            del look
