"""`greenroom sessions export` and `import`: conversations as JSON lines."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Protocol

from cyclopts import Parameter

from greenroom.cli import data_folder
from greenroom.cli.server_flags import AgentsDir
from greenroom.cli.sessions import apps_of, open_store
from greenroom.cli.terminal import note
from greenroom.errors import CallerError, NotOffered, SessionExists
from greenroom.records.state import REMOVED

if TYPE_CHECKING:
    from greenroom.records.base import JsonObject
    from greenroom.records.session import ExportedSession, SessionKey
    from greenroom.sessions.service import BaseSessionService

_SHARED = ("app:", "user:")


def export_sessions(
    agents_dir: AgentsDir = Path(),
    /,
    *,
    output: Path | None = None,
    app: str | None = None,
    user: str | None = None,
    session_service: str | None = None,
) -> None:
    """Write conversations as JSON lines, a session with its state and its events per line.

        greenroom sessions export examples > chats.jsonl

        greenroom sessions export examples --output chats.jsonl

    Parameters
    ----------
    agents_dir
        The folder that was served.
    output
        The file to write. If it is there, the export continues: sessions that it has are not written again.
    app
        Only the conversations of this app; it needn't be in the folder any more.
    user
        Only those of this user.
    session_service
        Where they are kept: `sqlite:///file.db`. Else: `DIR/.greenroom/greenroom.db`, as the server does.
    """
    service = open_store(agents_dir, session_service)
    source = StoreSource(service, apps_of(service, agents_dir, app), user)
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
    session_service: str | None = None,
) -> None:
    """Store the conversations of an export. Those that are there already are left as they are, so it can be repeated.

        greenroom sessions import chats.jsonl examples

        greenroom sessions import chats.jsonl --session-service sqlite:///chats.db

    Parameters
    ----------
    file
        JSON lines, as `greenroom sessions export` writes them.
    agents_dir
        The folder that is served.
    session_service
        Where to store them: `sqlite:///file.db`. Else: `DIR/.greenroom/greenroom.db`, as the server does.
    """
    from greenroom.sessions.from_uri import session_service_from_uri

    service = session_service_from_uri(session_service or data_folder.session_service_uri(agents_dir))
    with file.open("rb") as lines:
        count, skipped = asyncio.run(_import(service, lines))
    note(f"{count} sessions imported, {skipped} were there already")


class Source(Protocol):
    """Sessions to be exported or migrated, in the order in which they are read."""

    async def keys(self) -> list[SessionKey]: ...

    async def read(self, key: SessionKey) -> ExportedSession | None:
        """None when it was deleted meanwhile."""
        ...

    async def close(self) -> None: ...


class StoreSource:
    """The sessions of a store: apps, or all of its apps; one user's, or all users'."""

    def __init__(self, service: BaseSessionService, apps: list[str] | None = None, user: str | None = None) -> None:
        self._service, self._apps, self._user = service, apps, user

    async def close(self) -> None:
        await self._service.close()

    async def keys(self) -> list[SessionKey]:
        names = await self._service.list_apps() if self._apps is None else self._apps
        pages = [await self._service.list_sessions(app_name=name, user_id=self._user) for name in names]
        return [session.key for page in pages for session in page.sessions]

    async def read(self, key: SessionKey) -> ExportedSession | None:
        from greenroom.records.session import ExportedSession, GetSessionConfig

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
        )


async def _export(source: Source, output: BinaryIO, written: set[tuple[str, ...]]) -> int:
    from greenroom.records import wire

    count = 0
    async with data_folder.closing(source):
        for key in await source.keys():
            line = await source.read(key) if key not in written else None
            if line is not None:
                output.write(wire.encode(line) + b"\n")
                output.flush()
                count += 1
        return count


async def _import(service: BaseSessionService, lines: BinaryIO) -> tuple[int, int]:
    count = total = 0
    shared: dict[tuple[str, str], JsonObject] = {}
    async with data_folder.closing(service):
        for line in _read(lines):
            shared[line.app_name, line.user_id] = shared_state(line)
            total += 1
            count += await store(service, line)
        for (app_name, user_id), state in shared.items() if count else ():
            await set_shared_state(service, app_name, user_id, state)
        return count, total - count


async def store(service: BaseSessionService, line: ExportedSession) -> bool:
    """Stores a session, whole or not at all; False when there is one of its id."""
    try:
        await service.create_session(
            app_name=line.app_name,
            user_id=line.user_id,
            session_id=line.id,
            state=line.state if line.initial_state is None else line.initial_state,
            events=list(line.events),
        )
        return True
    except SessionExists:
        return False


async def set_shared_state(service: BaseSessionService, app_name: str, user_id: str, state: JsonObject) -> None:
    """Sets state of an app and a user, where the deltas of imported logs may have brought back older values."""
    made = await service.create_session(app_name=app_name, user_id=user_id, state=state)
    await service.delete_session(app_name=app_name, user_id=user_id, session_id=made.id)


def shared_state(line: ExportedSession) -> JsonObject:
    """Returns the delta that sets the state of its app and its user; a key that the log has set and that is not there
    now is removed."""
    changed = {key for event in line.events for key in event.actions.state_delta if key.startswith(_SHARED)}
    return dict.fromkeys(changed, REMOVED) | {
        key: value for key, value in line.state.items() if key.startswith(_SHARED)
    }


def own_state(state: JsonObject) -> JsonObject:
    return {key: value for key, value in state.items() if not key.startswith(_SHARED)}


def _read(lines: BinaryIO) -> Iterator[ExportedSession]:
    import msgspec

    from greenroom.records import wire
    from greenroom.records.session import ExportedSession

    decode = wire.decoder(ExportedSession)
    for number, line in enumerate(lines, start=1):
        try:
            yield decode(line)
        except msgspec.MsgspecError as error:
            raise CallerError(f"Line {number} is not an exported session: {error}") from None


def _whole_lines(file: BinaryIO) -> set[tuple[str, ...]]:
    """The keys of the sessions in an export, whose last line is cut off if it is not whole."""
    file.seek(0)
    size = sum(len(line) for line in file if line.endswith(b"\n"))
    file.truncate(size)
    file.seek(0)
    return {session.key for session in _read(file)}
