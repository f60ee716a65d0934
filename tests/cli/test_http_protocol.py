"""Writes of replies to their connections."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from greenroom.cli.http_protocol import ReplyTransport

HEAD = b"HTTP/1.1 200 OK\r\n\r\n"


class Written(asyncio.Transport):
    """Keeps each write."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))

    def close(self) -> None:
        self.writes.append(b"closed")


@pytest.fixture
def written() -> Written:
    return Written()


async def test_a_short_body_is_written_with_its_head(written: Written) -> None:
    reply = ReplyTransport(written)
    reply.write(HEAD)
    reply.write(b"body")
    await asyncio.sleep(0)
    assert written.writes == [HEAD + b"body"]


async def test_the_head_of_a_stream_does_not_wait_for_its_first_event(written: Written) -> None:
    reply = ReplyTransport(written)
    reply.write(HEAD)
    await asyncio.sleep(0)
    assert written.writes == [HEAD]
    reply.write(b"first")
    reply.write(b"second")
    assert written.writes == [HEAD, b"first", b"second"]


@pytest.mark.parametrize("more", [b"x" * (ReplyTransport.LONGEST_COPY + 1), b""])
async def test_a_head_is_written_before_a_long_body_and_before_the_end(written: Written, more: bytes) -> None:
    reply = cast("asyncio.Transport", ReplyTransport(written))
    reply.write(HEAD)
    if more:
        reply.write(more)
    reply.close()
    assert written.writes == [one for one in (HEAD, more, b"closed") if one]
