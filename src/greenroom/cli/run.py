"""`greenroom run`: chats with an agent in this terminal, without a server or on one."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from greenroom.cli import data_folder
from greenroom.cli.event_lines import EventLines
from greenroom.cli.find_agent import find_app
from greenroom.cli.parameters import ApiKey, ServerUrl, check_not_with_server
from greenroom.cli.serving import configured_keys
from greenroom.cli.terminal import note

if TYPE_CHECKING:
    from greenroom.apps.app import App
    from greenroom.cli.chat import ChatPartner
    from greenroom.records.event import Event

_IN_MEMORY = "memory://"


def run(
    agent: Annotated[str, Parameter(name="AGENT")],
    message: Annotated[str | None, Parameter(name="MESSAGE")] = None,
    /,
    *,
    session_service: str = _IN_MEMORY,
    user: str = "user",
    session: str | None = None,
    url: ServerUrl = None,
    api_key: ApiKey = None,
) -> None:
    """Chat with an agent in this terminal.

    With MESSAGE, the agent answers it and the command ends: text goes to standard output, tool calls to standard error.
    Without it, a chat starts: Ctrl-C stops an answer or, at the prompt, ends the chat.

        greenroom run examples/help_desk

        greenroom run examples:help_desk "My last bill is too high" 2> /dev/null

        greenroom run agents/weather --session-service sqlite:///chats.db --session holiday

        greenroom run weather --url https://agents.example.com --session holiday

    Parameters
    ----------
    agent
        An agent's folder, or `FOLDER:NAME` for one agent in a folder of agents. `:NAME` can be left out if there is
        only one. With `--url`: the app's name.
    message
        The message to send.
    session_service
        The session store, for example `sqlite:///file.db`; with `memory://`, nothing is stored. Not with `--url`.
    user
        The user's ID.
    session
        The ID of the session to continue. It is created if it doesn't exist.
    """
    from greenroom.cli.chat import chat, connect, send_message

    if url:
        check_not_with_server(session_service=session_service != _IN_MEMORY)
        opened = connect(url, api_key, agent, user, session)
    else:
        opened = _in_process(find_app(agent), session_service, user, session)

    with asyncio.Runner() as loop:
        partner = loop.run(opened.__aenter__())
        try:
            if message is None:
                chat(loop, partner)
            elif not loop.run(send_message(partner, message, EventLines())):
                sys.exit(1)
        finally:
            loop.run(opened.__aexit__(None, None, None))


@contextlib.asynccontextmanager
async def _in_process(app: App, session_service: str, user: str, session_id: str | None) -> AsyncGenerator[ChatPartner]:
    """Runs the app in this process."""
    from greenroom.artifacts.in_memory import InMemoryArtifactService
    from greenroom.cli.chat import ChatPartner
    from greenroom.memory.in_memory import InMemoryMemoryService
    from greenroom.models.by_name import LLMRegistry
    from greenroom.records.content import UserContent
    from greenroom.records.run import RunConfig, StreamingMode
    from greenroom.runner.runner import Runner
    from greenroom.sessions.from_uri import session_service_from_uri

    sessions = session_service_from_uri(session_service, keys=configured_keys(Path()))
    runner = Runner(
        app=app,
        session_service=sessions,
        artifact_service=InMemoryArtifactService(),
        memory_service=InMemoryMemoryService(),
    )
    async with data_folder.closing(runner, LLMRegistry, sessions):
        session = None
        if session_id is not None:
            session = await sessions.get_session(app_name=app.name, user_id=user, session_id=session_id)
        if session is None:
            session = await sessions.create_session(app_name=app.name, user_id=user, session_id=session_id)
        elif session.events:
            note(f"Continuing session {session.id!r} ({len(session.events)} events)")
        opened_id = session.id

        def answer(text: str) -> AsyncIterator[Event]:
            return runner.run_async(
                user_id=user,
                session_id=opened_id,
                new_message=UserContent(text),
                run_config=RunConfig(streaming_mode=StreamingMode.SSE),
            )

        yield ChatPartner(runner.agent.name, answer)
