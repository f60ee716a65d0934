"""Paths with a slash at their end lead to those without, as ADK's server does."""

from __future__ import annotations

import httpx
import pytest

from tests.server.conftest import Serve
from tests.server.serving import Serving

SESSIONS = "/apps/echo/users/ann/sessions"


@pytest.mark.parametrize(
    ("path", "location"),
    [
        ("/list-apps/", "/list-apps"),
        ("/list-apps/?detailed=true&x=%2F", "/list-apps?detailed=true&x=%2F"),
        ("/list-apps//", "/list-apps"),
        (f"{SESSIONS}/", SESSIONS),
        (f"{SESSIONS}/a%2Fb/", f"{SESSIONS}/a%2Fb"),
        ("/users/ann/sessions/", "/users/ann/sessions"),
        ("/run_sse/", "/run_sse"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("prefix", ["", "/agents"])
async def test_a_redirect_keeps_method_query_and_prefix(
    serve: Serve, method: str, prefix: str, path: str, location: str
) -> None:
    server = await serve(url_prefix=prefix or None)
    reply = await server.client.request(method, prefix + path, json={})
    assert (reply.status_code, reply.headers["location"]) == (307, prefix + location)


async def test_a_session_is_created_with_its_body(server: Serving) -> None:
    reply = await server.client.post(f"{SESSIONS}/", json={"sessionId": "s-9"}, follow_redirects=True)
    assert (reply.status_code, reply.json()["id"]) == (200, "s-9")


@pytest.mark.parametrize("path", ["/nothing/", "//list-apps/", "//evil.example/", "//evil.example/list-apps/", "/x//"])
async def test_other_paths_are_unknown(server: Serving, path: str) -> None:
    reply = await server.client.send(httpx.Request("GET", server.url + path, headers={"host": "localhost"}))
    assert reply.status_code == 404


@pytest.mark.parametrize("path", ["/", "/dev-ui/", f"{SESSIONS}/s-1/artifacts/folder/"])
async def test_paths_that_end_with_a_slash_themselves(server: Serving, path: str) -> None:
    reply = await server.client.get(path)
    assert reply.headers.get("location") in (None, "/dev-ui/")
