"""Output of commands: results to standard output, everything about them to standard error."""

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

_UNLIMITED = 100_000
"""Columns of a line that is never broken."""

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def is_debugging() -> bool:
    return os.environ.get("GREENROOM_DEBUG", "").lower() not in ("", "0", "false", "no")


def printable(text: str) -> str:
    """Removes control characters, with which the text of a model or a tool could control the terminal."""
    return _CONTROL.sub("", text)


def print_line(text: str) -> None:
    """Prints text to standard output, without control characters and markup."""
    console("output").print(printable(text), markup=False)


def note(text: str, style: str = "dim") -> None:
    """Prints text to standard error."""
    from rich.text import Text

    console("notes").print(Text(printable(text), style))


def print_pieces(pieces: Iterable[tuple[str, str]]) -> None:
    """Prints texts with their styles. Does without rich if the output is no terminal."""
    if sys.stdout.isatty():
        from rich.text import Text

        console("output").print(Text.assemble(*pieces))
    else:
        print("".join(text for text, _ in pieces), flush=True)


@cache
def console(name: str) -> Console:
    """Standard output or standard error. It is made on first use: loading rich takes a tenth of a server's start.

    name: `output` or `notes`.
    """
    from rich.console import Console

    return Console(stderr=name == "notes", highlight=False, soft_wrap=True)


def print_table(columns: Iterable[str], rows: Iterable[Iterable[str]], *, wrapped: str = "") -> None:
    """Prints a table to standard output.

    wrapped: the column whose texts may be broken into several lines. Without one, rows may be longer than the lines of
    the terminal: an id that is cut off can't be copied.
    """
    from rich.segment import Segments
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, no_wrap=column != wrapped)
    for row in rows:
        table.add_row(*map(printable, row))

    stdout = console("output")
    options = stdout.options if wrapped else stdout.options.update(max_width=_UNLIMITED)
    stdout.print(Segments(stdout.render(table, options)))


def show_error(error: BaseException) -> None:
    """Prints an error in one line, after its traceback when debugging."""
    if is_debugging():
        console("notes").print_exception()
    if isinstance(error, GreenroomError):
        note(error.detail, "red")
    else:
        hint = "" if is_debugging() else " (use --debug for the traceback)"
        note(f"{type(error).__name__}: {error}{hint}", "red")
