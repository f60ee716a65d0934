"""The server's address below a path and after proxies: what it believes, and what it gives to clients."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.types import Scope

from greenroom.errors import ConfigurationError
from greenroom.server.addresses import RequestLocator, address_of
from greenroom.server.application import create_app
from greenroom.server.settings import ServerSettings
from tests.server.agents import echo
from tests.server.conftest import Serve
from tests.server.serving import Json

PATHS = {"/list-apps", "/apps/echo/app-info", "/dev/apps/echo/build_graph", "/"}
PROXY = "10.0.0.5"


def located(
    path: str = "/list-apps",
    headers: dict[str, str] | list[tuple[str, str]] | None = None,
    *,
    client: str = PROXY,
    trusted: tuple[str, ...] = ("10.0.0.0/8",),
    **more: Any,
) -> Scope:
    pairs = list((headers or {}).items()) if not isinstance(headers, list) else headers
    scope: Scope = {
        "type": "http",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "client": (client, 4711),
        "headers": [(b"host", b"upstream:8000"), *((name.lower().encode(), value.encode()) for name, value in pairs)],
    }
    settings = ServerSettings(trusted_proxies=trusted, url_prefix=more.pop("url_prefix", None))
    return RequestLocator(settings, knows=PATHS.__contains__).locate({**scope, **more})


@pytest.mark.parametrize(
    ("headers", "url", "client"),
    [
        ({}, "http://upstream:8000", PROXY),
        ({"X-Forwarded-Proto": "https"}, "https://upstream:8000", PROXY),
        ({"X-Forwarded-Host": "example.com", "X-Forwarded-Prefix": "/agents"}, "http://example.com/agents", PROXY),
        ({"X-Forwarded-Prefix": "/a/b/"}, "http://upstream:8000/a/b", PROXY),
        ({"X-Forwarded-For": "203.0.113.7"}, "http://upstream:8000", "203.0.113.7"),
        ({"X-Forwarded-For": "203.0.113.7:99"}, "http://upstream:8000", "203.0.113.7"),
        ({"X-Forwarded-For": "[2001:db8::1]:99"}, "http://upstream:8000", "2001:db8::1"),
        ({"X-Forwarded-For": "unknown"}, "http://upstream:8000", PROXY),
        # what a client has sent itself is further left than what the proxies have added
        ({"X-Forwarded-For": "6.6.6.6, 203.0.113.7"}, "http://upstream:8000", "203.0.113.7"),
        (
            {"X-Forwarded-For": "6.6.6.6, 203.0.113.7", "X-Forwarded-Host": "evil.example, example.com"},
            "http://example.com",
            "203.0.113.7",
        ),
        # two proxies, each of which adds to the lists
        (
            {
                "X-Forwarded-For": "6.6.6.6, 203.0.113.7, 10.1.1.1",
                "X-Forwarded-Proto": "http, https, http",
                "X-Forwarded-Prefix": "/evil, /outer, /inner",
            },
            "https://upstream:8000/outer/inner",
            "203.0.113.7",
        ),
        ([("X-Forwarded-For", "203.0.113.7"), ("X-Forwarded-For", "10.1.1.1")], "http://upstream:8000", "203.0.113.7"),
        (
            {"Forwarded": 'for=203.0.113.7;proto=https;host="example.com:8443"'},
            "https://example.com:8443",
            "203.0.113.7",
        ),
        (
            {"Forwarded": 'for=6.6.6.6;host=evil.example, For="[2001:db8::1]:99";Proto=https, for=10.1.1.1;proto=http'},
            "https://upstream:8000",
            "2001:db8::1",
        ),
        ({"Forwarded": "for=_hidden;proto=https", "X-Forwarded-Prefix": "/x"}, "https://upstream:8000/x", PROXY),
        ({"Forwarded": 'for="a,b;c'}, "http://upstream:8000", PROXY),
        # a proxy that sets the others passes on a client's own `Forwarded`
        (
            {"Forwarded": "for=6.6.6.6;host=evil.example", "X-Forwarded-Host": "example.com"},
            "http://example.com",
            PROXY,
        ),
        # neither another host nor another header can be named
        ({"X-Forwarded-Prefix": "//evil.example"}, "http://upstream:8000", PROXY),
        ({"X-Forwarded-Prefix": "/a/../b"}, "http://upstream:8000", PROXY),
        ({"X-Forwarded-Prefix": "/a;Domain=example"}, "http://upstream:8000", PROXY),
        ({"X-Forwarded-Prefix": "/<b>"}, "http://upstream:8000", PROXY),
        ({"X-Forwarded-Host": "a/b"}, "http://upstream:8000", PROXY),
        ({"X-Forwarded-Proto": "javascript"}, "http://upstream:8000", PROXY),
    ],
)
def test_trusted_proxies_name_the_address(headers: Any, url: str, client: str) -> None:
    scope = located(headers=headers)
    assert (address_of(scope).url(), scope["client"][0], scope["path"]) == (url, client, "/list-apps")


@pytest.mark.parametrize(
    ("client", "trusted"), [("192.0.2.1", ("10.0.0.0/8",)), (PROXY, ()), (PROXY, ("10.0.0.6", "::1")), ("", ("::/0",))]
)
def test_headers_of_others_are_ignored(client: str, trusted: tuple[str, ...]) -> None:
    headers = {
        "X-Forwarded-For": "203.0.113.7",
        "X-Forwarded-Proto": "https",
        "X-Forwarded-Host": "example.com",
        "X-Forwarded-Prefix": "/agents",
        "Forwarded": "for=203.0.113.7",
    }
    scope = located("/agents/list-apps", headers, client=client, trusted=trusted)
    assert address_of(scope).url() == "http://upstream:8000"
    assert (scope["path"], scope["client"]) == ("/agents/list-apps", (client, 4711))


@pytest.mark.parametrize("trusted", [("*",), (PROXY,), ("10.0.0.5/8",), ("fe80::1", "::ffff:10.0.0.5", PROXY)])
@pytest.mark.parametrize("client", [PROXY, "::ffff:10.0.0.5"])
def test_proxies_are_named_by_address_or_network(client: str, trusted: tuple[str, ...]) -> None:
    scope = located(headers={"X-Forwarded-Proto": "https"}, client=client, trusted=trusted)
    assert address_of(scope).scheme == "https"


@pytest.mark.parametrize("entry", ["example.com", "10.0.0.0/40", "10.0.0", "", "* "])
def test_a_proxy_that_is_no_address_is_refused(entry: str) -> None:
    with pytest.raises(ConfigurationError, match="trusted_proxies must"):
        ServerSettings(trusted_proxies=(entry,))


@pytest.mark.parametrize(
    ("setting", "url"),
    [
        ("/agents", "http://upstream:8000/agents"),
        ("agents/", "http://upstream:8000/agents"),
        ("/api/v1", "http://upstream:8000/api/v1"),
        ("/", "http://upstream:8000"),
        ("https://example.com/agents", "https://example.com/agents"),
        ("https://example.com:8443", "https://example.com:8443"),
        ("http://[::1]:9/x/", "http://[::1]:9/x"),
    ],
)
def test_the_setting_names_the_address(setting: str, url: str) -> None:
    assert address_of(located(url_prefix=setting)).url() == url
    headers = {"X-Forwarded-Prefix": "/other"}
    assert address_of(located(url_prefix=setting, headers=headers)).url() == url


@pytest.mark.parametrize(
    "setting", ["//evil.example", "/a//b", "/a/..", "/./a", "/a b", "ftp://x/y", "https://", "/a?b", "/ä", "/a;b"]
)
def test_a_prefix_that_is_no_path_is_refused(setting: str) -> None:
    with pytest.raises(ConfigurationError, match="url_prefix must be a path"):
        ServerSettings(url_prefix=setting)


@pytest.mark.parametrize(
    ("prefix", "path", "own"),
    [
        ("/agents", "/agents/list-apps", "/list-apps"),  # the proxy keeps the prefix
        ("/agents", "/list-apps", "/list-apps"),  # the proxy removes it
        ("/agents", "/agents", "/"),
        ("/agents", "/agents2/list-apps", "/agents2/list-apps"),
        ("/a%20b", "/a%20b/apps/x%2Fy", "/apps/x%2Fy"),
        # the server's own paths begin with the prefix
        ("/apps", "/apps/echo/app-info", "/apps/echo/app-info"),
        ("/apps", "/apps/apps/echo/app-info", "/apps/echo/app-info"),
        ("/apps", "/apps/list-apps", "/list-apps"),
        ("/dev", "/dev/apps/echo/build_graph", "/dev/apps/echo/build_graph"),
    ],
)
def test_a_proxy_may_remove_the_prefix_or_not(prefix: str, path: str, own: str) -> None:
    scope = located(path, url_prefix=prefix)
    assert (scope["path"], address_of(scope).path(own)) == (own, prefix + own)


@pytest.mark.parametrize(
    ("scope", "headers", "own", "prefix"),
    [
        ({"path": "/agents/list-apps", "root_path": "/agents"}, {}, "/list-apps", "/agents"),
        ({"path": "/a b/list-apps", "raw_path": b"/a%20b/list-apps", "root_path": "/a b"}, {}, "/list-apps", "/a%20b"),
        ({"path": "/agents/apps/x%2Fy", "root_path": "/agents"}, {}, "/apps/x%2Fy", "/agents"),
        # a proxy has removed `/x` from what Starlette was told to be at
        (
            {"path": "/agents/list-apps", "root_path": "/x/agents", "app_root_path": "/x"},
            {},
            "/list-apps",
            "/x/agents",
        ),
        (
            {"path": "/agents/list-apps", "root_path": "/agents"},
            {"X-Forwarded-Prefix": "/x"},
            "/list-apps",
            "/x/agents",
        ),
        (
            {"path": "/agents/list-apps", "root_path": "/agents"},
            {"X-Forwarded-Prefix": "/agents"},
            "/list-apps",
            "/agents",
        ),
    ],
)
def test_a_mounted_server_is_below_its_mount(scope: Scope, headers: dict[str, str], own: str, prefix: str) -> None:
    path = scope["path"]
    found = located(headers=headers, **{"path": path, "raw_path": path.encode(), **scope})
    assert (found["path"], address_of(found).prefix) == (own, prefix)


@contextlib.asynccontextmanager
async def mounted(**settings: Any) -> AsyncGenerator[httpx.AsyncClient]:
    app = create_app(agents=[echo()], settings=ServerSettings(**settings))
    await app.engine.recover()
    transport = httpx.ASGITransport(Starlette(routes=[Mount("/agents", app)]))
    try:
        async with httpx.AsyncClient(transport=transport, base_url="http://host.example/agents") as client:
            yield client
    finally:
        await app.engine.close()


async def test_what_a_mounted_server_gives_to_clients() -> None:
    async with mounted(gates=["a2a"]) as client:
        assert (await client.get("/")).headers["location"] == "/agents/dev-ui/"
        assert (await client.get("/sign-in")).headers["location"] == "/agents/dev-ui/sign-in"
        card = (await client.get("/a2a/echo/.well-known/agent-card.json")).json()
        assert {one["url"] for one in card["supportedInterfaces"]} == {"http://host.example/agents/a2a/echo"}
        assert (await client.get("/openapi.json")).json()["servers"] == [{"url": "/agents"}]
        config = (await client.get("/dev-ui/assets/config/runtime-config.json")).json()
        assert config["backendUrl"] == "http://host.example/agents"  # ADK's page makes that of its WebSocket of it

        session = "/apps/echo/users/ann/sessions/s-1"
        assert (await client.post(session, json={})).status_code == 200
        started = await client.post(f"{session}/runs", json={"newMessage": {"parts": [{"text": "hi"}]}})
        assert started.status_code == 202
        assert started.headers["location"] == f"/agents/runs/{started.json()['id']}"
        events = await client.get("http://host.example" + started.headers["location"] + "/events")
        assert events.status_code == 200


async def test_the_mapping_of_cors_is_below_the_mount() -> None:
    async with mounted(cors={"mapping": "/apps", "origins": ["https://page.example"]}) as client:
        headers = {"origin": "https://page.example"}
        assert (await client.get("/list-apps", headers=headers)).status_code == 403
        reply = await client.get("/apps/echo/app-info", headers=headers)
        assert (reply.status_code, reply.headers["access-control-allow-origin"]) == (200, "https://page.example")


async def test_the_page_of_the_public_host_may_call_the_server(serve: Serve) -> None:
    server = await serve(echo(), allowed_hosts=["localhost"])
    origin = {"origin": "https://example.com"}
    assert (await server.client.get("/list-apps", headers=origin)).status_code == 403
    forwarded = {**origin, "x-forwarded-host": "example.com"}
    assert (await server.client.get("/list-apps", headers=forwarded)).status_code == 200
    # a page whose name resolves to this machine can send the header, but not another `Host`
    rebound = {"host": "evil.example", "origin": "http://evil.example", "x-forwarded-host": "localhost"}
    assert (await server.client.get("/list-apps", headers=rebound)).status_code == 403
    untrusting = await serve(echo(), trusted_proxies=())
    assert (await untrusting.client.get("/list-apps", headers=forwarded)).status_code == 403
    configured = await serve(echo(), url_prefix="https://example.com/x")
    assert (await configured.client.get("/list-apps", headers=origin)).status_code == 200


async def test_clients_of_a_proxy_have_a_rate_limit_each(serve: Serve) -> None:
    server = await serve(echo(), limits={"requests_per_second": 0.001, "requests_at_once": 1})

    async def status(client: str) -> int:
        return (await server.client.get("/list-apps", headers={"x-forwarded-for": client})).status_code

    assert [await status(one) for one in ("203.0.113.1", "203.0.113.2", "203.0.113.1")] == [200, 200, 429]


async def test_the_openapi_document_names_the_prefix(serve: Serve) -> None:
    server = await serve(echo(), url_prefix="/agents")
    document: Json = (await server.client.get("/agents/openapi.json")).json()
    assert document["servers"] == [{"url": "/agents"}]
    assert (await server.client.get("/openapi.json")).json() == document
