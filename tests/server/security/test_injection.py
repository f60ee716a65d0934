"""Input of clients never becomes a header, a second answer, or a second request."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import quote

import pytest

from greenroom.server.endpoint import Endpoint
from tests.server.agents import asking_echo
from tests.server.conftest import Serve
from tests.server.security.keys import Keys
from tests.server.serving import RawConnection, Serving
from tests.server.test_endpoint_table import body_for, each, filled, prepared

EVIL = [
    "x\r\nx-injected: 1", "x\nx-injected: 1", "x\rx-injected: 1", "x\r\n\r\nHTTP/1.1 200 OK\r\nx-injected: 1\r\n\r\n",
    "x\u560d\u560ax-injected: 1", "x\x85x-injected: 1", "x\u2028x-injected: 1", "x\x00\r\nx-injected: 1",
]  # fmt: skip


async def whole_answer(connection: RawConnection) -> bytes:
    data = await connection.reader.read(-1)
    connection.drop()
    return data


def check(answer: bytes, what: object) -> None:
    """One answer, none of whose header lines was brought in."""
    head = answer.partition(b"\r\n\r\n")[0]
    assert answer.startswith(b"HTTP/1.1 "), what
    for line in re.split(rb"\r\n|\r|\n", head)[1:]:
        assert re.fullmatch(rb"[a-z-]+: [^\x00-\x08\x0a-\x1f]*", line), (what, line)
        assert not line.startswith(b"x-injected"), what


@pytest.mark.parametrize(("endpoint", "path"), each())
async def test_no_name_becomes_a_header(serve: Serve, endpoint: Endpoint, path: str) -> None:
    server = await serve(asking_echo(), allow_private_webhooks=True)
    values = await prepared(server, endpoint)
    body = body_for(endpoint)
    sent = b"" if body is None else json.dumps(body).encode()
    headers = {"content-type": "application/json", "connection": "close"}
    addresses = [
        filled(path, {**values, name: quote(evil, safe="")})
        for name in re.findall(r"{([\w:]+)}", path)
        for evil in EVIL
    ]
    addresses += [
        f"{filled(path, values)}?{query.name}={quote(evil, safe='')}" for query in endpoint.query for evil in EVIL
    ]
    for address in addresses:
        connection = await server.connect()
        accept = {"accept": "application/json"} if not endpoint.is_stream else {}
        await connection.request(endpoint.method, address, {**headers, **accept}, sent)
        check(await whole_answer(connection), address)


FIELDS: list[tuple[str, Any]] = [
    ("/run", lambda evil: {"appName": evil, "userId": "ann", "sessionId": "s-1"}),
    ("/run", lambda evil: {"appName": "echo", "userId": "ann", "sessionId": "s-1", "invocationId": evil}),
    ("/run_sse", lambda evil: {"appName": "echo", "userId": evil, "sessionId": "s-1"}),
    ("/apps/echo/users/ann/sessions/s-1/runs", lambda evil: {"invocationId": evil}),
    ("/apps/echo/users/ann/sessions", lambda evil: {"sessionId": evil, "state": {evil: evil}}),
    (
        "/apps/echo/users/ann/sessions/s-1/artifacts",
        lambda evil: {"filename": evil, "artifact": {"inlineData": {"data": "eA==", "mimeType": evil}}},
    ),
    ("/sign-in", lambda evil: {"key": evil}),
]


@pytest.mark.parametrize(("path", "body"), FIELDS, ids=[f"{path} {number}" for number, (path, _) in enumerate(FIELDS)])
async def test_no_field_becomes_a_header(serve: Serve, keys: Keys, path: str, body: Any) -> None:
    for server in (await serve(), await serve(auth=keys.auth)):
        if server.app.settings.auth.keys is None:
            await server.new_session("echo")
        for evil in EVIL:
            connection = await server.connect()
            await connection.post(path, body(evil), {"connection": "close", "accept": "application/json"})
            check(await whole_answer(connection), evil)


@pytest.mark.parametrize("name", ["idempotency-key", "traceparent", "last-event-id", "x-api-key", "origin", "cookie"])
@pytest.mark.parametrize("value", ["é\x80", "x" * 7000, "\t", "a;b=c,d", "\x7f", "{}", '"'])
async def test_odd_headers_are_answered(server: Serving, name: str, value: str) -> None:
    await server.new_session("echo")
    body = {"appName": "echo", "userId": "ann", "sessionId": "s-1", "newMessage": {"parts": [{"text": "x"}]}}
    data = json.dumps(body).encode()
    lines = (
        f"POST /run HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: {len(data)}\r\n{name}: {value}\r\n\r\n"
    )
    connection = await server.connect()
    connection.writer.write(lines.encode("latin-1") + data)
    answer = await whole_answer(connection)
    check(answer, value)
    assert int(answer.split()[1]) < 500


SMUGGLED = "GET /smuggled HTTP/1.1\r\nhost: a\r\n\r\n"
TWO_READINGS = {
    "both lengths": f"content-length: {len(SMUGGLED) + 5}\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n{SMUGGLED}",
    "lengths that differ": f"content-length: 0\r\ncontent-length: {len(SMUGGLED)}\r\n\r\n{SMUGGLED}",
    "an unknown transfer": f"transfer-encoding: xchunked\r\n\r\n0\r\n\r\n{SMUGGLED}",
    "a hidden transfer": f"transfer-encoding : chunked\r\ncontent-length: {len(SMUGGLED)}\r\n\r\n0\r\n\r\n{SMUGGLED}",
    "a length that is no number": f"content-length: +{len(SMUGGLED)}\r\n\r\n{SMUGGLED}",
    "a folded line": f"x: 1\r\n content-length: 0\r\ncontent-length: {len(SMUGGLED)}\r\n\r\n{SMUGGLED}",
    "a chunk size that is no number": f"transfer-encoding: chunked\r\n\r\n0x5\r\n{SMUGGLED}",
}


@pytest.mark.parametrize("rest", TWO_READINGS.values(), ids=TWO_READINGS)
async def test_a_request_that_can_be_read_in_two_ways_is_one_request(server: Serving, rest: str) -> None:
    connection = await server.connect()
    connection.writer.write(f"POST /apps/echo/users/ann/sessions HTTP/1.1\r\nhost: a\r\n{rest}".encode())
    answer = await whole_answer_or_rest(connection)
    assert b"HTTP/1.1 404" not in answer, answer
    assert answer.count(b"HTTP/1.1 ") <= 1


async def whole_answer_or_rest(connection: RawConnection) -> bytes:
    connection.writer.write_eof()
    return await whole_answer(connection)
