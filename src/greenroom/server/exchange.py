"""A request of a server that shares its store with others, until it is known which of them answers it."""

from __future__ import annotations

from typing import Protocol

from starlette.types import Message, Receive, Send

from greenroom.errors import OwnershipLost
from greenroom.records.session import SessionKey
from greenroom.runs.engine import ForwardedRequest

CONTINUATION = b"greenroom-continuation"
"""In a response to a forwarded request: see `StreamReply.continuation`."""

FINAL_FRAMES = b"greenroom-final-frames"
"""In a response to a forwarded request: the quoted end of the stream if its server ends before it."""

EXCHANGE = "greenroom.exchange"
"""In the scope: the request's Exchange. Not there on a server that shares its store with no other."""


class AskOwner(Protocol):
    """Sends a request that another one implies to the server that owns a session, with its credentials."""

    async def __call__(
        self, key: SessionKey, *, own_path: str, path: str, body: bytes = b"", method: str = "POST"
    ) -> tuple[int, bytes]:
        """Returns status and body of the response. own_path: the end of the request's path, which `path` replaces.

        Raises OwnershipLost, Unavailable, StorageError.
        """
        ...


class Exchange:
    """A request that this server handles itself, until its ownership refuses it: keeps the body, and sends nothing of
    the response to a refused request."""

    def __init__(
        self, receive: Receive, send: Send, *, keeps_body: bool, forwarded: ForwardedRequest | None = None
    ) -> None:
        """forwarded: None for a request that came from a client."""
        self.lost: OwnershipLost | None = None
        self.replica_id: str | None = None
        """The only server that can answer the request, if it isn't this one."""

        self.has_begun = False
        """True when something of the response was sent."""

        self.ask_owner: AskOwner | None = None
        """None for a request that another server has forwarded."""

        self.takes_key = False
        """True for endpoints at which requests with one idempotency key have one effect; they start at most one run."""

        self.streams_log = False
        """True for endpoints whose streams have the sequence numbers of events as ids."""

        self.is_forwarded = forwarded is not None
        """True if another server of the store has forwarded the request."""

        self.is_counted = forwarded is not None
        """True if another server of the store has counted the request against the rate limit."""

        self.cross_origin_headers: dict[str, str] = {}
        """Of the refused response, which also belong to an error that is sent in its place."""

        self._is_answered_here = False
        self._forwarded = forwarded
        self._receive = receive
        self._send = send
        self.keeps_body = keeps_body
        self._body: list[bytes] = []
        self._is_complete = False

    def note_lost(self, error: OwnershipLost) -> None:
        """Called when a service has refused a call without effect."""
        if not self._is_answered_here:
            self.lost = error

    def take_forwarded(self) -> ForwardedRequest | None:
        """Names the first run that the request starts; None for the others, and for a client's own request."""
        forwarded = self._forwarded
        self._forwarded = None
        return forwarded

    def forward_to(self, replica_id: str) -> None:
        """Has the request forwarded to a server that isn't known by a session, unless it was forwarded here."""
        if not self.is_forwarded:
            self.replica_id = replica_id

    def answer_here(self) -> None:
        """Has the request answered by this server, also if it owns less than it needs."""
        self._is_answered_here = True

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self._is_complete = not message.get("more_body")
            if self.keeps_body and not self.has_begun:
                self._body.append(message.get("body", b""))
        return message

    async def send(self, message: Message) -> None:
        if not self.has_begun:
            if self.lost is not None or self.replica_id is not None:
                self._note_headers(message)
                return
            self.has_begun = True
            self._body = []
        await self._send(message)

    def _note_headers(self, message: Message) -> None:
        for name, value in message.get("headers", ()):
            if name == b"vary" or name.startswith(b"access-control-"):
                self.cross_origin_headers[name.decode()] = value.decode("latin-1")

    async def whole_body(self) -> bytes | None:
        """The body, which the handler may not have read to its end; None if the client has left."""
        while not self._is_complete:
            if (await self.receive())["type"] == "http.disconnect":
                return None
        return b"".join(self._body)
