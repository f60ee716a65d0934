"""An OAuth 2 authorization server with an API behind it, on a real port. It is strict: every check of RFC 6749 and RFC
7636 that a client could get wrong is made, by code of its own."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import secrets
import time
from dataclasses import dataclass, field
from urllib.parse import parse_qs, unquote, urlencode

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

CLIENT_ID = "desk+client"
CLIENT_SECRET = "hush/hush"
REDIRECT = "https://desk.test/dev-ui/"


@dataclass
class AuthorizationServer:
    """codes: what was asked for each; tokens: when each expires. refreshable: refresh tokens that were not used yet.
    hold: the next request for a token waits for this event."""

    url: str = ""
    lifetime_seconds: float = 3600.0
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    tokens: dict[str, float] = field(default_factory=dict)
    refreshable: set[str] = field(default_factory=set)
    grants: list[str] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)
    is_down: bool = False
    hold: asyncio.Event | None = None
    client_id: str = CLIENT_ID
    client_secret: str = CLIENT_SECRET
    redirect: str = REDIRECT

    @property
    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/authorize", self.authorize),
                Route("/token", self.token, methods=["POST"]),
                Route("/me", self.me),
                Route("/.well-known/openid-configuration", self.discovery),
            ]
        )

    async def discovery(self, _: Request) -> Response:
        return JSONResponse({"authorization_endpoint": f"{self.url}/authorize", "token_endpoint": f"{self.url}/token"})

    async def authorize(self, request: Request) -> Response:
        """The user always consents, unless the page is opened with `deny`."""
        query = request.query_params
        if query.get("client_id") != self.client_id or query.get("redirect_uri") != self.redirect:
            return PlainTextResponse("unknown client or redirect", status_code=400)
        if query.get("response_type") != "code" or query.get("code_challenge_method") != "S256":
            return PlainTextResponse("not as RFC 7636 has it", status_code=400)
        if "deny" in query:
            answer = {"error": "access_denied", "state": query["state"]}
        else:
            code = secrets.token_urlsafe(16)
            self.codes[code] = {"challenge": query["code_challenge"], "scope": query.get("scope", "")}
            answer = {"code": code, "state": query["state"]}
        return RedirectResponse(f"{self.redirect}?{urlencode(answer)}")

    async def token(self, request: Request) -> Response:
        if self.is_down:
            return Response(status_code=503)
        form = {name: values[0] for name, values in parse_qs((await request.body()).decode()).items()}
        if not self._is_the_client(request.headers.get("authorization", "")):
            return JSONResponse({"error": "invalid_client"}, status_code=401)
        grant = form.get("grant_type", "")
        self.grants.append(grant)
        if self.hold is not None:
            held = self.hold
            self.hold = None
            await held.wait()
        if grant == "authorization_code":
            asked = self.codes.pop(form.get("code", ""), None)
            verifier = form.get("code_verifier", "")
            challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
            if asked is None or asked["challenge"] != challenge or form.get("redirect_uri") != self.redirect:
                return JSONResponse({"error": "invalid_grant"}, status_code=400)
        elif grant == "refresh_token":
            if form.get("refresh_token", "") not in self.refreshable:
                return JSONResponse({"error": "invalid_grant"}, status_code=400)
            self.refreshable.remove(form["refresh_token"])
        elif grant != "client_credentials":
            return JSONResponse({"error": "unsupported_grant_type"}, status_code=400)
        access = f"at-{secrets.token_urlsafe(12)}"
        refresh = f"rt-{secrets.token_urlsafe(12)}"
        self.tokens[access] = time.time() + self.lifetime_seconds
        self.refreshable.add(refresh)
        body = {"access_token": access, "token_type": "Bearer", "expires_in": self.lifetime_seconds}
        return JSONResponse(body if grant == "client_credentials" else {**body, "refresh_token": refresh})

    async def me(self, request: Request) -> Response:
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        self.seen.append(token)
        if self.tokens.get(token, 0) < time.time():
            return Response(status_code=401)
        return JSONResponse({"name": "Ada"})

    def _is_the_client(self, header: str) -> bool:
        kind, _, pair = header.partition(" ")
        name, _, secret = base64.b64decode(pair).decode().partition(":")
        return kind == "Basic" and (unquote(name), unquote(secret)) == (self.client_id, self.client_secret)
