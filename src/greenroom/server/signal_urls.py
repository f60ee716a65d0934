"""Signed URLs that send one signal to one run: `https://agents.example.com/signals/TOKEN`.

A token is base64 of a ticket's JSON, a dot, and base64 of its signature. The secrets are those of webhooks: the first
one of an app signs, and each verifies, so that URLs outlive the rotation of secrets.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from collections.abc import Callable, Sequence

import msgspec

from greenroom.errors import LinkExpired, NotFound, NotOffered
from greenroom.records import wire
from greenroom.records.base import JsonValue, Record
from greenroom.records.wake_up import SentSignal

_DOMAIN = b"greenroom signal url\n"
"""Begins what is signed, so that no signature of a webhook's message is one of a token."""

_MAX_TOKEN_BYTES = 1024
_MAX_SECONDS = 366 * 86400.0
_INVALID = "This link is not valid"


class SignalTicket(Record, kw_only=True):
    """A signal that the holder of a URL may send."""

    id: str
    """The URLs with the same id count once."""
    app_name: str
    run_id: str
    signal: str
    value: JsonValue = None
    """None if the request gives it."""
    expires_at: float
    """Unix seconds."""

    def signal_with(self, value: JsonValue) -> SentSignal:
        """value: the ticket's, or the request's."""
        return SentSignal(id=self.id, name=self.signal, value=value, sent_at=time.time(), known_until=self.expires_at)


_decode = wire.decoder(SignalTicket)


class SignalUrls:
    """Makes and reads the URLs of a server.

    public_url: as clients reach the server; None if no URLs are made. signers: those of an app, which a webhook's
    messages have, too. Raises NotOffered.
    """

    def __init__(self, public_url: str | None, signers: Callable[[str], Sequence[Callable[[bytes], str]]]) -> None:
        self._public_url = public_url
        self._signers = signers

    def make(
        self, *, app_name: str, run_id: str, signal: str, value: JsonValue, place: str, expires_seconds: float
    ) -> str:
        """place: the URLs of one run, signal and place count once. Raises NotOffered, ValueError."""
        if self._public_url is None:
            raise NotOffered("Signal URLs need the setting public_url: the URL at which clients reach the server")
        if not 0 < expires_seconds <= _MAX_SECONDS:
            raise ValueError(f"expires_seconds must be more than 0, and {_MAX_SECONDS:.0f} at most")

        ticket = SignalTicket(
            id=hashlib.sha256(f"{run_id}\n{signal}\n{place}".encode()).hexdigest()[:32],
            app_name=app_name,
            run_id=run_id,
            signal=signal,
            value=value,
            expires_at=round(time.time() + expires_seconds),
        )
        data = wire.encode(ticket)
        signature = self._signers(app_name)[0](_DOMAIN + data)
        token = f"{_to_text(data)}.{_to_text(signature.encode())}"
        if len(token) > _MAX_TOKEN_BYTES:
            raise ValueError("The signal's name and value are too long for a URL")
        return f"{self._public_url.rstrip('/')}/signals/{token}"

    def read(self, token: str) -> SignalTicket:
        """Raises NotFound for a token that was not made here, and LinkExpired."""
        data, _, signature = token.partition(".")
        try:
            content = _from_text(data)
            ticket = _decode(content)
            signers = self._signers(ticket.app_name)
            given = _from_text(signature)
        except (msgspec.DecodeError, ValueError, NotOffered):
            raise NotFound(_INVALID) from None

        if not any(hmac.compare_digest(sign(_DOMAIN + content).encode(), given) for sign in signers):
            raise NotFound(_INVALID)
        if ticket.expires_at <= time.time():
            raise LinkExpired("This link has expired")
        return ticket


def _to_text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _from_text(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
