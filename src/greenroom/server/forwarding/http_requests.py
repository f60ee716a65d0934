"""Forwards HTTP requests: sends a request to the owner of its session, and streams the response back."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, Mapping
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from starlette.types import Message, Receive, Scope, Send

from greenroom.errors import GreenroomError, NotFound, Unavailable
from greenroom.records.identifiers import new_invocation_id
from greenroom.records.session import SessionKey
from greenroom.runs.engine import ForwardedRequest
from greenroom.runs.ownership import Replica, Replicas
from greenroom.server.endpoint import send_reply
from greenroom.server.exchange import CONTINUATION, FINAL_FRAMES, Exchange
from greenroom.server.forwarding.http_client import ConnectError, HttpClient, Request, Response, ResponseError
from greenroom.server.forwarding.owners import (
    OWNERS_SECONDS,
    REFUSED,
    OwnerSearch,
    end_to_end_headers,
    key_of,
    refused_key,
    target_of,
)
from greenroom.server.forwarding.progress import LogProgress, NumberedProgress, WholeFrames
from greenroom.server.forwarding.stamp import FORWARDED, make_stamp, with_run
from greenroom.server.replies import error_reply
from greenroom.server.request_body import wait_for_disconnect

_log = logging.getLogger("greenroom.server")

_WORKING_SECONDS = 1.0
"""An owner that ends after this time has worked on the request: the time to find the next one begins again."""


class _Call(NamedTuple):
    """A request to forward."""

    scope: Scope
    """As the ASGI server made it, before its path and its client were found."""

    body: bytes
    headers: list[tuple[bytes, bytes]]
    stamp: bytes
    run_id: str
    """The id of the run that it starts, however often it is sent."""

    is_repeatable: bool
    """Whether it has one effect, however often it is sent."""

    def request(self, *, is_repeated: bool) -> Request:
        forwarded = with_run(self.stamp, ForwardedRequest(self.run_id, is_repeated))
        headers = [*self.headers, (FORWARDED, forwarded)]
        return Request(self.scope["method"].encode(), target_of(self.scope), headers, self.body)


class _Refused(Exception):
    """The other server doesn't own the session, and has done nothing."""

    def __init__(self, key: SessionKey) -> None:
        self.key = key
        """The session that it doesn't own; another one than it was asked for in requests for many sessions."""


class _Stopping(Exception):
    """The other server can't answer for a moment."""


class HttpForwarder:
    def __init__(self, replicas: Replicas, *, wait_seconds: float) -> None:
        """wait_seconds: time in which a session gets an owner."""
        self._replicas = replicas
        self._wait_seconds = wait_seconds
        self._client = HttpClient()
        self._waiting: dict[asyncio.Timeout, tuple[SessionKey, str]] = {}
        """Of each response that is read, the session and the id of the server that owned it."""

        self._watching: asyncio.Task[None] | None = None

    def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
        self._client.close()

    async def forward(self, scope: Scope, exchange: Exchange, send: Send) -> None:
        """scope: as the ASGI server made it, before its path and its client were found."""
        relay = _Relay(send, LogProgress() if exchange.streams_log else None, exchange.cross_origin_headers)
        if exchange.lost is not None and not exchange.keeps_body:
            await relay.fail(exchange.lost)
            return
        body = await exchange.whole_body()
        if body is None:
            return

        try:
            is_repeatable = exchange.takes_key or scope["method"] in ("GET", "HEAD", "PUT", "DELETE")
            call = await self._call_of(scope, body, is_repeatable=is_repeatable)
            async with _until_disconnect(exchange.receive):
                if exchange.lost is not None:
                    await self._answer(call, key_of(exchange.lost), relay)
                elif exchange.replica_id is not None:
                    await self._answer_by(exchange.replica_id, call, relay)
        except GreenroomError as error:
            _log.warning("%s %s: %s: %s", scope["method"], scope["path"], error.code, error.detail)
            await relay.fail(error)
        except asyncio.CancelledError:  # requests are cancelled only when the server stops
            await relay.fail(Unavailable("The server is stopping"))

    async def ask(
        self, scope: Scope, key: SessionKey, *, own_path: str, path: str, body: bytes = b"", method: str = "POST"
    ) -> tuple[int, bytes]:
        """See AskOwner. scope: of the request, as the ASGI server made it."""
        status = 0
        data = b""

        async def receive_response(message: Message) -> None:
            nonlocal status, data
            status = message.get("status", status)
            data += message.get("body", b"")

        before, _, _ = target_of({**scope, "query_string": b""}).rpartition(own_path.encode())
        target = before + path.encode()
        sent = {**scope, "method": method, "raw_path": target, "path": target.decode("latin-1"), "query_string": b""}
        call = await self._call_of(sent, body, is_repeatable=False)
        await self._answer(call, key, _Relay(receive_response, None, {}))
        return status, data

    async def _call_of(self, scope: Scope, body: bytes, *, is_repeatable: bool) -> _Call:
        headers = [
            header
            for header in end_to_end_headers(scope["headers"])
            if header[0] not in (FORWARDED, b"host", b"content-length")
        ]
        return _Call(
            scope,
            body,
            headers,
            stamp=await make_stamp(scope, self._replicas),
            run_id=new_invocation_id(),
            is_repeatable=is_repeatable,
        )

    async def _answer(self, call: _Call, key: SessionKey, relay: _Relay) -> None:
        """Asks owners until one has answered. Raises OwnershipLost, Unavailable, StorageError."""
        search = OwnerSearch(self._replicas, key, wait_seconds=self._wait_seconds)
        is_repeated = False
        while True:
            owner = await search.next_owner()
            asked_at = time.monotonic()
            try:
                await self._ask(owner, search.key, call, relay, is_repeated=is_repeated)
                return
            except _Refused as refused:
                search.is_progressing = refused.key != search.key
                search.key = refused.key
            except ConnectError:
                continue
            except _Stopping:
                pass
            except (ResponseError, TimeoutError) as error:
                can_continue = relay.progress is not None if relay.has_begun else call.is_repeatable
                if not can_continue:
                    raise Unavailable("The server that runs the session ended before it has answered") from error
            is_repeated = True
            if time.monotonic() > asked_at + _WORKING_SECONDS:
                search.is_progressing = True

    async def _answer_by(self, replica_id: str, call: _Call, relay: _Relay) -> None:
        """Asks one server, for what no other one has. Raises NotFound if it has ended, Unavailable, StorageError."""
        replica = await self._replicas.find(replica_id)
        if replica is None:
            raise NotFound("The server of this session has ended")
        try:
            response = await self._client.send(replica.address, call.request(is_repeated=False))
        except ConnectError as error:
            raise NotFound("The server of this session has ended") from error
        except ResponseError as error:
            raise Unavailable("The server of this session ended before it has answered") from error
        try:
            await relay.pass_on(response)
        except ResponseError as error:
            raise Unavailable("The server of this session has ended") from error
        finally:
            response.close()

    async def _ask(self, owner: Replica, key: SessionKey, call: _Call, relay: _Relay, *, is_repeated: bool) -> None:
        """Sends the request to a server, and passes its response on.

        Raises the client's errors, TimeoutError when another server takes the session over, _Refused and _Stopping.
        """
        request = call.request(is_repeated=is_repeated)
        if relay.has_begun and relay.progress is not None:
            request = relay.progress.next_request(request)
        async with self._while_owned(key, owner):
            response = await self._client.send(owner.address, request)
            try:
                refused = response.header(REFUSED.encode())
                if refused is not None:
                    raise _Refused(refused_key(refused.decode()))
                if response.status == HTTPStatus.SERVICE_UNAVAILABLE and (call.is_repeatable or relay.has_begun):
                    raise _Stopping
                if relay.has_begun and response.status != HTTPStatus.OK:
                    raise Unavailable("The stream can't be continued")
                await relay.pass_on(response)
            finally:
                response.close()

    @contextlib.asynccontextmanager
    async def _while_owned(self, key: SessionKey, owner: Replica) -> AsyncGenerator[None]:
        """Raises TimeoutError when another server has taken the session over: the owner may be paused, or cut off."""
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch())
        async with asyncio.timeout(None) as deadline:
            self._waiting[deadline] = key, owner.id
            try:
                yield
            finally:
                del self._waiting[deadline]

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(OWNERS_SECONDS)
            for deadline, (key, owner_id) in list(self._waiting.items()):
                try:
                    owner = await self._replicas.owner_of(key, max_age_seconds=OWNERS_SECONDS)
                except GreenroomError:  # the database is away; nobody can take anything over
                    break
                if deadline in self._waiting and owner is not None and owner.id != owner_id:
                    deadline.reschedule(asyncio.get_running_loop().time())


class _Relay:
    """Sends responses of other servers to the client."""

    def __init__(self, send: Send, progress: LogProgress | None, error_headers: Mapping[str, str]) -> None:
        self.has_begun = False
        self.progress: LogProgress | NumberedProgress | None = progress
        """None for a response that can't be continued by another server."""

        self._send = send
        self._error_headers = error_headers
        self._final_frames: bytes | None = None
        """The end of a stream that is cut, if its protocol has one."""

    async def pass_on(self, response: Response) -> None:
        if not self.has_begun:
            await self._begin(response)

        frames = self.progress if response.status == HTTPStatus.OK else None
        if frames is None and self._final_frames is not None:
            frames = WholeFrames()
        if frames is not None:
            frames.begin()
        while piece := await response.read():
            data = piece if frames is None else frames.new_frames(piece)
            if data:
                await self._send({"type": "http.response.body", "body": data, "more_body": True})
        await self._send({"type": "http.response.body", "body": b"" if frames is None else frames.rest()})

    async def fail(self, error: GreenroomError) -> None:
        """Sends the error; at the end of a stream as its protocol has it, if it has errors."""
        if not self.has_begun:
            reply = error_reply(error)
            reply.headers.update(self._error_headers)
            await send_reply(reply, self._send)
        elif self._final_frames is not None:
            await self._send({"type": "http.response.body", "body": self._final_frames})

    async def _begin(self, response: Response) -> None:
        self.has_begun = True
        headers: list[tuple[bytes, bytes]] = []
        for name, value in end_to_end_headers(response.headers):
            if name == CONTINUATION:
                self.progress = NumberedProgress(value)
            elif name == FINAL_FRAMES:
                self._final_frames = unquote_to_bytes(value)
            elif name != b"date":
                headers.append((name, value))
        await self._send({"type": "http.response.start", "status": response.status, "headers": headers})


@contextlib.asynccontextmanager
async def _until_disconnect(receive: Receive) -> AsyncGenerator[None]:
    """Cancels the block when the client disconnects, and leaves it then as if it were done."""
    task = asyncio.current_task()
    assert task is not None
    has_left = False

    def on_disconnect(_: object) -> None:
        nonlocal has_left
        has_left = True
        task.cancel()

    leaving = asyncio.create_task(wait_for_disconnect(receive))
    leaving.add_done_callback(on_disconnect)
    try:
        yield
    except asyncio.CancelledError:
        if not has_left:
            raise
        task.uncancel()
    finally:
        leaving.remove_done_callback(on_disconnect)
        leaving.cancel()
