"""A conversation on a server, through the client."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator

from greenroom.cli.chat import Conversation
from greenroom.cli.server_flags import client_for
from greenroom.cli.terminal import note
from greenroom.client.async_client import AsyncClient
from greenroom.errors import SessionNotFound
from greenroom.records.event import Event


@contextlib.asynccontextmanager
async def remote_conversation(
    url: str, api_key: str | None, app: str, user: str, session_id: str | None
) -> AsyncGenerator[Conversation]:
    """In the session with this id, which is opened if there is none. Who stops reading a turn stops its run."""
    async with client_for(url, api_key) as client:
        place = await _opened(client, app, user, session_id)

        async def turn(text: str) -> AsyncGenerator[Event]:
            stream = await client.run(app_name=app, user_id=user, session_id=place, message=text, streaming=True)
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
                note(f"Going on with session {session_id!r}")
            return session_id
    await client.get_app_info(app)  # sessions can be opened for apps that aren't there
    session = await client.create_session(app_name=app, user_id=user, session_id=session_id)
    note(f"session {session.id}")
    return session.id
