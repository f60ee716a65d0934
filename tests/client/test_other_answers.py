"""The client with servers that are busy, broken, gone, or not greenroom's."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import sys
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

import pytest

from greenroom import errors
from greenroom.client.async_client import AsyncClient

PROBLEM = b'{"code": "%b", "detail": "so it is", "status": 1}'
RUN = b'{"id": "r", "appName": "a", "userId": "u", "sessionId": "s", "status": "running", "createdAt": 1.0}'
OVER = RUN.replace(b"running", b"succeeded")


def answer(status: int, body: bytes = b"", **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} x", f"content-length: {len(body)}", "connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


@dataclass
class Answering:
    """Gives prepared answers, one per connection, the last of them again and again. An empty one breaks off."""

    answers: tuple[bytes, ...]
    url: str = ""
    requests: list[bytes] = field(default_factory=list)
    times: list[float] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.requests.append(await reader.readuntil(b"\r\n\r\n"))
        self.times.append(asyncio.get_running_loop().time())
        writer.write(self.answers[min(len(self.requests), len(self.answers)) - 1])
        writer.close()


@contextlib.asynccontextmanager
async def answering(*answers: bytes) -> AsyncGenerator[Answering]:
    server = Answering(answers)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    async with listening:
        yield server


async def test_a_key_goes_along_as_a_bearer_token() -> None:
    async with answering(answer(200, b"[]")) as server, AsyncClient(server.url, api_key="k-1") as client:
        await client.list_apps()
        assert b"authorization: bearer k-1\r\n" in server.requests[0].lower()


async def test_a_busy_server_is_asked_again_when_it_says() -> None:
    answers = [answer(429, retry_after="1"), answer(503), b"", answer(502), answer(200, b'["a"]')]
    async with answering(*answers) as server, AsyncClient(server.url) as client:
        assert await client.list_apps() == ["a"]
        assert len(server.times) == 5
        assert server.times[1] - server.times[0] > 0.99


async def test_a_server_that_asks_for_too_much_patience_is_left() -> None:
    later = answer(503, PROBLEM % b"StorageError", retry_after="3600")
    async with answering(later) as server, AsyncClient(server.url) as client, asyncio.timeout(5):
        with pytest.raises(errors.StorageError, match="so it is"):
            await client.list_apps()


@pytest.mark.parametrize("broken", [b"", answer(502), answer(504)])
async def test_what_could_be_done_twice_is_not_sent_again(broken: bytes) -> None:
    async with answering(broken) as server, AsyncClient(server.url) as client:
        with pytest.raises(errors.Unavailable):
            await client.create_session(app_name="a", user_id="u")
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("status", "body", "raised", "says"),
    [
        (403, PROBLEM % b"Forbidden", errors.Forbidden, "^so it is$"),
        (409, PROBLEM % b"SessionExists", errors.SessionExists, "^so it is$"),
        (418, PROBLEM % b"OfTomorrow", errors.CallerError, "^OfTomorrow: so it is$"),
        (404, b"<html>Nothing here</html>", errors.NotFound, "^<html>Nothing here</html>$"),
        (400, b"[1]", errors.CallerError, r"^\[1\]$"),
        (422, b'{"code": "InvalidRequest", "errors": ["x"]}', errors.CallerError, "InvalidRequest"),
        (500, b"", errors.RunFailed, "^Internal Server Error$"),
        (520, b"\xff", errors.RunFailed, "^\ufffd$"),
        (599, b"", errors.RunFailed, "^Status 599$"),
        (200, b"<html>", errors.Unavailable, "is not a greenroom server: JSON is malformed"),
        (200, b'{"a": 1}', errors.Unavailable, "Expected `array`"),
    ],
)
async def test_each_answer_has_its_error(
    status: int, body: bytes, raised: type[errors.GreenroomError], says: str
) -> None:
    async with answering(answer(status, body)) as server, AsyncClient(server.url) as client:
        with pytest.raises(raised, match=says) as caught:
            await client.list_apps()
        assert type(caught.value) is raised
        assert caught.value.detail == str(caught.value)
        assert len(server.requests) == 1


async def test_an_address_that_sends_on_is_not_followed_with_the_key() -> None:
    async with answering(answer(301, location="https://example.com/")) as server, AsyncClient(server.url) as client:
        with pytest.raises(errors.CallerError, match=r"redirects to https://example\.com/"):
            await client.list_apps()


async def test_a_stream_that_is_none_is_an_error() -> None:
    page = answer(200, b"<html>", content_type="text/html")
    async with answering(answer(202, RUN), page) as server, AsyncClient(server.url) as client:
        stream = await client.run(app_name="a", user_id="u", session_id="s", message="hi")
        with pytest.raises(errors.Unavailable, match="is not a greenroom server: content type 'text/html'"):
            await stream.wait()


async def test_a_stream_is_taken_up_where_it_broke_off() -> None:
    def streamed(*frames: bytes) -> bytes:
        return b"HTTP/1.1 200 x\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n" + b"".join(frames)

    def frame(seq: int) -> bytes:
        return b'id: %d\ndata: {"id": "e-%d", "author": "a"}\n\n' % (seq, seq)

    end = b"event: end\ndata: %b\n\n" % OVER
    stopping = b"retry: 1000\n: the stream ends here\n\n"
    answers = [
        streamed(frame(3)),
        streamed(stopping),
        answer(503),
        streamed(frame(4), frame(5)[:20]),
        streamed(frame(5), end),
    ]
    async with answering(answer(200, RUN), *answers) as server, AsyncClient(server.url) as client:
        stream = await client.follow("r")
        assert [event.id async for event in stream] == ["e-3", "e-4", "e-5"]
        assert stream.run.status == "succeeded"
        asked = [request.lower().partition(b"last-event-id: ")[2][:1] for request in server.requests[1:]]
        assert asked == [b"", b"3", b"3", b"3", b"4"]


async def test_a_run_that_is_gone_ends_its_stream() -> None:
    gone = answer(404, PROBLEM % b"RunNotFound")
    async with answering(answer(200, RUN), gone) as server, AsyncClient(server.url) as client:
        with pytest.raises(errors.RunNotFound):
            await (await client.follow("r")).wait()


async def test_a_server_that_is_not_there_is_unavailable() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        async with AsyncClient(f"http://ann:pass@127.0.0.1:{port}/", retry_seconds=0.3) as client:
            with pytest.raises(errors.Unavailable, match=rf"^No answer from http://127.0.0.1:{port}: ConnectError"):
                await client.list_apps()


@pytest.mark.parametrize("url", ["localhost:8000", "127.0.0.1", "ftp://host", "http://", "http://host:port", ""])
def test_an_address_that_can_not_be_is_refused(url: str) -> None:
    with pytest.raises(errors.CallerError, match="is not the URL of a server"):
        AsyncClient(url)


@pytest.mark.parametrize(("url", "times"), [("http://host", 0), ("HTTPS://host", 1)])
def test_certificates_are_read_for_https_only(url: str, times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[object] = []
    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", lambda *files, **_: read.append(files))
    AsyncClient(url)
    assert len(read) == times


@pytest.mark.parametrize("key", ["", "a b", "a\n", "clé"])
def test_a_key_that_can_not_be_is_refused_and_not_shown(key: str) -> None:
    with pytest.raises(errors.CallerError, match="An API key must be printable ASCII") as refused:
        AsyncClient(api_key=key)
    assert not key or key not in refused.value.detail


def test_without_its_packages_the_client_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    import greenroom

    for name in [name for name in sys.modules if name.startswith("greenroom.client")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(vars(greenroom), "Client", raising=False)
    monkeypatch.setitem(sys.modules, "httpx_sse", None)
    with pytest.raises(errors.MissingExtra, match=r"greenroom\[client\]"):
        greenroom.Client("http://127.0.0.1:1")
