"""Output of commands: answers to the standard output, everything about them to the standard error."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING

from greenroom.errors import GreenroomError

if TYPE_CHECKING:
    from rich.console import Console

    output: Console
    notes: Console

_UNLIMITED = 100_000
"""Columns of a line that is never broken."""

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def is_debugging() -> bool:
    return os.environ.get("GREENROOM_DEBUG", "").lower() not in ("", "0", "false", "no")


def printable(text: str) -> str:
    """Without the control characters by which a model or a tool could command the terminal."""
    return _CONTROL.sub("", text)


def print_line(text: str) -> None:
    """Prints text to the standard output, without control characters and markup."""
    _console("output").print(printable(text), markup=False)


def note(text: str, style: str = "dim") -> None:
    from rich.text import Text

    _console("notes").print(Text(printable(text), style))


def print_pieces(pieces: Iterable[tuple[str, str]]) -> None:
    """Prints texts with their styles; without the library that draws them if the output is no terminal."""
    if sys.stdout.isatty():
        from rich.text import Text

        _console("output").print(Text.assemble(*pieces))
    else:
        print("".join(text for text, _ in pieces), flush=True)


def __getattr__(name: str) -> Console:
    if name in ("output", "notes"):
        return _console(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@cache
def _console(name: str) -> Console:
    """`output` or `notes`, made on first use: loading rich takes a tenth of a server's start."""
    from rich.console import Console

    return Console(stderr=name == "notes", highlight=False, soft_wrap=True)


def print_table(columns: Iterable[str], rows: Iterable[Iterable[str]], *, wrapped: str = "") -> None:
    """wrapped: the column whose texts may go over several lines. Without one, a row may be longer than a line of the
    terminal: an id that is cut off can't be copied."""
    from rich.segment import Segments
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, no_wrap=column != wrapped)
    for row in rows:
        table.add_row(*map(printable, row))
    console = _console("output")
    options = console.options if wrapped else console.options.update(max_width=_UNLIMITED)
    console.print(Segments(console.render(table, options)))


def show_error(error: BaseException) -> None:
    if is_debugging():
        _console("notes").print_exception()
    if isinstance(error, GreenroomError):
        note(error.detail, "red")
    else:
        hint = "" if is_debugging() else " (--debug shows where)"
        note(f"{type(error).__name__}: {error}{hint}", "red")
