"""A conversation in a terminal: lines in, events out."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable, Generator
from pathlib import Path
from typing import NamedTuple

from platformdirs import user_state_path

from greenroom.cli.event_lines import EventLines
from greenroom.cli.terminal import is_debugging, note, output, show_error
from greenroom.records.event import Event

_HISTORY_LENGTH = 1000
_PROMPT = "you> "


class Conversation(NamedTuple):
    """name: of who answers. turn: the events that follow a message; the turn is stopped by cancelling their reader."""

    name: str
    turn: Callable[[str], AsyncIterator[Event]]


async def say(conversation: Conversation, text: str, lines: EventLines) -> bool:
    """One turn, shown as it goes; whether it went well."""
    lines.has_failed = False
    try:
        async for event in conversation.turn(text):
            lines.show(event)
    except Exception as error:  # agents, models and tools raise anything; the conversation goes on
        lines.end_line()
        if not lines.has_failed or is_debugging():
            show_error(error)
        return False
    finally:
        lines.end_line()
    return not lines.has_failed


def chat(loop: asyncio.Runner, conversation: Conversation) -> None:
    """Turn by turn until the input ends, or Ctrl-C is pressed at the prompt or twice in a turn."""
    is_terminal = sys.stdin.isatty()
    if is_terminal:
        note(f"Talking to {conversation.name}. Ctrl-C stops an answer, Ctrl-D leaves.")
    lines = EventLines()
    with _line_history() if is_terminal else contextlib.nullcontext():
        while True:
            try:
                text = input(_PROMPT if is_terminal else "").strip()
            except (EOFError, KeyboardInterrupt):
                if is_terminal:
                    output.print()
                return
            if text in ("exit", "quit"):
                return
            if text:
                lines.forget_author()
                if not _turn(loop, conversation, text, lines):
                    return


def _turn(loop: asyncio.Runner, conversation: Conversation, text: str, lines: EventLines) -> bool:
    """False when the turn has not stopped after Ctrl-C, which was then pressed again."""
    is_over = False

    async def turn() -> None:
        nonlocal is_over
        try:
            await say(conversation, text, lines)
        except asyncio.CancelledError:
            is_over = True
            raise
        is_over = True

    try:
        # Its first SIGINT cancels the turn, which is then closed in the session; the second one breaks in, wherever it
        # finds it.
        loop.run(turn())
    except KeyboardInterrupt:
        note("stopped" if is_over else "left while the turn was still stopping", "yellow")
    return is_over


@contextlib.contextmanager
def _line_history() -> Generator[None]:
    """Arrow keys, and the lines of earlier chats."""
    try:
        import readline
    except ImportError:  # as on Windows
        yield
        return
    path: Path = user_state_path("greenroom", appauthor=False) / "chat_history"
    with contextlib.suppress(OSError):
        readline.read_history_file(path)
    readline.set_history_length(_HISTORY_LENGTH)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            readline.write_history_file(path)
