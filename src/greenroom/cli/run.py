"""`greenroom run`: an agent in this terminal, without a server or on one."""

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
from greenroom.cli.server_flags import ApiKey, ServerUrl, check_not_with_server
from greenroom.cli.terminal import note
from greenroom.errors import AppNotFound, CallerError

if TYPE_CHECKING:
    from greenroom.apps.app import App
    from greenroom.apps.load_directory import DirectoryAppLoader
    from greenroom.cli.chat import Conversation
    from greenroom.records.event import Event

_NOT_KEPT = "memory://"


def run(
    agent: Annotated[str, Parameter(name="AGENT")],
    message: Annotated[str | None, Parameter(name="MESSAGE")] = None,
    /,
    *,
    session_service: str = _NOT_KEPT,
    user: str = "user",
    session: str | None = None,
    url: ServerUrl = None,
    api_key: ApiKey = None,
) -> None:
    """Talk to an agent in this terminal.

    With a message, the agent answers it and that is all; its text goes to the standard output, its tool calls to the
    standard error. Without one, you can chat: Ctrl-C stops an answer, and leaves at the prompt.

        greenroom run examples/help_desk

        greenroom run examples:help_desk "My last bill is too high" 2> /dev/null

        greenroom run agents/weather --session-service sqlite:///chats.db --session holiday

        greenroom run weather --url https://agents.example.com --session holiday

    Parameters
    ----------
    agent
        A folder with an `agent.py` or a `root_agent.yaml`, a folder that holds one such folder, or one that holds
        several with the name of the one that is meant: `agents:weather`. On a server: the app's name.
    message
        What to say to the agent.
    session_service
        Where the conversation is kept: `sqlite:///file.db`, or `memory://` for not at all. A server keeps it itself.
    user
        The user who is talking.
    session
        The session to continue; it is created if there is none with this id.
    """
    from greenroom.cli.chat import chat, say

    if url:
        from greenroom.cli.chat import remote_conversation

        check_not_with_server(session_service=session_service != _NOT_KEPT)
        opened = remote_conversation(url, api_key, agent, user, session)
    else:
        opened = _conversation(find_app(agent), session_service, user, session)
    with asyncio.Runner() as loop:
        conversation = loop.run(opened.__aenter__())
        try:
            if message is not None:
                lines = EventLines()
                if not loop.run(say(conversation, message, lines)):
                    sys.exit(1)
            else:
                chat(loop, conversation)
        finally:
            loop.run(opened.__aexit__(None, None, None))


def find_app(given: str) -> App:
    """Raises CallerError when it isn't clear which app is meant, AppNotFound, AgentConfigError, AppLoadError."""
    loader, name = find_loader(given)
    return loader.load(name)


def find_loader(given: str) -> tuple[DirectoryAppLoader, str]:
    """The loader, and the name of the app that is meant. Raises as `find_app`."""
    from greenroom.apps.load_directory import DirectoryAppLoader

    folder, separator, name = given.rpartition(":")
    if not separator or Path(given).exists():
        folder, name = given, ""
    loader = DirectoryAppLoader(folder)
    apps = loader.list_apps()
    if name:
        if name not in apps:
            raise AppNotFound(name, apps)
        return loader, name
    if not apps:
        raise CallerError(f"There is no agent in {folder!r}: an agent is a folder with an agent.py in it")
    if len(apps) > 1:
        raise CallerError(
            f"There are several agents in {folder!r}; say which one, as in {folder}:{apps[0]}. "
            f"They are: {', '.join(apps)}"
        )
    return loader, apps[0]


@contextlib.asynccontextmanager
async def _conversation(
    app: App, session_service: str, user: str, session_id: str | None
) -> AsyncGenerator[Conversation]:
    from greenroom.artifacts.in_memory import InMemoryArtifactService
    from greenroom.cli.chat import Conversation
    from greenroom.memory.in_memory import InMemoryMemoryService
    from greenroom.models.by_name import LLMRegistry
    from greenroom.records.content import UserContent
    from greenroom.records.run import RunConfig, StreamingMode
    from greenroom.runner.runner import Runner
    from greenroom.sessions.from_uri import session_service_from_uri

    sessions = session_service_from_uri(session_service)
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

        def turn(text: str) -> AsyncIterator[Event]:
            message, streamed = UserContent(text), RunConfig(streaming_mode=StreamingMode.SSE)
            return runner.run_async(user_id=user, session_id=opened_id, new_message=message, run_config=streamed)

        yield Conversation(runner.agent.name, turn)
