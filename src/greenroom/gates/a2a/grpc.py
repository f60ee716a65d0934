"""The gRPC binding of version 1.0, at an address of its own. A request's `tenant` is the app;
without one, it is the default app.

Callers authenticate by the metadata `authorization` or `x-api-key`; requests have the limits that they have over HTTP.
"""

# pyright: reportUnknownMemberType=false
# grpcio has no types.

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, NoReturn, cast
from urllib.parse import unquote

import grpc
from a2a.server.context import ServerCallContext
from a2a.server.request_handlers.grpc_handler import DefaultGrpcServerCallContextBuilder, GrpcHandler
from a2a.types import a2a_pb2_grpc
from a2a.utils.errors import A2AError
from google.protobuf.message import Message

from greenroom.audit.acting import CURRENT
from greenroom.errors import ConfigurationError, GreenroomError, InvalidRequest, OwnershipLost, Unauthenticated
from greenroom.gates.a2a.card import card_of
from greenroom.gates.a2a.handler import CALL, A2aCall, RunHandler
from greenroom.server.access.audit import RequestAudit
from greenroom.server.access.revocation import CHECK_SECONDS
from greenroom.server.addresses import public_address
from greenroom.server.request_context import RequestContext
from greenroom.server.server_state import ServerState

MAX_METADATA_BYTES = 65_536
MAX_CALLS = 1000
"""Of a server at a time; of one connection a tenth."""

_CODES = {
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    409: grpc.StatusCode.FAILED_PRECONDITION,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    422: grpc.StatusCode.INVALID_ARGUMENT,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    503: grpc.StatusCode.UNAVAILABLE,
}
_CREDENTIALS = ("authorization", "x-api-key")
_call: ContextVar[A2aCall] = ContextVar("a2a_call")


@asynccontextmanager
async def serving(server: ServerState, address: str) -> AsyncGenerator[None]:
    """Listens inside the context. Open calls may end within the server's grace period. Raises ConfigurationError."""
    listener = grpc.aio.server(
        maximum_concurrent_rpcs=MAX_CALLS,
        options=[
            ("grpc.max_receive_message_length", server.settings.max_body_bytes),
            ("grpc.max_send_message_length", -1),
            ("grpc.max_metadata_size", MAX_METADATA_BYTES),
            ("grpc.max_concurrent_streams", MAX_CALLS // 10),
            ("grpc.so_reuseport", 0),
        ],
    )
    a2a_pb2_grpc.add_A2AServiceServicer_to_server(_Service(server), listener)  # pyright: ignore[reportUnknownMemberType]

    try:
        if not listener.add_insecure_port(address):
            raise RuntimeError("the address is in use")
    except RuntimeError as error:
        raise ConfigurationError([f"gRPC can't listen on {address}: {error}"]) from None

    await listener.start()
    try:
        yield
    finally:
        await listener.stop(server.settings.grace_seconds)


class _GrpcContextBuilder(DefaultGrpcServerCallContextBuilder):
    def build(self, context: grpc.aio.ServicerContext[Any, Any]) -> ServerCallContext:
        built = super().build(context)
        built.state[CALL] = _call.get()
        return built


class _Service(GrpcHandler):
    def __init__(self, server: ServerState) -> None:
        super().__init__(RunHandler(), _GrpcContextBuilder())
        self._server = server

    async def _handle_unary(
        self,
        request: Message,
        context: grpc.aio.ServicerContext[Any, Any],
        handler_func: Callable[[ServerCallContext], Awaitable[Any]],
        default_response: Any,
    ) -> Any:
        audit = self._audit(request, context)
        try:
            call = await self._open(request, context, audit)
            try:
                reply = await super()._handle_unary(request, context, handler_func, default_response)
            finally:
                call.close()
        except grpc.aio.AbortError:
            await _record(audit, context)
            raise
        await _record(audit, context, succeeded=True)
        return reply

    async def _handle_stream(
        self,
        request: Message,
        context: grpc.aio.ServicerContext[Any, Any],
        handler_func: Callable[[ServerCallContext], AsyncIterable[Any]],
    ) -> AsyncGenerator[Any]:
        audit = self._audit(request, context)
        try:
            call = await self._open(request, context, audit)
        except grpc.aio.AbortError:
            await _record(audit, context)
            raise
        authenticator = self._server.authenticator

        check_at = 0.0
        has_begun = False
        try:
            async for item in super()._handle_stream(request, context, handler_func):
                if not has_begun:
                    has_begun = True
                    await _record(audit, context, succeeded=True)
                if authenticator is not None and (now := time.monotonic()) >= check_at:
                    check_at = now + CHECK_SECONDS
                    if not await authenticator.is_still_good(call.context.identity):
                        await _abort(context, Unauthenticated("The key was revoked or has expired"))
                yield item
        except grpc.aio.AbortError:
            if not has_begun:
                await _record(audit, context)
            raise
        finally:
            call.close()

    def _audit(self, request: Message, context: grpc.aio.ServicerContext[Any, Any]) -> RequestAudit | None:
        """The recorder of this call, whose task handles it to its end; None where the audit trail is off."""
        if self._server.audit is None:
            return None
        scope = {
            "headers": _headers(context, "x-request-id"),
            "method": "GRPC",
            "path": type(request).__name__.removesuffix("Request"),
            "path_params": {"app_name": getattr(request, "tenant", "")},
        }
        audit = RequestAudit(self._server.audit, scope)
        CURRENT.set(audit)
        return audit

    async def _open(
        self, request: Message, context: grpc.aio.ServicerContext[Any, Any], audit: RequestAudit | None
    ) -> A2aCall:
        """Authenticates the caller, and checks the request. Aborts the call when either fails."""
        server = self._server
        metadata = {str(name): value for name, value in context.invocation_metadata() or () if isinstance(value, str)}
        headers = _headers(context, *_CREDENTIALS)
        peer = unquote(context.peer()).partition(":")[2].rpartition(":")[0]
        access = "read" if type(request).__name__.startswith(("Get", "List", "Subscribe")) else "run"
        scope = {"type": "http", "headers": headers, "query_string": b"", "client": (peer, 0)}

        try:
            identity = await server.admit(scope, access)
            app_name = getattr(request, "tenant", "") or await server.default_app_for(identity)
            _check_items(request, server.settings.limits.request_items)
            opened = RequestContext(
                server=server,
                identity=identity,
                access=access,
                path={"app_name": app_name},
                query={},
                headers={"a2a-version": "1.0", **metadata},
                body=None,
                receive=_receive,
                find_address=partial(public_address, server.settings.url_prefix),
                audit=audit,
            )
            await opened.apps.check_exists(app_name)
        except GreenroomError as error:
            await _abort(context, error)

        call = A2aCall(opened, card_of)
        _call.set(call)
        return call

    async def abort_context(self, error: A2AError, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        refused = _call.get().refused
        if refused is not None:
            await _abort(context, refused)
        await super().abort_context(error, context)


async def _receive() -> NoReturn:
    raise RuntimeError("gRPC requests have no body to read")


def _headers(context: grpc.aio.ServicerContext[Any, Any], *names: str) -> list[tuple[bytes, bytes]]:
    """The metadata of these names, as headers."""
    given = {str(name): value for name, value in context.invocation_metadata() or () if isinstance(value, str)}
    return [(name.encode(), given[name].encode("latin-1")) for name in names if name in given]


async def _record(
    audit: RequestAudit | None, context: grpc.aio.ServicerContext[Any, Any], *, succeeded: bool = False
) -> None:
    """Records what was noted of a call in the audit trail. Aborts the call if that fails."""
    if audit is None:
        return
    try:
        await audit.record_noted(succeeded=succeeded)
    except GreenroomError as error:
        await _abort(context, error)


async def _abort(context: grpc.aio.ServicerContext[Any, Any], error: GreenroomError) -> NoReturn:
    if (audit := RequestAudit.of_current()) is not None:
        audit.note_error(error)
    detail = error.detail
    if isinstance(error, OwnershipLost):
        detail = f"Another server runs session {error.session_id!r}, and gRPC is not forwarded. Use A2A over HTTP"
    await context.abort(_CODES.get(int(error.status), grpc.StatusCode.INTERNAL), detail)


def _check_items(message: Message, left: int) -> int:
    """Counts the values in a message. Returns how many more are allowed; raises InvalidRequest beyond."""
    for _, value in message.ListFields():
        many: Collection[Any] = [value]
        if isinstance(value, Mapping) and not isinstance(value, Message):
            many = cast("Mapping[str, Any]", value).values()
        elif isinstance(value, Sequence) and not isinstance(value, (str, bytes, Message)):
            many = cast("Sequence[Any]", value)
        left -= len(many)
        if left < 0:
            raise InvalidRequest("The request has too many items")
        for item in many:
            if isinstance(item, Message):
                left = _check_items(item, left)

    return left
