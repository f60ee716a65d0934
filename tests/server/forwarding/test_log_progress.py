"""Streams of a log that are continued by another server."""

from __future__ import annotations

import pytest

from greenroom.server.forwarding.log_progress import LogProgress

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
