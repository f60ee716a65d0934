"""Lets the pages of listed origins read answers."""

from __future__ import annotations

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from greenroom.server.origin import mapped_prefix
from greenroom.server.settings import CorsSettings


def with_cors(app: ASGIApp, cors: CorsSettings) -> ASGIApp:
    if not cors.origins:
        return app
    literal = [origin for origin in cors.origins if not origin.startswith("regex:")]
    patterns = [origin.removeprefix("regex:") for origin in cors.origins if origin.startswith("regex:")]
    guarded = CORSMiddleware(
        app,
        allow_origins=literal,
        allow_origin_regex="|".join(f"(?:{pattern})" for pattern in patterns) or None,
        allow_methods=cors.methods,
        allow_headers=cors.headers,
        allow_credentials=cors.allow_credentials,
        expose_headers=("x-run-id", "x-next-page-token", "location"),
        max_age=cors.max_age,
    )
    prefix = mapped_prefix(cors)
    if prefix in ("", "/"):
        return guarded

    async def by_prefix(scope: Scope, receive: Receive, send: Send) -> None:
        mapped = scope["type"] == "lifespan" or scope["path"].startswith(prefix)
        await (guarded if mapped else app)(scope, receive, send)

    return by_prefix
