"""The ASGI application of a WebSocket endpoint.

Unauthenticated and forbidden callers get an HTTP response instead of the handshake; other errors
are sent as a close frame, whose reason browsers can show.
"""

from __future__ import annotations

import contextlib
import logging
from http import HTTPStatus

from starlette.types import Receive, Scope, Send

from greenroom.errors import (
    AppLoadError,
    AppNotFound,
    AppNotNamed,
    Forbidden,
    GreenroomError,
    InvalidRequest,
    OwnershipLost,
    SessionNotFound,
    TooManyRequests,
    Unauthenticated,
    Unavailable,
)
from greenroom.server.endpoint import EndpointApp, send_reply
from greenroom.server.replies import Reply, SocketReply, error_reply
from greenroom.server.websocket import POLICY, ClientGone, Socket

_log = logging.getLogger("greenroom.server")

PROTOCOL = "greenroom"
KEY_PREFIX = "greenroom.key."
"""Browsers can't set headers on a WebSocket, so they may offer the key as a subprotocol beside
PROTOCOL. It counts as `Authorization: Bearer` and is never sent back."""

SESSION_NOT_FOUND = 1002
FAILED = 1011
TRY_LATER = 1013


class SocketApp(EndpointApp):
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()  # the handshake
        offered: list[str] = scope.get("subprotocols") or []
        key = next((protocol.removeprefix(KEY_PREFIX) for protocol in offered if protocol.startswith(KEY_PREFIX)), None)
        if key is not None:
            scope = {**scope, "headers": [*scope["headers"], (b"authorization", b"Bearer " + key.encode())]}
        socket = Socket(receive, send, subprotocol=PROTOCOL if PROTOCOL in offered else None)

        with contextlib.suppress(ClientGone):
            try:
                reply = await self.answer(scope, receive)
                assert isinstance(reply, SocketReply)
                await reply.talk(socket)
            except ClientGone:
                pass
            except (Unauthenticated, Forbidden) as error:
                await refuse(error_reply(error), scope, send)
            except GreenroomError as error:
                if error.status >= HTTPStatus.INTERNAL_SERVER_ERROR and not isinstance(error, OwnershipLost):
                    _log.warning("%s: %s: %s", scope["path"], error.code, error.detail)
                await socket.accept()
                await socket.close(*_close_code(error))
            except Exception:  # a bug, here or in a user's loader or store
                _log.exception("%s failed", scope["path"])
                await socket.accept()
                await socket.close(FAILED, HTTPStatus.INTERNAL_SERVER_ERROR.phrase)


async def refuse(reply: Reply, scope: Scope, send: Send) -> None:
    """Answers the handshake with an error response, or with 403 if the ASGI server can't send a response."""
    if "websocket.http.response" not in (scope.get("extensions") or {}):
        await send({"type": "websocket.close", "code": POLICY})
        return
    await send_reply(reply, send, message="websocket.http.response")


def _close_code(error: GreenroomError) -> tuple[int, str]:
    """Close code and reason. Source of all but the last: ADK's servers."""
    if isinstance(error, SessionNotFound):
        return SESSION_NOT_FOUND, error.detail
    if isinstance(error, (AppNotFound, AppLoadError)):
        return FAILED, f"Runner unavailable: {error.detail}"
    if isinstance(error, (InvalidRequest, AppNotNamed)):
        return POLICY, error.detail
    return (TRY_LATER if isinstance(error, (Unavailable, TooManyRequests)) else FAILED), error.detail
