"""Where commands write to: answers to the standard output, everything about them to the standard error."""

from __future__ import annotations

import os
import re

from rich.console import Console
from rich.text import Text

from greenroom.errors import GreenroomError

output = Console(highlight=False, soft_wrap=True)
notes = Console(stderr=True, highlight=False, soft_wrap=True)

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def is_debugging() -> bool:
    return os.environ.get("GREENROOM_DEBUG", "").lower() not in ("", "0", "false", "no")


def printable(text: str) -> str:
    """Without the control characters by which a model or a tool could command the terminal."""
    return _CONTROL.sub("", text)


def note(text: str, style: str = "dim") -> None:
    notes.print(Text(printable(text), style))


def show_error(error: BaseException) -> None:
    if is_debugging():
        notes.print_exception()
    if isinstance(error, GreenroomError):
        note(error.detail, "red")
    else:
        hint = "" if is_debugging() else " (--debug shows where)"
        note(f"{type(error).__name__}: {error}{hint}", "red")
