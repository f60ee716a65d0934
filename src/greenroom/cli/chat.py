"""A chat in a terminal, with an app of this process or on a server: lines in, events out."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from platformdirs import user_state_path

from greenroom.cli.event_lines import EventLines
from greenroom.cli.parameters import client_for
from greenroom.cli.terminal import console, is_debugging, note, show_error
from greenroom.errors import AppNotFound, SessionNotFound
from greenroom.records.event import Event

if TYPE_CHECKING:
    from greenroom.client.async_client import AsyncClient

_HISTORY_LENGTH = 1000
_PROMPT = "you> "


class ChatPartner(NamedTuple):
    """An agent to chat with in one session."""

    name: str
    answer: Callable[[str], AsyncIterator[Event]]
    """Yields the events that follow a message. Cancelling its reader stops the run."""


async def send_message(partner: ChatPartner, text: str, lines: EventLines) -> bool:
    """Prints the answer to a message while it arrives. False if it failed."""
    lines.has_failed = False
    try:
        async for event in partner.answer(text):
            lines.show(event)
    except Exception as error:  # agents, models and tools raise anything; the conversation continues
        lines.end_line()
        if not lines.has_failed or is_debugging():
            show_error(error)
        return False
    finally:
        lines.end_line()
    return not lines.has_failed


def chat(loop: asyncio.Runner, partner: ChatPartner) -> None:
    """Chats until the input ends, or Ctrl-C is pressed at the prompt or twice during an answer."""
    is_terminal = sys.stdin.isatty()
    if is_terminal:
        note(f"Talking to {partner.name}. Ctrl-C stops an answer, Ctrl-D ends the chat.")

    lines = EventLines()
    with _line_history() if is_terminal else contextlib.nullcontext():
        while True:
            try:
                text = input(_PROMPT if is_terminal else "").strip()
            except (EOFError, KeyboardInterrupt):
                if is_terminal:
                    console("output").print()
                return

            if text in ("exit", "quit"):
                return
            if text:
                lines.forget_author()
                if not _answer_until_interrupted(loop, partner, text, lines):
                    return


def _answer_until_interrupted(loop: asyncio.Runner, partner: ChatPartner, text: str, lines: EventLines) -> bool:
    """False if the answer had not stopped when Ctrl-C was pressed a second time."""
    is_over = False

    async def answer() -> None:
        nonlocal is_over
        with _cancelled_by_interrupt():
            try:
                await send_message(partner, text, lines)
            except asyncio.CancelledError:
                is_over = True
                raise
            is_over = True

    try:
        # The first SIGINT cancels the answer, which then closes its run in the session. The second one raises wherever
        # it finds it.
        loop.run(answer())
    except (asyncio.CancelledError, KeyboardInterrupt):
        note("stopped" if is_over else "left before the answer had stopped", "yellow")
    return is_over


@contextlib.contextmanager
def _cancelled_by_interrupt() -> Generator[None]:
    """Cancels the running task at the first SIGINT.

    `asyncio.Runner` does so, too, but a signal that arrives just before the loop begins to wait doesn't wake it. The
    loop's own handlers do.
    """
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None

    def cancel() -> None:
        loop.remove_signal_handler(signal.SIGINT)
        task.cancel()

    try:
        loop.add_signal_handler(signal.SIGINT, cancel)
    except (NotImplementedError, RuntimeError):  # as on Windows, and outside the main thread
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)


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
async def connect(
    url: str, api_key: str | None, app: str, user: str, session_id: str | None
) -> AsyncGenerator[ChatPartner]:
    """Connects to an app on a server, in the session with this id, which is created if it doesn't exist.

    Cancelling an answer cancels its run.
    """
    async with client_for(url, api_key) as client:
        opened_id = await _find_or_create_session(client, app, user, session_id)

        async def answer(text: str) -> AsyncGenerator[Event]:
            stream = await client.run(app_name=app, user_id=user, session_id=opened_id, message=text, streaming=True)
            try:
                async for event in stream:
                    yield event
            except asyncio.CancelledError:
                await client.cancel_run(stream.run.id)
                raise

        yield ChatPartner(app, answer)


async def _find_or_create_session(client: AsyncClient, app: str, user: str, session_id: str | None) -> str:
    """Returns its id."""
    if session_id is not None:
        with contextlib.suppress(SessionNotFound):
            page = await client.list_events(app_name=app, user_id=user, session_id=session_id, limit=1)
            if page.events:
                note(f"Continuing session {session_id!r}")
            return session_id

    apps = await client.list_apps()
    if app not in apps:  # a server may accept sessions of apps that it doesn't have
        raise AppNotFound(app, apps)
    session = await client.create_session(app_name=app, user_id=user, session_id=session_id)
    note(f"session {session.id}")
    return session.id
