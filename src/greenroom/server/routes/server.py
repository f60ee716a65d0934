"""Handlers of the server itself: health, version, metrics, pages, the OpenAPI document and sign-in."""

from __future__ import annotations

import platform
import time

from greenroom.errors import Unavailable
from greenroom.records import wire
from greenroom.records.base import Record
from greenroom.records.listings import ListSettingsResponse
from greenroom.records.replica import ListReplicasResponse
from greenroom.server.access.identity import ADMIN, APP_PREFIX, COOKIE
from greenroom.server.replies import AnyReply, Reply, redirect_reply
from greenroom.server.request_context import RequestContext
from greenroom.version import __version__


async def health(context: RequestContext) -> AnyReply:
    return Reply(value={"status": "ok"})


async def ready(context: RequestContext) -> AnyReply:
    """Checks that the server isn't stopping, and that the stores answer; one check a second serves all requests.

    Raises Unavailable.
    """
    if context.is_draining:
        raise Unavailable("Not ready: the server is stopping")
    failing = await context.failing_stores()
    if failing:
        raise Unavailable(f"Not ready: no answer from the store of {' and '.join(failing)}")
    return Reply(value={"status": "ok"})


async def version(context: RequestContext) -> AnyReply:
    python = platform.python_version()
    return Reply(value={"version": __version__, "language": "python", "language_version": python})


_TEXT_FORMAT = "text/plain; version=0.0.4; charset=utf-8"


async def metrics(context: RequestContext) -> AnyReply:
    return Reply(data=await context.metrics_text(), media_type=_TEXT_FORMAT)


async def list_settings(context: RequestContext) -> AnyReply:
    return Reply(value=ListSettingsResponse(settings=context.server_settings()))


async def list_replicas(context: RequestContext) -> AnyReply:
    return Reply(value=ListReplicasResponse(replicas=await context.engine.list_replicas()))


async def redirect(context: RequestContext) -> AnyReply:
    return redirect_reply(context.address.path("/dev-ui/"))


async def openapi(context: RequestContext) -> AnyReply:
    """Returns the document, with the public prefix of its paths if there is one."""
    data = context.interface
    if prefix := context.address.prefix:
        data = b'{"servers":%b,%b' % (wire.encode([{"url": prefix}]), data.removeprefix(b"{"))
    return Reply(data=data)


async def sign_in_page(context: RequestContext) -> AnyReply:
    return redirect_reply(context.address.path("/dev-ui/sign-in"))


class SignInRequest(Record, kw_only=True):
    """Credentials for the web page."""

    key: str
    """An API key or a token; an empty one signs out."""


class SignedIn(Record, kw_only=True, omit_defaults=False):
    """The signed-in caller."""

    user_id: str | None = None
    """The only user that the key acts for; None if it acts for several, or if nobody has signed in."""


async def sign_in(context: RequestContext) -> AnyReply:
    signed_in = SignedIn()
    body: SignInRequest = context.body
    key = body.key.strip()
    address = context.address
    attributes = [f"Path={address.prefix or '/'}", "HttpOnly", "SameSite=Strict"]
    if address.scheme == "https" or context.headers.get("origin", "").startswith("https://"):
        attributes.append("Secure")
    if not key:
        attributes.append("Max-Age=0")
    else:
        identity = await context.identify(key)
        if not identity.key_id and identity.expires_at is None:
            key = ""  # authentication is off
        elif identity.expires_at is not None:
            attributes.append(f"Max-Age={max(int(identity.expires_at - time.time()), 0)}")
        if not any(scope == ADMIN or scope.startswith(APP_PREFIX) for scope in identity.scopes):
            signed_in.user_id = identity.subject

    return Reply(value=signed_in, headers={"set-cookie": "; ".join([f"{COOKIE}={key}", *attributes])})
