"""`greenroom sessions`: lists and shows stored sessions."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Protocol

from cyclopts import App, Parameter

from greenroom.cli import data_folder
from greenroom.cli.event_lines import EventLines
from greenroom.cli.parameters import AgentsDir, ApiKey, ServerUrl, SessionStore, check_not_with_server, client_for
from greenroom.cli.serving import configured_keys, session_service_of
from greenroom.cli.terminal import note, print_line, print_table
from greenroom.errors import CallerError

if TYPE_CHECKING:
    from greenroom.records.session import ListEventsResponse, ListSessionsResponse, Session
    from greenroom.sessions.service import BaseSessionService

app = App(name="sessions", help="List, show and move stored sessions.")

_PAGE_SIZE = 500
_DEFAULT_USER = "user"


@app.command(name="list")
def list_sessions(
    agents_dir: AgentsDir = Path(),
    /,
    *,
    app: str | None = None,
    user: str | None = None,
    session_service: SessionStore = None,
    limit: int = 50,
    url: ServerUrl = None,
    api_key: ApiKey = None,
) -> None:
    """List sessions, the newest last.

    They are read from the store; no server has to run. With `--url`, a server lists the sessions of one user.

        greenroom sessions list examples

        greenroom sessions list --session-service sqlite:///chats.db --app weather --user ada

        greenroom sessions list --url https://agents.example.com --user ada

    Parameters
    ----------
    app
        Only sessions of this app. The app need not be in the folder any more.
    user
        Only sessions of this user. With `--url`, the default is `user`.
    limit
        The maximum number of sessions. The newest are listed.
    """
    selection = _select(agents_dir, session_service, url, api_key, app, user)
    newest_sessions = asyncio.run(_newest_of_all(selection, limit))
    if not newest_sessions:
        note("No sessions found.")
        return

    rows: list[tuple[str, ...]] = []
    for session in newest_sessions:
        updated = datetime.fromtimestamp(session.last_update_time).strftime("%Y-%m-%d %H:%M:%S")
        rows.append((session.app_name, session.user_id, session.id, updated))
    print_table(("app", "user", "session", "updated"), rows)


@app.command
def show(
    session_id: Annotated[str, Parameter(name="SESSION")],
    agents_dir: AgentsDir = Path(),
    /,
    *,
    app: str | None = None,
    user: str | None = None,
    session_service: SessionStore = None,
    url: ServerUrl = None,
    api_key: ApiKey = None,
) -> None:
    """Show a session: its messages, its tool calls, and its final state.

    Text goes to standard output, everything else to standard error.

        greenroom sessions show 0198c1b2 examples

        greenroom sessions show 0198c1b2 --url https://agents.example.com --user ada

    Parameters
    ----------
    session_id
        The session's ID, or the beginning of it.
    app
        The session's app. Needed if several apps have a session with this ID.
    user
        The session's user. With `--url`, the default is `user`.
    """
    selection = _select(agents_dir, session_service, url, api_key, app, user)
    asyncio.run(_show(selection, session_id))


class _SessionReader(Protocol):
    """The methods that a session service and the client have in common.

    user_id: None, for all users, is only accepted by the service.
    """

    async def list_apps(self) -> list[str]: ...

    async def list_sessions(
        self, *, app_name: str, user_id: Any, limit: int | None = None, page_token: str | None = None
    ) -> ListSessionsResponse: ...

    async def list_events(
        self, *, app_name: str, user_id: str, session_id: str, after: int = 0, limit: int | None = None
    ) -> ListEventsResponse: ...

    async def close(self) -> None: ...


class _Selection(NamedTuple):
    """The sessions that a command line selects."""

    reader: _SessionReader
    apps: list[str] | None
    """None for all apps."""
    user: str | None
    """None for all users."""

    async def app_names(self) -> list[str]:
        return self.apps if self.apps is not None else await self.reader.list_apps()


def _select(
    agents_dir: Path,
    session_service: str | None,
    url: str | None,
    api_key: str | None,
    app: str | None,
    user: str | None,
) -> _Selection:
    """Opens the store of a folder, or a client of a server."""
    if url:
        check_not_with_server(DIR=agents_dir != Path(), session_service=session_service is not None)
        return _Selection(client_for(url, api_key), [app] if app else None, user or _DEFAULT_USER)
    store = open_store(agents_dir, session_service)
    return _Selection(store, apps_of(store, agents_dir, app), user)


def open_store(agents_dir: Path, given: str | None) -> BaseSessionService:
    """Opens the session store of `greenroom serve`. given: its URI on the command line, if any.

    Raises CallerError if the server has stored nothing yet.
    """
    from greenroom.sessions.from_uri import session_service_from_uri

    uri = session_service_of(agents_dir, given)
    path = data_folder.database_path(agents_dir)
    if uri == data_folder.session_service_uri(agents_dir) and not path.is_file():
        raise CallerError(
            f"There are no sessions of {str(agents_dir)!r}: {path} doesn't exist. "
            "Give the agents folder, or a store with --session-service"
        )
    return session_service_from_uri(uri, keys=configured_keys(agents_dir))


def apps_of(store: BaseSessionService, agents_dir: Path, app: str | None) -> list[str] | None:
    """Returns the selected apps, or None for all apps in the store.

    A remote store can't list its apps: there it's the apps of the folder.
    """
    if app is None and not store.is_remote:
        return None
    return app_names(agents_dir, app)


def app_names(agents_dir: Path, app: str | None) -> list[str]:
    """Returns the app, or without one those of the folder. Raises CallerError if there are none."""
    if app is not None:
        return [app]
    from greenroom.apps.load_directory import DirectoryAppLoader

    names = DirectoryAppLoader(agents_dir).list_apps()
    if not names:
        raise CallerError(f"There are no apps in {str(agents_dir)!r}; name one with --app")
    return names


async def _newest_of_all(selection: _Selection, limit: int) -> list[Session]:
    """Returns at most `limit` sessions, the newest last."""
    async with data_folder.closing(selection.reader):
        stored: list[Session] = []
        for app_name in await selection.app_names():
            stored += [session async for session in newest(selection.reader, app_name, selection.user, limit)]
    stored.sort(key=lambda session: session.last_update_time)
    return stored[-limit:] if limit > 0 else []


async def _show(selection: _Selection, session_id: str) -> None:
    reader = selection.reader
    async with data_folder.closing(reader):
        session = await find_session(reader, await selection.app_names(), selection.user, session_id)
        note(f"app {session.app_name}, user {session.user_id}, session {session.id}")

        lines = EventLines(shows_user=True)
        after = 0
        while True:
            page = await reader.list_events(**session.key._asdict(), after=after, limit=_PAGE_SIZE)
            for event in page.events:
                lines.show(event)
            if not page.events:
                break
            after += len(page.events)

        if session.state:
            from greenroom.records import wire

            note("state:", "bold cyan")
            for key, value in sorted(session.state.items()):
                print_line(f"{key} = {wire.encode(value).decode()}")


async def find_session(reader: _SessionReader, apps: list[str], user: str | None, session_id: str) -> Session:
    """Finds a session by its id or the beginning of it. It comes without its events. Raises CallerError."""
    matching: list[Session] = []
    for app_name in apps:
        async for session in newest(reader, app_name, user):
            if session.id.startswith(session_id):
                matching.append(session)

    candidates = [session for session in matching if session.id == session_id] or matching
    if not candidates:
        raise CallerError(f"There is no session {session_id!r} in the apps {', '.join(apps)}")
    if len(candidates) > 1:
        names = "; ".join(f"{one.id} of app {one.app_name}, user {one.user_id}" for one in candidates[:10])
        raise CallerError(f"Several sessions match {session_id!r} ({names}): give more of the ID, or --app and --user")
    return candidates[0]


async def newest(
    reader: _SessionReader, app_name: str, user: str | None, limit: float = math.inf
) -> AsyncIterator[Session]:
    """Yields at most `limit` sessions without their events, the newest update first."""
    page_token: str | None = None
    while limit > 0:
        size = int(min(limit, _PAGE_SIZE))
        page = await reader.list_sessions(app_name=app_name, user_id=user, limit=size, page_token=page_token)
        for session in page.sessions:
            yield session
        limit -= len(page.sessions)
        page_token = page.next_page_token
        if page_token is None:
            return
