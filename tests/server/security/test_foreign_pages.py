"""Pages of other sites, and names that resolve to this machine, can make a browser do nothing here."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from greenroom.server.endpoint import Endpoint
from tests.server.agents import asking_echo
from tests.server.conftest import Serve
from tests.server.security.keys import Keys, bearer
from tests.server.security.rules import status_of
from tests.server.serving import Serving
from tests.server.test_endpoint_table import HEADERS, body_for, each, filled, prepared

FOREIGN = ["https://evil.example", "null", "http://127.0.0.1:1", "http://127.0.0.1.evil.example", "file://", ""]
REBOUND = ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "evil.example:127", "", "::1", "[x]"]


async def sent(server: Serving, endpoint: Endpoint, path: str, values: Any, headers: dict[str, str]) -> httpx.Response:
    body = body_for(endpoint)
    return await server.client.request(
        endpoint.method,
        filled(path, values),
        headers={**HEADERS, **headers},
        **({} if body is None else {"json": body}),
    )


@pytest.mark.parametrize(("endpoint", "path"), each())
async def test_no_endpoint_answers_a_foreign_page(serve: Serve, keys: Keys, endpoint: Endpoint, path: str) -> None:
    """Not even with the cookie of somebody who is signed in, nor a method that no browser asks leave for."""
    server = await serve(asking_echo(), auth=keys.auth, allowed_hosts=("localhost",), allow_private_webhooks=True)
    scopes = ["admin"] if endpoint.access == "admin" else ["run", "read", "manage", "debug", "audit", "app:echo"]
    cookie = {"cookie": f"greenroom_key={keys('ann', *scopes)}"}
    server.client.headers.update(bearer(keys("root", "admin")))
    values = await prepared(server, endpoint)
    if endpoint.access == "admin":
        values["key_id"] = keys.fill("test")
    state = (await server.client.get("/apps/echo/users/ann/sessions/s-1")).json()
    del server.client.headers["authorization"]
    for origin in FOREIGN:
        reply = await sent(server, endpoint, path, values, {**cookie, "origin": origin})
        assert (reply.status_code, reply.text) == (403, "Forbidden: origin not allowed"), origin
        assert "access-control-allow-origin" not in reply.headers
    for host in REBOUND:
        headers = {**cookie, "host": host, "origin": f"http://{host}"}
        reply = await sent(server, endpoint, path, values, headers)
        assert (reply.status_code, reply.text) == (403, "Forbidden: host not allowed"), host
    reply = await sent(server, endpoint, path, values, {**cookie, "origin": server.url})
    assert reply.status_code == (
        401 if (endpoint.method, path) == ("POST", "/sign-in") else status_of(endpoint, with_keys=True)
    )
    if endpoint.method == "GET":
        server.client.headers.update(bearer(keys("root", "admin")))
        assert (await server.client.get("/apps/echo/users/ann/sessions/s-1")).json() == state


@pytest.mark.parametrize("path", ["/", "/nowhere", "/dev-ui/config", "/run"])
async def test_a_preflight_of_a_foreign_page_is_refused(server: Serving, path: str) -> None:
    headers = {"origin": "https://evil.example", "access-control-request-method": "POST"}
    reply = await server.client.options(path, headers=headers)
    assert reply.status_code == 403
    assert not [name for name in reply.headers if name.startswith("access-control-")]


async def test_a_form_that_hides_json_in_text_has_no_effect(server: Serving) -> None:
    """A browser sends text/plain anywhere without asking. Without an Origin it is a program, but still no JSON."""
    at = "/apps/echo/users/ann/sessions"
    for origin in ({}, {"origin": "https://evil.example"}):
        headers = {"content-type": "text/plain", **origin}
        reply = await server.client.post(at, content='{"sessionId": "evil"}', headers=headers)
        assert reply.status_code in (403, 422)
    assert (await server.client.get(at)).json() == []


async def test_two_hosts_or_origins_do_not_pass_by_each_other(serve: Serve) -> None:
    server = await serve(allowed_hosts=("localhost",))
    own = server.url.removeprefix("http://")
    for lines in (
        f"host: {own}\r\nhost: evil.example",
        f"host: evil.example\r\nhost: {own}",
        f"host: {own}\r\norigin: {server.url}\r\norigin: https://evil.example",
        f"host: {own}\r\norigin: https://evil.example\r\norigin: {server.url}",
        "host: ",
    ):
        connection = await server.connect()
        connection.writer.write(f"GET /list-apps HTTP/1.1\r\n{lines}\r\nconnection: close\r\n\r\n".encode())
        status, _ = await connection.head()
        assert status in (400, 403), lines
