"""Origins that the server accepts. Source of the table: ADK's server."""

from __future__ import annotations

import pytest

from greenroom.server.settings import CorsSettings
from tests.server.conftest import Serve
from tests.server.serving import Serving

EVIL = "https://evil.example"
FRIEND = "https://friend.example"


async def test_without_an_origin_all_is_allowed(server: Serving) -> None:
    assert (await server.client.get("/list-apps")).status_code == 200


async def test_the_servers_own_pages_are_allowed(server: Serving) -> None:
    assert (await server.client.get("/list-apps", headers={"origin": server.url})).status_code == 200


@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS", "DELETE", "HEAD"])
@pytest.mark.parametrize(
    "origin", [EVIL, "null", "http://127.0.0.1", "http://localhost:1", "", "http://[", "http://]:x"]
)
async def test_other_origins_are_refused_while_none_is_listed(server: Serving, method: str, origin: str) -> None:
    reply = await server.client.request(method, "/list-apps", headers={"origin": origin})
    assert reply.status_code == 403
    assert reply.headers["content-type"].startswith("text/plain")
    if method != "HEAD":
        assert reply.text == "Forbidden: origin not allowed"
    assert "access-control-allow-origin" not in reply.headers


async def test_a_refused_request_has_no_effect(server: Serving) -> None:
    reply = await server.client.post("/apps/echo/users/u/sessions/s", headers={"origin": EVIL})
    assert reply.status_code == 403
    assert (await server.client.get("/apps/echo/users/u/sessions")).json() == []


@pytest.mark.parametrize(
    ("origins", "allowed", "refused"),
    [
        ((FRIEND,), FRIEND, EVIL),
        (("*",), EVIL, None),
        ((r"regex:https://.*\.friend\.example",), "https://a.friend.example", "https://a.friend.example.evil.example"),
        ((r"regex:https://a", FRIEND), FRIEND, "https://a.evil.example"),
    ],
)
async def test_listed_origins_are_allowed(
    serve: Serve, origins: tuple[str, ...], allowed: str, refused: str | None
) -> None:
    server = await serve(cors=CorsSettings(origins=origins))
    reply = await server.client.get("/list-apps", headers={"origin": allowed})
    assert reply.status_code == 200
    assert reply.headers["access-control-allow-origin"] in (allowed, "*")
    exposed = reply.headers["access-control-expose-headers"].lower().split(", ")
    assert {"x-run-id", "x-next-page-token", "location", "retry-after", "mcp-session-id"} <= set(exposed)
    if refused is not None:
        reply = await server.client.get("/list-apps", headers={"origin": refused})
        assert "access-control-allow-origin" not in reply.headers
        assert (reply.status_code, reply.text) == (403, "Forbidden: origin not allowed")


async def test_a_form_of_an_unlisted_origin_has_no_effect(serve: Serve) -> None:
    server = await serve(cors=CorsSettings(origins=(FRIEND,)))
    reply = await server.client.post("/apps/echo/users/u/sessions/s", headers={"origin": EVIL})
    assert reply.status_code == 403
    assert (await server.client.get("/apps/echo/users/u/sessions")).json() == []


async def test_a_preflight_is_answered(serve: Serve) -> None:
    server = await serve(cors=CorsSettings(origins=(FRIEND,)))
    asked = {
        "origin": FRIEND,
        "access-control-request-method": "PATCH",
        "access-control-request-headers": "content-type, x-anything",
    }
    reply = await server.client.options("/apps/echo/users/u/sessions/s", headers=asked)
    assert (reply.status_code, reply.text) == (200, "OK")
    assert reply.headers["access-control-allow-origin"] == FRIEND
    assert reply.headers["access-control-allow-credentials"] == "true"
    assert reply.headers["access-control-max-age"] == "3600"
    assert "x-anything" in reply.headers["access-control-allow-headers"]
    assert {"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"} <= {
        method.strip() for method in reply.headers["access-control-allow-methods"].split(",")
    }
    refused = await server.client.options("/list-apps", headers={**asked, "origin": EVIL})
    assert refused.status_code == 403


async def test_a_preflight_is_answered_as_it_is_set(serve: Serve) -> None:
    cors = CorsSettings(
        origins=(FRIEND,), methods=("GET",), headers=("x-only",), allow_credentials=False, max_age=7
    )  # fmt: skip
    server = await serve(cors=cors)
    asked = {"origin": FRIEND, "access-control-request-method": "GET"}
    reply = await server.client.options("/list-apps", headers={**asked, "access-control-request-headers": "x-only"})
    assert reply.status_code == 200
    assert reply.headers["access-control-allow-methods"] == "GET"
    assert "x-only" in reply.headers["access-control-allow-headers"].lower()
    assert reply.headers["access-control-max-age"] == "7"
    assert "access-control-allow-credentials" not in reply.headers
    for wrong in ({"access-control-request-method": "PATCH"}, {"access-control-request-headers": "x-other"}):
        assert (await server.client.options("/list-apps", headers={**asked, **wrong})).status_code == 400


async def test_errors_and_streams_carry_the_headers_too(serve: Serve) -> None:
    server = await serve(cors=CorsSettings(origins=(FRIEND,)))
    await server.new_session("echo")
    body = {"appName": "echo", "userId": "ann", "sessionId": "s-1", "newMessage": {"parts": [{"text": "hi"}]}}
    for reply in (
        await server.client.get("/nope", headers={"origin": FRIEND}),
        await server.client.post("/run", json={}, headers={"origin": FRIEND}),
        await server.client.post("/run_sse", json=body, headers={"origin": FRIEND}),
    ):
        assert reply.headers["access-control-allow-origin"] == FRIEND


async def test_a_listed_server_still_allows_its_own_pages(serve: Serve) -> None:
    server = await serve(cors=CorsSettings(origins=(FRIEND,)))
    reply = await server.client.post("/apps/echo/users/u/sessions", headers={"origin": server.url})
    assert reply.status_code == 200


async def test_a_mapping_limits_the_headers_to_its_paths(serve: Serve) -> None:
    server = await serve(cors=CorsSettings(origins=("*",), mapping="/apps/**"))
    inside = await server.client.get("/apps/echo/users/u/sessions", headers={"origin": EVIL})
    assert "access-control-allow-origin" in inside.headers
    outside = await server.client.get("/list-apps", headers={"origin": EVIL})
    assert "access-control-allow-origin" not in outside.headers
    assert outside.status_code == 403


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("127.0.0.1:{port}", True), ("localhost:{port}", True), ("LOCALHOST", True), ("app.localhost", True),
        ("[::1]:{port}", True), ("127.9.9.9", True), ("localhost.", True),
        ("chat.example:{port}", True), ("evil.example:{port}", False), ("evil.example", False), ("", False),
        ("localhost.evil.example", False), ("127.0.0.1.evil.example", False), ("evil.example#127.0.0.1", False),
        ("0.0.0.0", False), ("[::1].evil.example", False), ("192.168.1.1", False), ("notlocalhost", False),
    ],
)  # fmt: skip
async def test_a_name_led_to_this_machine_is_refused(serve: Serve, host: str, allowed: bool) -> None:
    server = await serve(allowed_hosts=("localhost", "chat.example"))
    host = host.format(port=server.port)
    for _ in range(2):
        reply = await server.client.get("/list-apps", headers={"host": host, "origin": f"http://{host}"})
        assert reply.status_code == (200 if allowed else 403)
        if not allowed:
            assert reply.text == "Forbidden: host not allowed"
