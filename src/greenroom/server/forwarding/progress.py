"""Tracks how far a stream was passed on, so that another server can continue it."""

from __future__ import annotations

from greenroom.server.forwarding.http_client import Request

_END = b"\n\n"
_NUMBER = b'"sequence_number":'
_ID = b"id: "


class WholeFrames:
    """Passes whole frames on, so that others can follow when the stream is cut."""

    def __init__(self) -> None:
        self._rest = b""
        """The begin of a frame."""

    def begin(self) -> None:
        """The stream, or the rest of it, begins."""
        self._rest = b""

    def new_frames(self, piece: bytes) -> bytes:
        """The frames that are complete with this piece."""
        data = self._rest + piece if self._rest else piece
        end = data.rfind(_END) + len(_END)
        if end < len(_END):
            self._rest = data
            return b""
        self._rest = data[end:]
        return data[:end]

    def rest(self) -> bytes:
        """Returns what follows the last whole frame of a stream that has ended."""
        return self._rest


class LogProgress(WholeFrames):
    """Passes whole frames on, each once, of streams whose stored events have their sequence number as `id`.

    The first stream ends after `id: 3`, `id: 4` and the first half of a frame. The second begins with `id: 4`, which is
    left out. An event may be several frames with one id: as many of them are left out as were passed on.
    """

    def __init__(self) -> None:
        super().__init__()
        self.seq: int | None = None
        """The greatest id that was passed on."""

        self._frames = 0
        """Frames with this id that were passed on."""

        self._skipped_to: int | None = None
        self._skipped_frames = 0
        """Of a stream that continues another one, the id and the number of its frames that are left out."""

    def next_request(self, request: Request) -> Request:
        """The request for the rest of the stream. request: the one that has begun it."""
        if request.method != b"GET" or self.seq is None:
            return request  # the stream begins again, and what is known of it is left out

        headers = [header for header in request.headers if header[0] != b"last-event-id"]
        headers.append((b"last-event-id", b"%d" % self.seq))
        path, _, query = request.target.partition(b"?")
        rest = [pair for pair in query.split(b"&") if pair and not pair.startswith(b"after=")]
        return request._replace(target=b"?".join((path, b"&".join(rest))) if rest else path, headers=headers)

    def begin(self) -> None:
        """A new stream begins, perhaps after another one that was cut."""
        super().begin()
        self._skipped_to = self.seq
        self._skipped_frames = self._frames

    def new_frames(self, piece: bytes) -> bytes:
        """The frames that are complete with this piece, and weren't passed on."""
        frames = super().new_frames(piece)
        if frames and self._skipped_to is not None:
            frames = self._without_known(frames)
        if frames:
            self._note(frames)
        return frames

    def _without_known(self, frames: bytes) -> bytes:
        kept: list[bytes] = []
        for frame in frames.removesuffix(_END).split(_END):
            seq = _seq_of(frame)
            if self._skipped_to is not None and seq is not None:
                if seq < self._skipped_to:
                    continue
                if seq == self._skipped_to and self._skipped_frames:
                    self._skipped_frames -= 1
                    continue
                if seq > self._skipped_to:
                    self._skipped_to = None
            kept.append(frame + _END)
        return b"".join(kept)

    def _note(self, frames: bytes) -> None:
        # JSON has no line breaks, so an `id` at the start of a line is the frame's.
        begin = frames.rfind(b"\n" + _ID)
        if begin < 0 and not frames.startswith(_ID):
            return
        seq = _seq_of(frames[begin + 1 :])
        if seq is None:
            return
        line = b"%b%d\n" % (_ID, seq)
        count = frames.count(b"\n" + line) + frames.startswith(line)
        self._frames = count + (self._frames if seq == self.seq else 0)
        self.seq = seq


class NumberedProgress(WholeFrames):
    """Passes whole frames on of a stream that can be continued after a number:

        event: response.output_text.delta
        data: {"type": "response.output_text.delta", "delta": "Hel", "sequence_number": 7}

    The frames of the continuation are those after 7.
    """

    def __init__(self, continuation: bytes) -> None:
        """continuation: path and query of the whole stream, which end with the number before its first frame."""
        super().__init__()
        self._continuation, separator, self._number = continuation.rpartition(b"=")
        self._continuation += separator

    def next_request(self, request: Request) -> Request:
        """The request for the rest of the stream. request: the one that has begun it."""
        headers = [header for header in request.headers if header[0] != b"content-type"]
        return Request(b"GET", self._continuation + self._number, headers)

    def new_frames(self, piece: bytes) -> bytes:
        """The frames that are complete with this piece."""
        frames = super().new_frames(piece)
        # Quotes within the JSON are escaped, and the number is at the end of each frame.
        _, separator, last = frames.rpartition(_NUMBER)
        if separator:
            self._number = last[: last.find(b"}")]
        return frames


def _seq_of(frame: bytes) -> int | None:
    if not frame.startswith(_ID):
        return None
    text = frame[len(_ID) : frame.find(b"\n")]
    return int(text) if text.isdigit() else None
