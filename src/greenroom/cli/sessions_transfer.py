"""`greenroom sessions export` and `import`: sessions as JSON lines."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Protocol

from cyclopts import Parameter

from greenroom.cli import data_folder
from greenroom.cli.parameters import AgentsDir, SessionStore
from greenroom.cli.serving import configured_keys
from greenroom.cli.sessions import apps_of, open_store
from greenroom.cli.terminal import note
from greenroom.errors import CallerError, NotOffered, SessionExists, SessionNotFound
from greenroom.records.state import REMOVED

if TYPE_CHECKING:
    from greenroom.records.base import JsonObject
    from greenroom.records.exported_session import ExportedSession
    from greenroom.records.feedback import Feedback
    from greenroom.records.session import Session, SessionKey
    from greenroom.runs.store import RunStore
    from greenroom.sessions.service import BaseSessionService

_SHARED = ("app:", "user:")


def export_sessions(
    agents_dir: AgentsDir = Path(),
    /,
    *,
    output: Path | None = None,
    app: str | None = None,
    user: str | None = None,
    session_service: SessionStore = None,
) -> None:
    """Export sessions as JSON lines.

    Each line is one session with its state, its events and the feedback on them.

        greenroom sessions export examples > chats.jsonl

        greenroom sessions export examples --output chats.jsonl

    Parameters
    ----------
    output
        The output file. If it exists, the export continues: sessions that it contains are not written again.
    app
        Only sessions of this app. The app need not be in the folder any more.
    user
        Only sessions of this user.
    """
    service = open_store(agents_dir, session_service)
    source = StoredSessions(service, apps_of(service, agents_dir, app), user, runs=_runs_beside(service, agents_dir))
    if output is None:
        count = asyncio.run(_export(source, sys.stdout.buffer, set()))
    else:
        with output.open("ab+") as file:
            written = _whole_lines(file)
            count = asyncio.run(_export(source, file, written))
    note(f"{count} sessions exported")


def import_sessions(
    file: Annotated[Path, Parameter(name="FILE")],
    agents_dir: AgentsDir = Path(),
    /,
    *,
    session_service: SessionStore = None,
) -> None:
    """Import sessions from an export.

    Existing sessions are not changed, so an import can be repeated.

        greenroom sessions import chats.jsonl examples

        greenroom sessions import chats.jsonl --session-service sqlite:///chats.db

    Parameters
    ----------
    file
        A file that `greenroom sessions export` wrote.
    """
    from greenroom.sessions.from_uri import session_service_from_uri

    uri = session_service or data_folder.session_service_uri(agents_dir)
    service = session_service_from_uri(uri, keys=configured_keys(agents_dir))
    with file.open("rb") as lines:
        count, skipped = asyncio.run(_import(service, _runs_beside(service, agents_dir), lines))
    note(f"{count} sessions imported, {skipped} already existed")


def _runs_beside(service: BaseSessionService, agents_dir: Path) -> RunStore:
    """Opens the store that has the feedback on the sessions."""
    from greenroom.runs.engine import run_store_beside

    database = data_folder.database_path(agents_dir)
    if service.is_remote and database.is_file():
        service.server_database = str(database)
    return run_store_beside(service)


class SessionSource(Protocol):
    """Sessions to be exported or migrated, in the order in which they are read."""

    async def keys(self) -> list[SessionKey]: ...

    async def read(self, key: SessionKey) -> ExportedSession | None:
        """Returns None if it was deleted in the meantime."""
        ...

    async def close(self) -> None: ...


class StoredSessions:
    """The sessions of a store: of some or all apps, and of one or all users."""

    def __init__(
        self,
        service: BaseSessionService,
        apps: list[str] | None = None,
        user: str | None = None,
        *,
        runs: RunStore | None = None,
    ) -> None:
        """Reads the sessions, and with `runs` the feedback on them."""
        self._service = service
        self._apps = apps
        self._user = user
        self._runs = runs

    async def close(self) -> None:
        if self._runs is not None:
            await self._runs.close()
        await self._service.close()

    async def keys(self) -> list[SessionKey]:
        names = await self._service.list_apps() if self._apps is None else self._apps
        keys: list[SessionKey] = []
        for name in names:
            page = await self._service.list_sessions(app_name=name, user_id=self._user)
            keys += [session.key for session in page.sessions]
        return keys

    async def read(self, key: SessionKey) -> ExportedSession | None:
        from greenroom.records.exported_session import ExportedSession
        from greenroom.records.session import GetSessionConfig

        session = await self._service.get_session(**key._asdict())
        if session is None:
            return None
        try:
            start = await self._service.get_session(**key._asdict(), config=GetSessionConfig(until_seq=0))
        except NotOffered:
            start = None
        return ExportedSession(
            id=session.id,
            app_name=session.app_name,
            user_id=session.user_id,
            state=session.state,
            events=session.events,
            last_update_time=session.last_update_time,
            initial_state=own_state(session.state if start is None else start.state),
            feedback=[] if self._runs is None else await _feedback_on(session, self._runs),
        )


async def _feedback_on(session: Session, runs: RunStore) -> list[Feedback]:
    from greenroom.records.feedback import FeedbackFilter

    found: list[Feedback] = []
    page_token: str | None = None
    while True:
        where = FeedbackFilter(**session.key._asdict())
        page = await runs.feedback.list(where, limit=1000, page_token=page_token)
        found += page.feedback
        page_token = page.next_page_token
        if page_token is None:
            return found


async def _export(source: SessionSource, output: BinaryIO, written: set[tuple[str, ...]]) -> int:
    from greenroom.records import wire

    count = 0
    async with data_folder.closing(source):
        for key in await source.keys():
            if key in written:
                continue
            session = await source.read(key)
            if session is not None:
                output.write(wire.encode(session) + b"\n")
                output.flush()
                count += 1
    return count


async def _import(service: BaseSessionService, runs: RunStore, lines: BinaryIO) -> tuple[int, int]:
    """Returns how many sessions were imported, and how many existed."""
    imported = 0
    existing = 0
    shared: dict[tuple[str, str], JsonObject] = {}
    async with data_folder.closing(runs, service):
        for session in _read(lines):
            shared[session.app_name, session.user_id] = shared_state(session)
            if session.feedback and not await _exists(service, session.key):
                for feedback in session.feedback:  # first, as a repeated import leaves the session as it is
                    await runs.feedback.save(feedback)
            if await store(service, session):
                imported += 1
            else:
                existing += 1

        if imported:
            for (app_name, user_id), state in shared.items():
                await set_shared_state(service, app_name, user_id, state)
    return imported, existing


async def _exists(service: BaseSessionService, key: SessionKey) -> bool:
    try:
        await service.list_events(**key._asdict(), limit=1)
    except SessionNotFound:
        return False
    return True


async def store(service: BaseSessionService, session: ExportedSession) -> bool:
    """Stores a session, whole or not at all. False if there is already one with its id."""
    try:
        await service.create_session(
            app_name=session.app_name,
            user_id=session.user_id,
            session_id=session.id,
            state=session.state if session.initial_state is None else session.initial_state,
            events=list(session.events),
        )
    except SessionExists:
        return False
    return True


async def set_shared_state(service: BaseSessionService, app_name: str, user_id: str, state: JsonObject) -> None:
    """Sets the state of an app and a user, which the deltas of imported logs may have set to older values."""
    made = await service.create_session(app_name=app_name, user_id=user_id, state=state)
    await service.delete_session(app_name=app_name, user_id=user_id, session_id=made.id)


def shared_state(session: ExportedSession) -> JsonObject:
    """Returns the delta that sets the state of the session's app and user.

    It removes the keys that the log has set and that are no longer there.
    """
    delta: JsonObject = {}
    for event in session.events:
        for key in event.actions.state_delta:
            if key.startswith(_SHARED):
                delta[key] = REMOVED
    for key, value in session.state.items():
        if key.startswith(_SHARED):
            delta[key] = value
    return delta


def own_state(state: JsonObject) -> JsonObject:
    return {key: value for key, value in state.items() if not key.startswith(_SHARED)}


def _read(lines: BinaryIO) -> Iterator[ExportedSession]:
    import msgspec

    from greenroom.records import wire
    from greenroom.records.exported_session import ExportedSession

    decode = wire.decoder(ExportedSession)
    for number, line in enumerate(lines, start=1):
        try:
            yield decode(line)
        except msgspec.MsgspecError as error:
            raise CallerError(f"Line {number} is not an exported session: {error}") from None


def _whole_lines(file: BinaryIO) -> set[tuple[str, ...]]:
    """Returns the keys of the sessions in an export. Removes its last line if that isn't whole."""
    file.seek(0)
    size = sum(len(line) for line in file if line.endswith(b"\n"))
    file.truncate(size)
    file.seek(0)
    return {session.key for session in _read(file)}
