"""`greenroom sessions`: stored conversations."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

from cyclopts import App, Parameter

from greenroom.cli import data_folder
from greenroom.cli.event_lines import EventLines
from greenroom.cli.server_flags import AgentsDir, ApiKey, ServerUrl, check_not_with_server, client_for
from greenroom.cli.terminal import note, print_line, print_table
from greenroom.errors import CallerError

if TYPE_CHECKING:
    from greenroom.records.session import ListEventsResponse, ListSessionsResponse, Session
    from greenroom.sessions.service import BaseSessionService

app = App(name="sessions", help="Stored conversations.")

_PAGE = 500
_USER = "user"


@app.command(name="list")
def list_sessions(
    agents_dir: AgentsDir = Path(),
    /,
    *,
    app: str | None = None,
    user: str | None = None,
    session_service: str | None = None,
    limit: int = 50,
    url: ServerUrl = None,
    api_key: ApiKey = None,
) -> None:
    """Show the conversations of a folder's apps, the latest last.

    They are read from the store itself; no server has to run. A server lists those of one user.

        greenroom sessions list examples

        greenroom sessions list --session-service sqlite:///chats.db --app weather --user ada

        greenroom sessions list --url https://agents.example.com --user ada

    Parameters
    ----------
    agents_dir
        The folder that was served.
    app
        Only the conversations of this app; it needn't be in the folder any more.
    user
        Only those of this user. On a server: `user`, if it is left out.
    session_service
        Where they are kept: `sqlite:///file.db`. Else: `DIR/.greenroom/greenroom.db`, as the server does.
    limit
        At most so many, the latest.
    """
    opened = _open(agents_dir, session_service, url, api_key, app, user)
    found = asyncio.run(_latest(*opened, limit))
    if not found:
        note("There are no such conversations.")
        return
    times = [datetime.fromtimestamp(session.last_update_time).strftime("%Y-%m-%d %H:%M:%S") for session in found]
    rows = [(session.app_name, session.user_id, session.id, at) for session, at in zip(found, times, strict=True)]
    print_table(("app", "user", "session", "updated"), rows)


@app.command
def show(
    session_id: Annotated[str, Parameter(name="SESSION")],
    agents_dir: AgentsDir = Path(),
    /,
    *,
    app: str | None = None,
    user: str | None = None,
    session_service: str | None = None,
    url: ServerUrl = None,
    api_key: ApiKey = None,
) -> None:
    """Print a conversation: what was said, the tool calls, and the state at its end.

    The text goes to the standard output, everything else to the standard error.

        greenroom sessions show 0198c1b2 examples

        greenroom sessions show 0198c1b2 --url https://agents.example.com --user ada

    Parameters
    ----------
    session_id
        Its id, or how it begins.
    agents_dir
        The folder that was served.
    app
        The app it belongs to, if several apps have one of this id.
    user
        The user it belongs to. On a server: `user`, if it is left out.
    session_service
        Where it is kept: `sqlite:///file.db`. Else: `DIR/.greenroom/greenroom.db`, as the server does.
    """
    opened = _open(agents_dir, session_service, url, api_key, app, user)
    asyncio.run(_show(*opened, session_id))


def _open(
    agents_dir: Path, session_service: str | None, url: str | None, api_key: str | None, app: str | None,
    user: str | None,
) -> tuple[_Stored, list[str] | None, str | None]:  # fmt: skip
    """The store of a folder or the client of a server, its apps or None for all of them, and the user."""
    if url:
        check_not_with_server(DIR=agents_dir != Path(), session_service=session_service is not None)
        return client_for(url, api_key), [app] if app else None, user or _USER
    store = open_store(agents_dir, session_service)
    return store, apps_of(store, agents_dir, app), user


def open_store(agents_dir: Path, uri: str | None) -> BaseSessionService:
    from greenroom.sessions.from_uri import session_service_from_uri

    if uri is None:
        path = data_folder.database_path(agents_dir)
        if not path.is_file():
            raise CallerError(
                f"There are no conversations of {str(agents_dir)!r}: {path} doesn't exist. "
                "Name the folder that was served, or --session-service"
            )
        uri = data_folder.session_service_uri(agents_dir)
    return session_service_from_uri(uri)


def apps_of(store: BaseSessionService, agents_dir: Path, app: str | None) -> list[str] | None:
    """The app; else None for all that have sessions, or those of the folder where the store can't list them."""
    return app_names(agents_dir, app) if store.is_remote or app is not None else None


def app_names(agents_dir: Path, app: str | None) -> list[str]:
    if app is not None:
        return [app]
    from greenroom.apps.load_directory import DirectoryAppLoader

    names = DirectoryAppLoader(agents_dir).list_apps()
    if not names:
        raise CallerError(f"There are no apps in {str(agents_dir)!r}; name one with --app")
    return names


class _Stored(Protocol):
    """Common methods of a session service and the client. user_id: None, for all users, only of the service."""

    async def list_apps(self) -> list[str]: ...

    async def list_sessions(
        self, *, app_name: str, user_id: Any, limit: int | None = None, page_token: str | None = None
    ) -> ListSessionsResponse: ...

    async def list_events(
        self, *, app_name: str, user_id: str, session_id: str, after: int = 0, limit: int | None = None
    ) -> ListEventsResponse: ...

    async def close(self) -> None: ...


async def _latest(service: _Stored, apps: list[str] | None, user: str | None, limit: int) -> list[Session]:
    """apps: all by default."""
    async with data_folder.closing(service):
        found: list[Session] = []
        for app_name in apps or await service.list_apps():
            found += [session async for session in newest(service, app_name, user, limit)]
        found.sort(key=lambda session: session.last_update_time)
        return found[-limit:] if limit > 0 else []


async def _show(service: _Stored, apps: list[str] | None, user: str | None, session_id: str) -> None:
    async with data_folder.closing(service):
        session = await find_session(service, apps or await service.list_apps(), user, session_id)
        note(f"app {session.app_name}, user {session.user_id}, session {session.id}")
        lines = EventLines(shows_user=True)
        after = 0
        while True:
            page = await service.list_events(**session.key._asdict(), after=after, limit=_PAGE)
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


async def find_session(service: _Stored, apps: list[str], user: str | None, session_id: str) -> Session:
    """Without its events. session_id: the id, or how it begins. Raises CallerError."""
    fitting = [
        session
        for app_name in apps
        async for session in newest(service, app_name, user)
        if session.id.startswith(session_id)
    ]
    found = [session for session in fitting if session.id == session_id] or fitting
    if not found:
        raise CallerError(f"There is no session {session_id!r} in the apps {', '.join(apps)}")
    if len(found) > 1:
        matches = "; ".join(f"{s.id} of app {s.app_name}, user {s.user_id}" for s in found[:10])
        raise CallerError(f"Several sessions fit {session_id!r} ({matches}): give more of the id, or --app and --user")
    return found[0]


async def newest(service: _Stored, app_name: str, user: str | None, limit: float = math.inf) -> AsyncIterator[Session]:
    """At most `limit` sessions without their events, newest update first."""
    page_token: str | None = None
    while limit > 0:
        size = int(min(limit, _PAGE))
        page = await service.list_sessions(app_name=app_name, user_id=user, limit=size, page_token=page_token)
        for session in page.sessions:
            yield session
        limit -= len(page.sessions)
        page_token = page.next_page_token
        if page_token is None:
            return
