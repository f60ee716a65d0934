"""The servers to ask for a session, and what a server answers that doesn't own it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from urllib.parse import parse_qsl, urlencode

from starlette.types import Scope, Send

from greenroom.errors import OwnershipLost
from greenroom.records.session import SessionKey
from greenroom.runs.ownership import Replica, Replicas
from greenroom.server.endpoint import send_reply
from greenroom.server.replies import error_reply
from greenroom.server.websocket_endpoint import refuse

OWNERS_SECONDS = 1.0
"""Age of the table of owners at which it is read again, for new requests and for those that wait for a response."""

REFUSED = "greenroom-refused"
"""The header of an answer to a forwarded request: the session that the server doesn't own. It has done nothing."""

_HOP_BY_HOP = frozenset(
    (b"connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade", b"expect", b"proxy-connection")
)
"""Headers that concern one connection only, as do those that `Connection` names. Source: RFC 9110, 7.6.1."""

_PAUSE_SECONDS = 0.05


class OwnerSearch:
    """Finds the server to ask for a session, again after each one that has not answered."""

    def __init__(self, replicas: Replicas, key: SessionKey, *, wait_seconds: float) -> None:
        self.key = key
        self.is_progressing = False
        """True if the last server has achieved something, so that the next one is asked without a pause."""

        self._replicas = replicas
        self._wait_seconds = wait_seconds
        self._give_up_at = time.monotonic() + wait_seconds
        self._max_age_seconds = OWNERS_SECONDS
        self._has_begun = False

    async def next_owner(self) -> Replica:
        """Raises StorageError, and OwnershipLost when no server has achieved anything for `wait_seconds`."""
        while True:
            if self.is_progressing:
                self.is_progressing = False
                self._give_up_at = time.monotonic() + self._wait_seconds
            elif self._has_begun:
                await asyncio.sleep(_PAUSE_SECONDS)
            if time.monotonic() >= self._give_up_at:
                raise OwnershipLost(*self.key)

            self._has_begun = True
            owner = await self._replicas.owner_of(self.key, max_age_seconds=self._max_age_seconds)
            self._max_age_seconds = 0.0
            if owner is not None:
                return owner


def end_to_end_headers(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The headers that are passed on. Names are in lower case."""
    left = [header for header in headers if header[0] not in _HOP_BY_HOP or header[0] == b"connection"]
    named = {token.strip().lower() for name, value in left if name == b"connection" for token in value.split(b",")}
    return [header for header in left if header[0] != b"connection" and header[0] not in named]


def target_of(scope: Scope) -> bytes:
    """Path and query of a request, as they came."""
    path: bytes = (scope.get("raw_path") or scope["path"].encode()).partition(b"?")[0]
    query: bytes = scope["query_string"]
    return b"%b?%b" % (path, query) if query else path


def key_of(error: OwnershipLost) -> SessionKey:
    return SessionKey(error.app_name, error.user_id, error.session_id)


async def refuse_forwarded(error: OwnershipLost, scope: Scope, send: Send) -> None:
    """Answers a request that another server has forwarded."""
    reply = error_reply(error)
    reply.headers[REFUSED] = urlencode(key_of(error)._asdict())
    if scope["type"] == "websocket":
        await refuse(reply, scope, send)
    else:
        await send_reply(reply, send)


def refused_key(value: str) -> SessionKey:
    """Decodes the value of the header `greenroom-refused`."""
    return SessionKey(**dict(parse_qsl(value, keep_blank_values=True)))
