"""`greenroom sessions migrate`: copies all conversations of a store to another one."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, TypeVar

from cyclopts import Parameter

from greenroom.cli import data_folder
from greenroom.cli.sessions_transfer import Source, StoreSource, own_state, set_shared_state, shared_state, store
from greenroom.cli.terminal import note
from greenroom.errors import CallerError

if TYPE_CHECKING:
    from greenroom.records.base import JsonObject
    from greenroom.records.session import Session, SessionKey

T = TypeVar("T")


def migrate_sessions(
    from_uri: Annotated[str, Parameter(name="FROM_URI")],
    to_uri: Annotated[str, Parameter(name="TO_URI")],
    /,
    *,
    app: list[str] | None = None,
    from_artifacts: str | None = None,
    to_artifacts: str | None = None,
) -> None:
    """Copy conversations to another store: ids, events, and the state of sessions, users and apps. Then compare them.

    The source may also be a SQLite or PostgreSQL database of google-adk. It is only read; stop its server before. After
    an interruption, run the command again: sessions that were copied are compared, and not copied twice.

        greenroom sessions migrate sqlite:///.greenroom/greenroom.db postgresql://user:password@host/database

        greenroom sessions migrate sqlite:///adk.db sqlite:///chats.db --from-artifacts file:///a --to-artifacts s3://b

    Parameters
    ----------
    from_uri
        The store that has the conversations, as `--session-service` takes it.
    to_uri
        The store that gets them. Sessions that it already has stay.
    app
        Only the conversations of this app; may be repeated.
    from_artifacts
        The store of the conversations' artifacts, as `--artifact-service` takes it; their versions keep their numbers.
    to_artifacts
        The store that gets the artifacts.
    """
    if (from_artifacts is None) != (to_artifacts is None):
        raise CallerError("Give both --from-artifacts and --to-artifacts, or neither")
    asyncio.run(_migrate(from_uri, to_uri, app or None, from_artifacts, to_artifacts))


async def _migrate(
    from_uri: str, to_uri: str, apps: list[str] | None, from_artifacts: str | None, to_artifacts: str | None
) -> None:
    from greenroom.sessions.from_uri import session_service_from_uri

    source, target = await _open_source(from_uri, apps), session_service_from_uri(to_uri)
    digests: dict[SessionKey, bytes] = {}
    shared: dict[tuple[str, str], JsonObject] = {}
    copied = events = 0
    async with data_folder.closing(source, target):
        keys = [key for key in await source.keys() if apps is None or key.app_name in apps]
        for key in _progress(keys, "Copying sessions"):
            line = await source.read(key)
            if line is not None:
                digests[key], shared[key[:2]] = _digest(line), shared_state(line)
                events += len(line.events)
                copied += await store(target, line)
        for (app_name, user_id), state in shared.items():
            await set_shared_state(target, app_name, user_id, state)
    note(f"{copied} sessions copied, {len(digests) - copied} were there already")
    if from_artifacts is not None and to_artifacts is not None:
        note(f"{await _copy_artifacts(from_artifacts, to_artifacts, list(digests))} versions of artifacts copied")

    target = session_service_from_uri(to_uri)  # opened anew, so that what is compared is what is stored
    different: list[str] = []
    async with data_folder.closing(target):
        for key, digest in _progress(digests.items(), "Comparing sessions"):
            session, state = await target.get_session(**key._asdict()), shared[key[:2]]
            if session is None or _digest(session) != digest or state != {k: session.state.get(k) for k in state}:
                different.append(f"{key.session_id} of app {key.app_name}, user {key.user_id}")
    if different:
        raise CallerError(f"{len(different)} sessions differ between the stores: {'; '.join(different[:10])}")
    total = hashlib.sha256(b"".join(digests[key] for key in sorted(digests))).hexdigest()
    print(f"{len(digests)} sessions with {events} events are equal in both stores (SHA-256 {total[:16]})")


async def _open_source(uri: str, apps: list[str] | None) -> Source:
    from greenroom.sessions.adk_database import open_adk_database
    from greenroom.sessions.from_uri import session_service_from_uri

    return await open_adk_database(uri) or StoreSource(session_service_from_uri(uri), apps)


async def _copy_artifacts(from_uri: str, to_uri: str, keys: list[SessionKey]) -> int:
    from greenroom.artifacts.from_uri import artifact_service_from_uri
    from greenroom.records.content import Part

    source, target = artifact_service_from_uri(from_uri), artifact_service_from_uri(to_uri)
    copied = 0
    async with data_folder.closing(source, target):
        for key in _progress(keys, "Copying artifacts"):
            for name in await source.list_artifact_keys(**key._asdict()):
                where: JsonObject = {**key._asdict(), "filename": name}
                there = await target.list_versions(**where)
                for version in await source.list_versions(**where):
                    if version in there:
                        continue
                    known = await source.get_artifact_version(**where, version=version)
                    part = await source.load_artifact(**where, version=version) or Part(text="")  # rewound
                    saved = await target.save_artifact(
                        **where, artifact=part, custom_metadata=known and known.custom_metadata
                    )
                    if saved != version:
                        raise CallerError(f"Version {version} of artifact {name!r} can't keep its number in {to_uri}")
                    copied += 1
        return copied


def _digest(session: Session) -> bytes:
    """Of the events and the session's own state."""
    import msgspec

    from greenroom.records import wire

    plain = wire.to_plain([list(session.events), own_state(session.state)])
    return hashlib.sha256(msgspec.json.encode(plain, order="sorted")).digest()


def _progress(items: Iterable[T], label: str) -> Iterable[T]:
    from rich.progress import track

    from greenroom.cli.terminal import notes

    listed = list(items)
    return track(listed, label, console=notes, disable=not notes.is_terminal)
