"""What is wrong in a configuration file, and where."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path

from greenroom.errors import AgentConfigError

_LISTED = 12


class ConfigFileError(AgentConfigError):
    """line: from 1; None when the file as a whole is meant. key: the path to it, as in `tools[0].args.agent`.

    shown: how messages name the file; by default its whole path.
    """

    def __init__(
        self, file: Path, problem: str, *, line: int | None = None, key: str = "", shown: str | None = None
    ) -> None:
        place = shown if shown is not None else str(file)
        if line is not None:
            place = f"{place}:{line}"
        super().__init__(": ".join(part for part in (place, key, problem) if part))
        self.file, self.line, self.key, self.problem = file, line, key, problem


def did_you_mean(given: str, valid: Iterable[str], *, otherwise: str | None = None) -> str:
    """The end of a sentence: what was probably meant, else all that would be right, or `otherwise`."""
    names = sorted(set(valid))
    lowered = {name.lower(): name for name in names}
    close = difflib.get_close_matches(given.lower(), lowered, n=1, cutoff=0.6)
    if close:
        return f"; did you mean {lowered[close[0]]!r}?"
    if otherwise is not None or not names:
        return otherwise or ""
    more = f", … ({len(names)} in all)" if len(names) > _LISTED else ""
    return f"; known: {', '.join(names[:_LISTED])}{more}"
