"""Streams of a log that are continued by another server."""

from __future__ import annotations

import pytest

from greenroom.server.forwarding.http_client import Request
from greenroom.server.forwarding.progress import LogProgress, NumberedProgress, WholeFrames

PARTIAL = b'data: {"partial":true}\n\n'
END = b'event: end\ndata: {"id":"r"}\n\n'


def frame(seq: int, text: str = "x") -> bytes:
    return b'id: %d\ndata: {"text":"%b"}\n\n' % (seq, text.encode())


def passed(progress: LogProgress, stream: bytes, size: int) -> bytes:
    progress.begin()
    return b"".join(progress.new_frames(stream[at : at + size]) for at in range(0, len(stream), size))


@pytest.mark.parametrize("size", [1, 7, 40, 1000])
def test_only_whole_frames_are_passed_on(size: int) -> None:
    progress = LogProgress()
    progress.begin()
    stream = PARTIAL + frame(3) + frame(4)
    out: list[bytes] = []
    for at in range(0, len(stream), size):
        piece = progress.new_frames(stream[at : at + size])
        assert piece == b"" or piece.endswith(b"\n\n")
        out.append(piece)
    assert b"".join(out) == stream
    assert progress.rest() == b""
    assert progress.seq == 4


@pytest.mark.parametrize("size", [1, 7, 40, 1000])
@pytest.mark.parametrize("cut", range(0, 130, 3))
def test_a_stream_that_was_cut_anywhere_is_continued_without_gap_or_repeat(cut: int, size: int) -> None:
    """The event 4 is two frames, as those with artifacts are for ADK's clients."""
    log = frame(3) + frame(4, "content") + frame(4, "artifact") + frame(12) + END
    progress = LogProgress()
    before = passed(progress, log[:cut], size)
    after = passed(progress, log, size)
    assert before + after == log


def test_a_stream_is_continued_twice() -> None:
    log = frame(1) + frame(2) + frame(3)
    progress = LogProgress()
    first = passed(progress, log[:25], 5)
    second = passed(progress, frame(1) + frame(2), 5)
    third = passed(progress, log, 5)
    assert first + second + third == log


def test_partial_events_after_the_known_ones_are_passed_on() -> None:
    progress = LogProgress()
    passed(progress, frame(1) + PARTIAL, 100)
    assert passed(progress, frame(1) + PARTIAL + frame(2), 100) == PARTIAL + frame(2)


def test_ids_inside_of_data_are_not_those_of_frames() -> None:
    progress = LogProgress()
    passed(progress, frame(1) + b'data: {"text":"\\nid: 99"}\n\n', 1000)
    assert progress.seq == 1


def test_what_follows_the_last_frame_is_passed_on_at_the_end() -> None:
    progress = LogProgress()
    assert passed(progress, frame(1) + b": ok", 1000) == frame(1)
    assert progress.rest() == b": ok"


GET = Request(b"GET", b"/runs/1/events?after=2&x=1", [(b"last-event-id", b"2"), (b"accept", b"*/*")])


def test_a_get_of_a_log_is_asked_for_the_rest() -> None:
    progress = LogProgress()
    assert progress.next_request(GET) == GET
    progress.new_frames(b"id: 7\ndata: {}\n\n")
    request = progress.next_request(GET)
    assert request.target == b"/runs/1/events?x=1"
    assert request.headers == [(b"accept", b"*/*"), (b"last-event-id", b"7")]
    post = GET._replace(method=b"POST")
    assert progress.next_request(post) == post


def test_what_is_passed_on_ends_with_a_frame() -> None:
    frames = WholeFrames()
    frames.begin()
    got = [frames.new_frames(piece) for piece in (b"data: 1\n", b"\ndata: 2\n\nda", b"ta: 3", b"")]
    assert got == [b"", b"data: 1\n\ndata: 2\n\n", b"", b""]
    assert frames.rest() == b"data: 3"
    frames.begin()
    assert frames.rest() == b""


def numbered(*numbers: int) -> bytes:
    data = b'{"metadata":{"sequence_number":5},"delta":"\\"sequence_number\\":9}","sequence_number":%d}'
    return b"".join(b"event: x\ndata: " + data % number + b"\n\n" for number in numbers)


def test_a_numbered_stream_is_continued_after_the_last_number() -> None:
    post = Request(b"POST", b"/v1/responses", [(b"content-type", b"application/json"), (b"x", b"y")], b"{}")
    for after in (b"-1", b"%d" % (5 << 20)):
        progress = NumberedProgress(b"/v1/responses/r?starting_after=" + after)
        progress.begin()
        target = b"/v1/responses/r?starting_after=" + after
        assert progress.next_request(post) == Request(b"GET", target, [(b"x", b"y")])
    whole = numbered(7, 1 << 40, 3 << 50)
    for cut in range(len(whole) + 1):
        progress = NumberedProgress(b"/r?after=-1")
        progress.begin()
        passed = progress.new_frames(whole[:cut])
        assert whole.startswith(passed)
        count = passed.count(b"event:")
        number = [-1, 7, 1 << 40, 3 << 50][count]
        assert progress.next_request(post).target == b"/r?after=%d" % number
        assert passed + progress.new_frames(whole[cut:]) == whole
