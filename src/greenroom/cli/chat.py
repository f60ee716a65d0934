"""A conversation in a terminal, with an app of this process or on a server: lines in, events out."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from platformdirs import user_state_path

from greenroom.cli.event_lines import EventLines
from greenroom.cli.server_flags import client_for
from greenroom.cli.terminal import is_debugging, note, output, show_error
from greenroom.errors import AppNotFound, SessionNotFound
from greenroom.records.event import Event

if TYPE_CHECKING:
    from greenroom.client.async_client import AsyncClient

_HISTORY_LENGTH = 1000
_PROMPT = "you> "


class Conversation(NamedTuple):
    """name: of the agent. turn: yields the events that follow a message; cancelling its reader stops the turn."""

    name: str
    turn: Callable[[str], AsyncIterator[Event]]


async def say(conversation: Conversation, text: str, lines: EventLines) -> bool:
    """One turn, shown as it goes; whether it went well."""
    lines.has_failed = False
    try:
        async for event in conversation.turn(text):
            lines.show(event)
    except Exception as error:  # agents, models and tools raise anything; the conversation continues
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


@contextlib.asynccontextmanager
async def remote_conversation(
    url: str, api_key: str | None, app: str, user: str, session_id: str | None
) -> AsyncGenerator[Conversation]:
    """A conversation in the session with this id, which is created if missing. Cancelling a turn cancels its run."""
    async with client_for(url, api_key) as client:
        opened_id = await _opened(client, app, user, session_id)

        async def turn(text: str) -> AsyncGenerator[Event]:
            stream = await client.run(app_name=app, user_id=user, session_id=opened_id, message=text, streaming=True)
            try:
                async for event in stream:
                    yield event
            except asyncio.CancelledError:
                await client.cancel_run(stream.run.id)
                raise

        yield Conversation(app, turn)


async def _opened(client: AsyncClient, app: str, user: str, session_id: str | None) -> str:
    """The session's id."""
    if session_id is not None:
        with contextlib.suppress(SessionNotFound):
            begun = await client.list_events(app_name=app, user_id=user, session_id=session_id, limit=1)
            if begun.events:
                note(f"Continuing session {session_id!r}")
            return session_id
    known = await client.list_apps()
    if app not in known:  # sessions can be opened for apps that aren't there
        raise AppNotFound(app, known)
    session = await client.create_session(app_name=app, user_id=user, session_id=session_id)
    note(f"session {session.id}")
    return session.id
