"""The results of a run that has not ended yet, so that it can be continued after its process was
killed.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from greenroom.evaluation.records import EvalCaseResult
from greenroom.records import wire

_decode = wire.decoder(EvalCaseResult)


class Journal:
    """A file for one combination of set, metrics, samples and version of the app. Lines are written
    as cases end.
    """

    def __init__(self, folder: Path, *identity: object) -> None:
        """Opens the journal in a folder. Its name is a hash of `identity`: JSON values on which the results depend."""
        name = hashlib.sha256(wire.encode(identity)).hexdigest()[:32]
        self._path = folder / f".{name}.unfinished.jsonl"

    def read(self) -> list[EvalCaseResult]:
        """Returns the results of an earlier run. A line that was not written whole is cut off."""
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return []

        complete = data.rpartition(b"\n")[0]
        if len(complete) + 1 < len(data):
            os.truncate(self._path, len(complete) + 1 if complete else 0)

        return [_decode(line) for line in complete.splitlines()]

    def add(self, result: EvalCaseResult) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab", buffering=0) as file:
            file.write(wire.encode(result) + b"\n")

    def delete(self) -> None:
        self._path.unlink(missing_ok=True)
