"""`greenroom sessions migrate`: copies all sessions of a store to another one."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

from cyclopts import Parameter

from greenroom.cli import data_folder
from greenroom.cli.serving import configured_keys
from greenroom.cli.sessions_transfer import (
    SessionSource,
    StoredSessions,
    own_state,
    set_shared_state,
    shared_state,
    store,
)
from greenroom.cli.terminal import console, note
from greenroom.encryption.encrypted_store import EncryptedStore
from greenroom.errors import CallerError, KeyRefused
from greenroom.records.state import REMOVED

if TYPE_CHECKING:
    from greenroom.encryption.key_provider import KeyProvider
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
    """Copy sessions to another store, then compare the two.

    Copies IDs, events, and the state of sessions, users and apps. The source may also be a SQLite or PostgreSQL
    database of google-adk. It is only read; stop its server first. After an interruption, run the command again:
    sessions that were already copied are compared, but not copied again.

        greenroom sessions migrate sqlite:///.greenroom/greenroom.db postgresql://user:password@host/database

        greenroom sessions migrate sqlite:///adk.db sqlite:///chats.db --from-artifacts file:///a --to-artifacts s3://b

    Parameters
    ----------
    from_uri
        The source: a session store, as for `--session-service`.
    to_uri
        The target: another session store. Sessions that it already has are kept.
    app
        Only sessions of this app. May be repeated.
    from_artifacts
        The store of the sessions' artifacts, as for `--artifact-service`. Versions keep their numbers.
    to_artifacts
        The target of the artifacts.
    """
    if (from_artifacts is None) != (to_artifacts is None):
        raise CallerError("Give both --from-artifacts and --to-artifacts, or neither")
    asyncio.run(_migrate(from_uri, to_uri, app or None, from_artifacts, to_artifacts))


async def _migrate(
    from_uri: str, to_uri: str, apps: list[str] | None, from_artifacts: str | None, to_artifacts: str | None
) -> None:
    from greenroom.sessions.from_uri import session_service_from_uri

    encryption_keys = configured_keys(Path())
    source = await _open_source(from_uri, apps, encryption_keys)
    target = session_service_from_uri(to_uri, keys=encryption_keys)
    digests: dict[SessionKey, bytes] = {}
    shared: dict[tuple[str, str], JsonObject] = {}
    copied = 0
    events = 0
    async with data_folder.closing(source, target):
        keys = [key for key in await source.keys() if apps is None or key.app_name in apps]
        for key in _progress(keys, "Copying sessions"):
            session = await source.read(key)
            if session is not None:
                digests[key] = _digest(session)
                shared[key.app_name, key.user_id] = shared_state(session)
                events += len(session.events)
                copied += await store(target, session)
        for (app_name, user_id), state in shared.items():
            await set_shared_state(target, app_name, user_id, state)
    note(f"{copied} sessions copied, {len(digests) - copied} already existed")

    if from_artifacts is not None and to_artifacts is not None:
        versions = await _copy_artifacts(from_artifacts, to_artifacts, list(digests), encryption_keys)
        note(f"{versions} artifact versions copied")

    different: list[str] = []
    target = session_service_from_uri(to_uri, keys=encryption_keys)  # without a cache: what is stored is compared
    async with data_folder.closing(target):
        for key, digest in _progress(digests.items(), "Comparing sessions"):
            stored = await target.get_session(**key._asdict())
            if stored is None or not _is_equal(stored, digest, shared[key.app_name, key.user_id]):
                different.append(f"{key.session_id} of app {key.app_name}, user {key.user_id}")
    if different:
        raise CallerError(f"{len(different)} sessions differ between the stores: {'; '.join(different[:10])}")

    total = hashlib.sha256(b"".join(digests[key] for key in sorted(digests))).hexdigest()
    print(f"{len(digests)} sessions with {events} events are equal in both stores (SHA-256 {total[:16]})")


def _is_equal(session: Session, digest: bytes, shared: JsonObject) -> bool:
    """True if the session has the digest and the shared state.

    shared: the delta of the state of its app and user, in which removed keys are marked.
    """
    has_shared_state = all(session.state.get(name, REMOVED) == value for name, value in shared.items())
    return has_shared_state and _digest(session) == digest


async def _open_source(uri: str, apps: list[str] | None, keys: KeyProvider | None) -> SessionSource:
    from greenroom.sessions.adk_database import open_adk_database
    from greenroom.sessions.from_uri import session_service_from_uri

    adk_source = await open_adk_database(uri)
    if adk_source is not None:
        return adk_source
    source = session_service_from_uri(uri)
    try:
        if isinstance(source, EncryptedStore):
            await source.load_keys()
    except KeyRefused:
        await source.close()
        source = session_service_from_uri(uri, keys=keys)
    return StoredSessions(source, apps)


async def _copy_artifacts(
    from_uri: str, to_uri: str, keys: list[SessionKey], encryption_keys: KeyProvider | None
) -> int:
    from greenroom.artifacts.encrypted import has_keys
    from greenroom.artifacts.from_uri import artifact_service_from_uri
    from greenroom.records.content import Part

    source = artifact_service_from_uri(from_uri)
    if await has_keys(source):
        await source.close()
        source = artifact_service_from_uri(from_uri, keys=encryption_keys)
    target = artifact_service_from_uri(to_uri, keys=encryption_keys)
    copied = 0
    async with data_folder.closing(source, target):
        for key in _progress(keys, "Copying artifacts"):
            for name in await source.list_artifact_keys(**key._asdict()):
                artifact: JsonObject = {**key._asdict(), "filename": name}
                existing = await target.list_versions(**artifact)
                for version in await source.list_versions(**artifact):
                    if version in existing:
                        continue

                    description = await source.get_artifact_version(**artifact, version=version)
                    metadata = description.custom_metadata if description is not None else None
                    part = await source.load_artifact(**artifact, version=version)
                    if part is None:  # rewound
                        part = Part(text="")

                    saved = await target.save_artifact(**artifact, artifact=part, custom_metadata=metadata)
                    if saved != version:
                        raise CallerError(f"Version {version} of artifact {name!r} can't keep its number in {to_uri}")
                    copied += 1
        return copied


def _digest(session: Session) -> bytes:
    """Returns a digest of the events and the session's own state."""
    import msgspec

    from greenroom.records import wire

    plain = wire.to_plain([list(session.events), own_state(session.state)])
    return hashlib.sha256(msgspec.json.encode(plain, order="sorted")).digest()


def _progress(items: Iterable[T], label: str) -> Iterable[T]:
    from rich.progress import track

    listed = list(items)
    return track(listed, label, console=console("notes"), disable=not console("notes").is_terminal)
