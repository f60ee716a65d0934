"""Erasure of a user's data in an app, on all servers that share the store, with a report."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from greenroom.errors import OwnershipLost
from greenroom.records.session import SessionKey
from greenroom.records.user_data import ErasedData, ErasureReport, UserDataKind
from greenroom.server.user_data.inventory import UserData

AskOwnerToErase: TypeAlias = Callable[[SessionKey], Awaitable[None]]
"""Has the server that owns a session erase all that it owns of the user. Raises OwnershipLost, Unavailable."""

_PASSES = 20
"""Rounds after which an erasure gives up, since others keep adding sessions, or servers keep handing them over."""

_KEPT: Mapping[UserDataKind, str] = {
    "answers": "Answers to requests of other users are part of these users' conversations.",
    "audit_entries": "The audit trail is hash-chained: an entry that is removed would break it. Entries name the user, "
    "and have no content.",
}
_ANONYMOUS: Mapping[UserDataKind, str] = {
    "usage": "Tokens and costs stay in the sums of the app, without the user and the session.",
}
_OWN = ("sessions", "runs")
"""Kinds that new requests of the user may have added meanwhile."""


async def erase(user: UserData, ask_owner: AskOwnerToErase | None) -> ErasureReport:
    """Deletes all data of a user but what is kept on purpose, and looks for what is left.

    It can be repeated, also after it was interrupted. ask_owner: None where one server runs all sessions. Raises
    NotOffered if a store can't delete a user's data, and OwnershipLost or Unavailable if another server doesn't answer.
    """
    started_at = time.time()
    found, missing = await user.count()
    left = found
    for _ in range(_PASSES):
        await _delete_everywhere(user, ask_owner)
        left, _ = await user.count()
        if not any(left[kind] for kind in _OWN):
            break

    data = [_outcome(kind, found[kind], left[kind], missing.get(kind)) for kind in found]
    return ErasureReport(
        **user.owner,
        started_at=started_at,
        ended_at=time.time(),
        is_complete=all(one.left == 0 for one in data),
        data=data,
        notes=_notes(user),
    )


async def erase_own(user: UserData) -> None:
    """Deletes a user's data that this server can delete: another server deletes the rest."""
    try:
        await _delete(user)
    except OwnershipLost:
        return


async def _delete_everywhere(user: UserData, ask_owner: AskOwnerToErase | None) -> None:
    for _ in range(_PASSES):
        try:
            await _delete(user)
        except OwnershipLost as lost:
            if ask_owner is None:
                raise
            await ask_owner(SessionKey(lost.app_name, lost.user_id, lost.session_id))
        else:
            return


async def _delete(user: UserData) -> None:
    async for key in user.engine.delete_user(**user.owner):
        await user.trace_store.forget(key)


def _outcome(kind: UserDataKind, found: int, left: int, missing: str | None) -> ErasedData:
    if kind in _KEPT:
        return ErasedData(kind=kind, found=found, deleted=0, left=0, kept=left, reason=_KEPT[kind] if left else None)
    reason = _ANONYMOUS.get(kind) if found else None
    return ErasedData(kind=kind, found=found, deleted=max(found - left, 0), left=left, reason=missing or reason)


def _notes(user: UserData) -> list[str]:
    notes = [
        "Schedules for the user that the app's code declares go on; they can only be removed there.",
        "API keys of the user stay valid until they are revoked.",
        "Backups, exported traces, logs, recordings and evaluation cases are files and services of their own.",
    ]
    if user.session_service.server_database is not None:
        notes.insert(
            0,
            "SQLite may keep remains of deleted rows in free pages of the file: `greenroom db compact` rewrites it "
            "without them.",
        )
    return notes
