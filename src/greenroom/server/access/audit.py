"""The audit trail of a server: records what requests do, and signs the trail at intervals.

Starts of runs and answers to people's requests are stored with the records of the runs (`runs/audit.py`). What else
changes something is recorded by the views of `authorization/` once it is done; reads of another user's data, and
refusals, when the handler is done. All of it is stored before the response is sent.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
from collections.abc import Awaitable, Mapping
from dataclasses import fields, is_dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote
from uuid import uuid4

import msgspec
from starlette.types import Scope

from greenroom.audit.acting import CURRENT, Acting
from greenroom.audit.signing import HeadSigner
from greenroom.audit.store import AuditStore
from greenroom.errors import (
    ApprovalRefused,
    Forbidden,
    GreenroomError,
    NotApprover,
    StorageError,
    TooManyRequests,
    Unauthenticated,
)
from greenroom.records.audit import AuditAction, new_entry
from greenroom.records.service_uri import without_password
from greenroom.server.access.identity import EVERYBODY, NOBODY, Identity
from greenroom.server.access.rate_limit import RequestRate
from greenroom.server.exchange import EXCHANGE, Exchange
from greenroom.server.replies import Reply
from greenroom.server.settings import ServerSettings
from greenroom.version import __version__

_log = logging.getLogger("greenroom.server")

REFUSALS_PER_SECOND = 10
REFUSALS_AT_ONCE = 100
"""Refused requests without valid credentials that are recorded; the next entry counts the others."""

_REFUSALS = (Unauthenticated, Forbidden, ApprovalRefused, NotApprover)
_REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}")
_MAX_TARGET = 1000


class AuditTrail:
    """Records requests in the trail of a server."""

    def __init__(self, store: AuditStore, signer: HeadSigner, *, sign_seconds: float) -> None:
        self.store = store
        self._signer = signer
        self._sign_seconds = sign_seconds
        self._refusals = RequestRate(per_second=REFUSALS_PER_SECOND, at_once=REFUSALS_AT_ONCE)
        self._unrecorded = 0
        self._signing: asyncio.Task[None] | None = None

    async def start(self, settings: ServerSettings) -> None:
        """Records the start, with a signed head, and begins to sign. Raises StorageError."""
        entry = new_entry("server.started", target=f"greenroom {__version__}", settings_digest=digest_of(settings))
        await self.store.append([entry], signer=self._signer)
        self._signing = asyncio.create_task(self._sign())

    async def close(self) -> None:
        """Records the stop, with a signed head."""
        if self._signing is None:
            return
        self._signing.cancel()
        await asyncio.wait([self._signing])
        self._signing = None
        try:
            await self.store.append([new_entry("server.stopped")], signer=self._signer)
        except StorageError as error:
            _log.warning("the stop was not recorded in the audit trail: %s", error.detail)

    async def watch(self, scope: Scope, answer: Awaitable[Any]) -> Any:
        """Awaits the answer to a request, and records what it noted: reads of other users' data, and refusals.

        answer: `RequestAudit.of_current` is this request's while it runs.
        """
        request = RequestAudit(self, scope)
        token = CURRENT.set(request)
        try:
            reply = await answer
        except GreenroomError as error:
            if isinstance(error, _REFUSALS):
                await request.record_refusal(error.status, error.code)
            else:
                await request.record_noted()
            raise
        finally:
            CURRENT.reset(token)

        exchange: Exchange | None = scope.get(EXCHANGE)
        if exchange is not None and (exchange.lost is not None or exchange.replica_id is not None):
            return reply  # another server answers the request, and records it
        if isinstance(reply, Reply) and reply.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            await request.record_refusal(reply.status, None)
        else:
            await request.record_noted(succeeded=True)
        return reply

    def counts_refusal(self) -> int | None:
        """Takes a refusal without valid credentials. Returns how many were left out before it; None to leave it out."""
        try:
            self._refusals.take("")
        except TooManyRequests:
            self._unrecorded += 1
            return None
        unrecorded = self._unrecorded
        self._unrecorded = 0
        return unrecorded

    async def _sign(self) -> None:
        while True:
            await asyncio.sleep(self._sign_seconds)
            try:
                head = await self.store.sign(self._signer)
            except StorageError as error:
                _log.warning("the head of the audit trail was not signed: %s", error.detail)
            else:
                if head is not None:
                    _log.info(
                        "signed the audit trail: chain %d, entry %d, hash %s", head.chain, head.sequence, head.hash
                    )


class RequestAudit(Acting):
    """Records one request: its caller, its changes, and what it read or was refused.

    scope: of the request; of one that isn't HTTP, a mapping with `headers`, `method`, `path` and `path_params`.
    """

    def __init__(self, trail: AuditTrail, scope: Scope) -> None:
        super().__init__(_request_id(scope))
        self._trail = trail
        self._scope = scope
        self._is_identified = False
        self._read: tuple[str, str | None] | None = None
        self._refused: GreenroomError | None = None
        self._action: AuditAction | None = None
        self._has_recorded = False

    @staticmethod
    def of_current() -> RequestAudit | None:
        """The request that the current task handles; None where the trail is off."""
        acting = CURRENT.get()
        return acting if isinstance(acting, RequestAudit) and acting.is_current else None

    def identify(self, identity: Identity) -> None:
        """Notes the caller."""
        self._is_identified = identity is not NOBODY
        if identity is not EVERYBODY and identity is not NOBODY:
            self.subject = identity.subject
            self.key_id = identity.key_id

    def note_access(self, identity: Identity, app_name: str, user_id: str | None) -> None:
        """Notes that data is read. That of others is recorded when the handler is done; user_id: None for all users."""
        if identity is not EVERYBODY and user_id != identity.subject and self._read is None:
            self._read = app_name, user_id

    def note_refusal(self, error: GreenroomError) -> None:
        """Notes an error that the caller may not see as such."""
        self._refused = error

    def note_error(self, error: GreenroomError) -> None:
        """Notes the error that is the answer, if it is a refusal."""
        if isinstance(error, _REFUSALS):
            self._refused = error

    def note_action(self, action: AuditAction | None) -> None:
        """Notes the endpoint's action, which is recorded if its handler succeeds."""
        self._action = action

    async def record(self, action: AuditAction, **names: Any) -> None:
        """Records something that was done."""
        self._has_recorded = True
        await self._trail.store.append([new_entry(action, **{**self.fields, **names})])

    async def record_noted(self, *, succeeded: bool = False) -> None:
        """Records what was noted while the request was handled."""
        if self._refused is not None:
            await self.record_refusal(self._refused.status, self._refused.code)
        elif self._action is not None and succeeded:
            await self.record(self._action, **self._names(), target=self._target())
        elif self._read is not None and succeeded and not self._has_recorded:
            app_name, user_id = self._read
            names = {**self._names(), "app_name": app_name, "user_id": user_id}
            await self.record("data.read", **names, target=self._target())

    async def record_refusal(self, status: int, code: str | None) -> None:
        unrecorded: int | None = None
        if not self._is_identified:
            unrecorded = self._trail.counts_refusal()
            if unrecorded is None:
                return
        entry = new_entry(
            "access.refused",
            outcome="refused",
            status=int(status),
            error=code,
            unrecorded=unrecorded or None,
            target=self._target(),
            **self.fields,
            **self._names(),
        )
        await self._trail.store.append([entry])

    def _target(self) -> str:
        return f"{self._scope.get('method', 'WEBSOCKET')} {self._scope['path']}"[:_MAX_TARGET]

    def _names(self) -> dict[str, str]:
        """App, user, session, run and request that the path names."""
        raw: Mapping[str, str] = self._scope.get("path_params", {})
        names = ("app_name", "user_id", "session_id", "run_id", "request_id")
        return {name: _plain(raw[name]) for name in names if raw.get(name)}


def digest_of(settings: ServerSettings) -> str:
    """The SHA-256 of the settings, without passwords in addresses."""
    return hashlib.sha256(msgspec.json.encode(_plain_settings(settings), order="sorted")).hexdigest()


def _plain_settings(value: Any) -> Any:
    if is_dataclass(value):
        return {field.name: _plain_settings(getattr(value, field.name)) for field in fields(value)}
    return without_password(value) if isinstance(value, str) else value


def _plain(segment: str) -> str:
    return unquote(segment, errors="replace").replace("\x00", "\ufffd")[:_MAX_TARGET]


def _request_id(scope: Scope) -> str:
    """The client's `X-Request-Id`, if it is short and printable, else a random one."""
    for name, value in scope["headers"]:
        if name == b"x-request-id":
            given = value.decode("latin-1")
            if _REQUEST_ID.fullmatch(given):
                return given
    return uuid4().hex
