"""Serving the files of the dev UI."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from greenroom.server.routes import web_page
from tests.server.serving import Serving

PAGE = "<!doctype html><title>greenroom</title>"
SCRIPT = "/dev-ui/assets/a-1.js"


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "assets").mkdir()
    for name, data in {
        "index.html": PAGE.encode(),
        "docs.html": b"the reference",
        "assets/a-1.js": b"plain",
        "assets/a-1.js.gz": gzip.compress(b"plain"),
        "assets/a-1.js.br": b"as brotli",
        "assets/b-1.js": b"plain",
    }.items():
        (tmp_path / name).write_bytes(data)
    monkeypatch.setattr(web_page, "_BUILT", tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "path",
    [
        "",
        "runs",
        "apps/a/sessions/x%2Fy?event=1",
        "?code=4/abc&state=x",
        "..%2f..%2fetc%2fpasswd",
        "index.html",
        "%2e%2e/x",
    ],
)
async def test_addresses_of_pages_get_the_page(server: Serving, built: Path, path: str) -> None:
    reply = await server.client.get(f"{server.url}/dev-ui/{path}")
    assert (reply.status_code, reply.text) == (200, PAGE)
    assert reply.headers["content-type"] == "text/html; charset=utf-8"
    assert reply.headers["cache-control"] == "no-cache"
    rules = dict(rule.split(" ", 1) for rule in reply.headers["content-security-policy"].split("; "))
    assert rules["script-src"] == "'self' 'wasm-unsafe-eval'"
    assert (rules["default-src"], rules["connect-src"]) == ("'none'", "'self'")
    assert reply.headers["permissions-policy"].startswith("camera=(self), microphone=(self), ")


@pytest.mark.parametrize(
    ("accepted", "encoding"),
    [("gzip, deflate, br", "br"), ("gzip;q=0.5", "gzip"), ("br;q=0, gzip", "gzip"), ("identity", None), ("", None)],
)
async def test_the_encoding_is_one_that_the_client_accepts(
    server: Serving, built: Path, accepted: str, encoding: str | None
) -> None:
    async with server.client.stream("GET", SCRIPT, headers={"accept-encoding": accepted}) as reply:
        data = b"".join([piece async for piece in reply.aiter_raw()])
    assert reply.headers.get("content-encoding") == encoding
    assert data == (built / ("assets/a-1.js" + {"br": ".br", "gzip": ".gz", None: ""}[encoding])).read_bytes()
    assert reply.headers["vary"] == "accept-encoding"
    assert reply.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert reply.headers["content-type"] == "text/javascript; charset=utf-8"


async def test_assets_that_are_not_there(server: Serving, built: Path) -> None:
    assert (await server.client.get("/dev-ui/assets/old-1.js")).status_code == 404
    reply = await server.client.get("/dev-ui/assets/b-1.js")
    assert (reply.text, "content-encoding" in reply.headers) == ("plain", False)


async def test_a_new_build_is_served_and_a_missing_one_says_what_to_do(server: Serving, built: Path) -> None:
    assert (await server.client.get("/dev-ui/")).text == PAGE
    (built / "index.html").write_text("anew")
    assert (await server.client.get("/dev-ui/")).text == "anew"
    (built / "index.html").unlink()
    assert "make ui" in (await server.client.get("/dev-ui/")).text


async def test_the_reference_is_a_built_page(server: Serving, built: Path) -> None:
    reply = await server.client.get("/docs?x=1")
    assert (reply.status_code, reply.text) == (200, "the reference")
    assert reply.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in reply.headers["content-security-policy"]


async def test_pages_that_are_not_built_say_how_to_build_them(
    server: Serving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web_page, "_BUILT", tmp_path)
    for path in ("/docs", "/dev-ui/"):
        reply = await server.client.get(path)
        assert reply.status_code == 200
        assert "<code>make ui</code>" in reply.text
        assert '<a href="/openapi.json">' in reply.text
