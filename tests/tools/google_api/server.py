"""A small server that speaks the wire format of Google's REST APIs, on a real port."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

Json = dict[str, Any]


@dataclass
class Seen:
    method: str
    path: str
    query: list[tuple[str, str]]
    headers: dict[str, str]
    raw_body: bytes

    @property
    def body(self) -> Any:
        return json.loads(self.raw_body) if self.raw_body else None

    @property
    def call(self) -> str:
        return f"{self.method} {self.path}"


Answer = Callable[[Seen], Response] | Response | Json | list[Any]


@dataclass
class GoogleServer:
    """answers: by `METHOD /path`. Calls with another token than the accepted ones get 401; None accepts all."""

    url: str = ""
    answers: dict[str, Answer] = field(default_factory=dict[str, Answer])
    seen: list[Seen] = field(default_factory=list[Seen])
    tokens: Callable[[str], bool] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            for _ in range(2):
                await send({"type": f"{(await receive())['type']}.complete"})
            return
        request = Request(scope, receive)
        seen = Seen(
            method=request.method,
            path=scope["raw_path"].decode(),
            query=list(request.query_params.multi_items()),
            headers=dict(request.headers),
            raw_body=await request.body(),
        )
        self.seen.append(seen)
        await self._answer(seen)(scope, receive, send)

    @property
    def last(self) -> Seen:
        return self.seen[-1]

    def calls(self) -> list[str]:
        return [seen.call for seen in self.seen]

    def service_account(self) -> Json:
        """The content of a key file whose tokens this server issues, at `/token`."""
        self.answers["POST /token"] = {"access_token": "sa-token", "expires_in": 3600, "token_type": "Bearer"}
        return {
            "type": "service_account",
            "project_id": "p-1",
            "private_key": _private_key(),
            "client_email": "bot@p-1.iam.gserviceaccount.com",
            "token_uri": f"{self.url}/token",
        }

    def _answer(self, seen: Seen) -> Response:
        needs_token = self.tokens is not None and seen.path != "/token" and "discovery" not in seen.path
        if needs_token and self.tokens is not None:
            token = seen.headers.get("authorization", "").removeprefix("Bearer ")
            if not self.tokens(token):
                return refusal(401, "UNAUTHENTICATED", "Request had invalid authentication credentials.")
        answer = self.answers.get(seen.call)
        if answer is None:
            return refusal(404, "NOT_FOUND", f"No such thing: {seen.path}")
        if isinstance(answer, Response):
            return answer
        return answer(seen) if callable(answer) else JSONResponse(answer)


def refusal(status: int, code: str, message: str) -> Response:
    """An error as Google's APIs report it."""
    return JSONResponse({"error": {"code": status, "message": message, "status": code}}, status_code=status)


@cache
def _private_key() -> str:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    plain = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return plain.decode()
