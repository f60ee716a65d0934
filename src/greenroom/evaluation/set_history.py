"""The versions of an evaluation set: a file with a line of JSON for each, which is only appended to.

A line has the cases that were added or changed, and the ids of those that were removed:

    {"version": 1, "added": ["oslo"], "size": 1, "cases": [{"evalId": "oslo", …}], …}
    {"version": 2, "added": ["rome"], "size": 2, "cases": [{"evalId": "rome", …}], …}
    {"version": 3, "removed": ["oslo"], "size": 1, "cases": [], …}

Version 2 has the cases oslo and rome. A set that was edited by hand gets a version when it is next changed or run.
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from threading import Lock

import msgspec

from greenroom.evaluation.records import EvalCase
from greenroom.records import wire
from greenroom.records.eval_cases import EvalSetVersion

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

_lock = Lock()


class _Line(EvalSetVersion, kw_only=True, omit_defaults=False):
    """A version as it is stored."""

    digest: str
    """A hash of all cases of the version."""
    cases: list[EvalCase]
    """The cases that were added or changed."""


class _Head(msgspec.Struct):
    """The part of a line that says whether a set has this version."""

    version: int
    digest: str


_decode = wire.decoder(_Line)
_decode_head = msgspec.json.Decoder(_Head).decode


class SetHistory:
    """The versions of one set. `record` is called with `locked`, by which changes of the set wait for each other."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @contextmanager
    def locked(self) -> Generator[None]:
        """Keeps other threads and processes from changing the set."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with _lock, self._path.open("ab") as file:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def version_of(self, cases: Iterable[EvalCase]) -> int | None:
        """The version that the set has with these cases; None if they differ from the newest version."""
        lines = self._lines()
        if not lines:
            return None
        head = _decode_head(lines[-1])
        return head.version if head.digest == _digest(cases) else None

    def versions(self) -> list[EvalSetVersion]:
        """All versions, oldest first."""
        names = EvalSetVersion.__struct_fields__
        return [EvalSetVersion(**{name: getattr(line, name) for name in names}) for line in map(_decode, self._lines())]

    def cases_of(self, version: int) -> list[EvalCase] | None:
        """The cases of a version; None if there is no such version."""
        found: dict[str, EvalCase] = {}
        for line in map(_decode, self._lines()):
            _apply(line, found)
            if line.version == version:
                return list(found.values())
        return None

    def record(self, cases: Iterable[EvalCase]) -> int | None:
        """Returns the version with these cases, which is a new one if they differ from the newest version. The first
        version is the first one with cases; None before it.
        """
        now = {case.eval_id: case for case in cases}
        before: dict[str, EvalCase] = {}
        newest: _Line | None = None
        for newest in map(_decode, self._lines()):
            _apply(newest, before)

        if newest is None and not now:
            return None
        digest = _digest(now.values())
        if newest is not None and newest.digest == digest:
            return newest.version

        added = [name for name in now if name not in before]
        changed = [name for name, case in now.items() if name in before and before[name].digest() != case.digest()]
        line = _Line(
            version=1 if newest is None else newest.version + 1,
            created_at=time.time(),
            added=added,
            changed=changed,
            removed=[name for name in before if name not in now],
            size=len(now),
            digest=digest,
            cases=[now[name] for name in (*added, *changed)],
        )
        self._append(wire.encode(line) + b"\n")
        return line.version

    def delete(self) -> None:
        self._path.unlink(missing_ok=True)

    def _lines(self) -> list[bytes]:
        """The lines that were written whole."""
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return []
        return [line + b"\n" for line in data.split(b"\n")[:-1]]

    def _append(self, line: bytes) -> None:
        with self._path.open("rb+") as file:
            whole = sum(len(line) for line in self._lines())
            file.truncate(whole)  # without a line that a killed process has begun
            file.seek(whole)
            file.write(line)
            file.flush()
            os.fsync(file.fileno())


def _apply(line: _Line, cases: dict[str, EvalCase]) -> None:
    cases.update((case.eval_id, case) for case in line.cases)
    for name in line.removed:
        cases.pop(name, None)


def _digest(cases: Iterable[EvalCase]) -> str:
    entries = sorted(f"{case.eval_id}\0{case.digest()}" for case in cases)
    return sha256("\n".join(entries).encode(errors="surrogatepass")).hexdigest()[:16]
