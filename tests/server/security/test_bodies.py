"""Bodies that are small to send and large to hold."""

from __future__ import annotations

import gzip
import json
import zlib

import pytest

from greenroom.server.endpoint import Endpoint
from greenroom.server.settings import LimitSettings
from tests.server.conftest import Serve
from tests.server.serving import Serving, run_body
from tests.server.test_endpoint_table import VALUES, each, filled

BOMB = gzip.compress(b"[" + b" " * 50_000_000 + b"]", compresslevel=1)

WITH_BODY = [one for one in each() if one.values[0].body is not None]


@pytest.mark.parametrize(("endpoint", "path"), WITH_BODY)
async def test_no_endpoint_unpacks_a_body(server: Serving, endpoint: Endpoint, path: str) -> None:
    await server.new_session("echo")
    for encoding, body in (
        ("gzip", BOMB),
        ("deflate", zlib.compress(b" " * 1_000_000)),
        ("br", b"\x1b\x00"),
        ("zstd", b"\x28\xb5\x2f\xfd"),
        ("gzip, gzip", gzip.compress(BOMB)),
    ):
        headers = {"content-type": "application/json", "content-encoding": encoding, "x-adk-telemetry-request": "true"}
        reply = await server.client.request(endpoint.method, filled(path, VALUES), content=body, headers=headers)
        assert (reply.status_code, reply.json()["code"]) == (415, "UnsupportedEncoding"), encoding


@pytest.mark.parametrize(("endpoint", "path"), WITH_BODY)
async def test_no_endpoint_reads_more_than_the_limit(serve: Serve, endpoint: Endpoint, path: str) -> None:
    """Neither what is announced nor what comes in pieces; the rest isn't waited for."""
    server = await serve(max_body_bytes=100_000, limits=LimitSettings(artifact_bytes=100_000))
    announced = await server.connect()
    await announced.request(endpoint.method, filled(path, VALUES), {"content-length": "100001"})
    assert (await announced.head())[0] == 413
    endless = await server.connect()
    await endless.request(endpoint.method, filled(path, VALUES), {"transfer-encoding": "chunked"})
    piece = b"2000\r\n" + b" " * 0x2000 + b"\r\n"
    for _ in range(13):
        endless.writer.write(piece)
    assert (await endless.head())[0] == 413


DEEP = 100_000
HEAVY = {
    "lists in lists": b"[" * DEEP + b"]" * DEEP,
    "objects in objects": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    "lists that never end": b"[" * DEEP,
    "deep in the state": b'{"state":' + b"[" * DEEP + b"]" * DEEP + b"}",
    "a number of a million digits": b'{"state":{"n":' + b"9" * 1_000_000 + b"}}",
    "a huge exponent": b'{"state":{"n":1e999999999}}',
    "many keys": b'{"state":{' + b",".join(b'"%d":0' % n for n in range(100_000)) + b"}}",
    "one key, many times": b'{"state":{' + b",".join([b'"k":0'] * 100_000) + b"}}",
    "many events": json.dumps({"events": [{"author": "user"}] * 10_000}).encode(),
    "half a surrogate": rb'{"state":{"a":"\ud800"}}',
    "no UTF-8": b'{"state":{"a":"\xff"}}',
}


@pytest.mark.parametrize("body", HEAVY.values(), ids=HEAVY)
@pytest.mark.parametrize("path", ["/apps/echo/users/ann/sessions", "/run", "/apps/echo/users/ann/sessions/s-1"])
async def test_heavy_json_is_refused_or_stored(server: Serving, path: str, body: bytes) -> None:
    await server.new_session("echo")
    method = "PATCH" if path.endswith("s-1") else "POST"
    reply = await server.client.request(method, path, content=body, headers={"content-type": "application/json"})
    assert reply.status_code in (200, 413, 422), reply.text[:500]
    assert "Traceback" not in reply.text
    assert (await server.run("echo")).status_code == 200


async def test_a_deep_value_in_a_message_is_refused(server: Serving) -> None:
    await server.new_session("echo")
    deep = '{"a":' * 5_000 + "1" + "}" * 5_000
    body = json.dumps(run_body("echo", stateDelta={"x": 0})).replace('"x": 0', f'"x": {deep}')
    reply = await server.client.post("/run", content=body, headers={"content-type": "application/json"})
    assert reply.status_code in (200, 422)
    assert (await server.client.get("/apps/echo/users/ann/sessions/s-1")).status_code == 200
