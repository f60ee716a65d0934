"""Closes streams and sockets whose API key was revoked, or whose credentials have expired."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from greenroom.errors import Unauthenticated
from greenroom.server.access.identity import Identity
from greenroom.server.replies import AnyReply, SocketReply, StreamReply
from greenroom.server.websocket import POLICY, Socket

if TYPE_CHECKING:
    from greenroom.server.access.authentication import Authenticator


CHECK_SECONDS = 0.5

_REASON = "The key was revoked or has expired"


def close_when_revoked(reply: AnyReply, authenticator: Authenticator, identity: Identity) -> AnyReply:
    """Wraps the reply: once the credentials are invalid, a stream is cut off and a socket is closed with POLICY."""
    if isinstance(reply, StreamReply):
        reply.pieces = _pieces(reply.pieces, authenticator, identity)
    elif isinstance(reply, SocketReply):
        reply.talk = partial(_talk, reply.talk, authenticator, identity)
    return reply


async def _pieces(
    pieces: AsyncGenerator[bytes], authenticator: Authenticator, identity: Identity
) -> AsyncGenerator[bytes]:
    waiting: asyncio.Timeout | None = None

    async def watch() -> None:
        while await authenticator.is_still_good(identity):
            await asyncio.sleep(CHECK_SECONDS)
        if waiting is not None:
            waiting.reschedule(0)  # an idle stream has no piece until its next keep-alive

    watching = asyncio.ensure_future(watch())
    try:
        async with contextlib.aclosing(pieces):
            while not watching.done():
                try:
                    async with asyncio.timeout(None) as waiting:
                        piece = await anext(pieces, None)
                except TimeoutError:
                    if waiting is not None and waiting.expired():
                        break
                    raise
                finally:
                    waiting = None
                if piece is None:
                    return
                if not watching.done():
                    yield piece
        raise Unauthenticated(_REASON)
    finally:
        watching.cancel()


async def _talk(
    talk: Callable[[Socket], Awaitable[None]], authenticator: Authenticator, identity: Identity, socket: Socket
) -> None:
    talking = asyncio.ensure_future(talk(socket))
    try:
        while not (await asyncio.wait({talking}, timeout=CHECK_SECONDS))[0]:
            if not await authenticator.is_still_good(identity):
                talking.cancel()
                await asyncio.wait({talking})
                await socket.close(POLICY, _REASON)
                return
        talking.result()
    finally:
        if talking.cancel():  # the server stops
            await asyncio.wait({talking})
