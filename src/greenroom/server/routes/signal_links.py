"""Handlers of the signed URLs that agents hand out: a page that asks for confirmation, and the signal."""

from __future__ import annotations

import html
from typing import Any

import msgspec

from greenroom.errors import (
    CallerError,
    Conflict,
    GreenroomError,
    InvalidRequest,
    NotWaiting,
    RunNotFound,
    SignalRepeated,
)
from greenroom.records import wire
from greenroom.records.base import JsonValue, Record
from greenroom.server.replies import AnyReply, Reply
from greenroom.server.request_body import check_is_plain, decode_limited, other_media_type, read_body
from greenroom.server.request_context import RequestContext
from greenroom.server.signal_urls import SignalTicket

_decode_value = msgspec.json.Decoder(Any).decode

_HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "referrer-policy": "same-origin",
    "x-robots-tag": "noindex",
}
_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><meta name="color-scheme" content="light dark">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>{title}</title>
<style>body {{ font: 1rem/1.5 system-ui, sans-serif; max-width: 32rem; margin: 15vh auto; padding: 0 1rem }}
button {{ font: inherit; padding: .5rem 1.5rem }}</style>
<h1>{title}</h1>
<p>{text}</p>
{form}
"""
_WORDS: dict[type[GreenroomError], str] = {
    SignalRepeated: "It was answered before.",
    NotWaiting: "An answer is no longer needed.",
    RunNotFound: "What it was for is no longer there.",
}
"""For people, who don't know runs."""

_FORM = '<form method="post"><button>Confirm</button></form>'


class SignalSent(Record, kw_only=True, omit_defaults=False):
    """A signal that was sent by its signed URL."""

    signal: str
    """The signal's name."""


async def signal_page(context: RequestContext) -> AnyReply:
    """Asks a person for confirmation. It changes nothing: programs follow the links in mails, too."""
    try:
        ticket = context.read_ticket(context.path["token"])
        run = await context.engine.check_ticket(ticket)
    except (CallerError, Conflict) as error:
        return _refusal(context, error)

    answer = f"{ticket.signal}: {_shown(ticket)}" if ticket.value is not None else ticket.signal
    text = f"Send <b>{html.escape(answer)}</b> to {html.escape(run.app_name)}?"
    return _page("Please confirm", text, form=_FORM)


async def send_signal(context: RequestContext) -> AnyReply:
    """Sends the signal, with the value of the URL or, if that has none, of the body as JSON."""
    try:
        value = await _value_in_body(context)
        ticket = context.read_ticket(context.path["token"])
        await context.engine.use_ticket(ticket, value if ticket.value is None else ticket.value)
    except (CallerError, Conflict) as error:
        return _refusal(context, error)

    if _wants_page(context):
        return _page("Thank you", "Your answer was sent. You can close this page.")
    return Reply(value=SignalSent(signal=ticket.signal))


async def _value_in_body(context: RequestContext) -> JsonValue:
    """None for an empty body and for a form, which the page sends. Raises InvalidRequest, TooLarge."""
    settings = context.settings
    check_is_plain(context.headers)
    data = await read_body(context.receive, context.headers, limit_bytes=settings.max_body_bytes)
    if not data or other_media_type(context.headers) == "application/x-www-form-urlencoded":
        return None
    try:
        return decode_limited(data, _decode_value, settings.limits)
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"The body must be JSON: {error}", location=("body",)) from None


def _shown(ticket: SignalTicket) -> str:
    return ticket.value if isinstance(ticket.value, str) else wire.encode(ticket.value).decode()


def _wants_page(context: RequestContext) -> bool:
    return "text/html" in context.headers.get("accept", "")


def _refusal(context: RequestContext, error: GreenroomError) -> Reply:
    if not _wants_page(context):
        raise error
    text = _WORDS.get(type(error)) or html.escape(error.detail)
    return _page("This link can't be used", text, status=error.status)


def _page(title: str, text: str, *, form: str = "", status: int = 200) -> Reply:
    content = _PAGE.format(title=html.escape(title), text=text, form=form)
    return Reply(data=content.encode(), status=status, media_type="text/html; charset=utf-8", headers=dict(_HEADERS))
