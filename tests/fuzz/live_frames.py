"""Frames of a client of `/run_live`, well or badly made, as hypothesis draws them."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

from hypothesis import strategies as st
from hypothesis.vendor.pretty import RepresentationPrinter
from websockets.frames import Frame, Opcode

from greenroom.server.websocket import MAX_FRAME_BYTES

Verdict: TypeAlias = Literal["taken", "refused", "either"]


@dataclass(frozen=True)
class Message:
    """One message, and what is to come of it: it is taken, or answered with an error."""

    data: str | bytes
    verdict: Verdict
    kind: str

    @property
    def says_close(self) -> bool:
        """Whether it ends the conversation if it is taken."""
        try:
            frame: Any = json.loads(self.data)
        except (ValueError, RecursionError):
            return False
        return isinstance(frame, dict) and cast("dict[str, Any]", frame).get("close") not in (None, False)

    def _repr_pretty_(self, printer: RepresentationPrinter, _: bool) -> None:
        printer.text(f"<{self.kind}, {self.verdict}, {len(self.data)} long: {self.data[:200]!r}>")


@dataclass(frozen=True)
class Goodbye:
    """End of a conversation. close: by a frame that says `close`. code: by a close frame. raw: by these bytes in place
    of a frame; then the client waits until the server closes with one of `codes`, or is gone at once if there are
    none."""

    close: bool = False
    code: int | None = None
    reason: str = ""
    raw: bytes = b""
    codes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Talk:
    messages: list[Message]
    goodbye: Goodbye


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), TEXTS)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3), max_leaves=8
)
STRICT = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**53), 2**53), TEXTS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)
"""Values that every reader of JSON takes for the same."""

FIELDS = ["content", "blob", "activity_start", "activity_end", "audio_stream_end", "partial", "state_delta", "close"]


def camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.title() for word in rest)


NAMES = st.sampled_from(FIELDS).flatmap(lambda name: st.sampled_from([name, camel(name)]))
AUDIO = st.sampled_from(["audio/pcm", "audio/pcm;rate=16000", "video/mp4", "x"])
BLOBS = st.builds(lambda key, kind: {key: kind, "data": "AAAA"}, st.sampled_from(["mime_type", "mimeType"]), AUDIO)
ODD_PARTS = st.dictionaries(
    st.sampled_from(
        [
            "text",
            "inlineData",
            "file_data",
            "functionCall",
            "function_response",
            "thought",
            "executableCode",
            "videoMetadata",
        ]
    ),
    JSON | BLOBS | st.just({"name": "f", "id": "1", "response": {}}),
    max_size=2,
)
CONTENTS = st.builds(lambda role, parts: {**role, "parts": parts}, st.sampled_from([{}, {"role": "user"}, {"role": "model"}]),
                     st.lists(ODD_PARTS, min_size=1, max_size=3))  # fmt: skip


def good(frame: dict[str, Any], kind: str) -> Message:
    return Message(json.dumps(frame), "taken", kind)


GOOD = st.one_of(
    st.builds(lambda text: good({"content": {"parts": [{"text": text}]}}, "content"), TEXTS.filter(bool)),
    BLOBS.map(lambda blob: good({"blob": blob}, "blob")),
    st.builds(lambda delta, key: good({key: delta}, "state"), st.dictionaries(TEXTS, STRICT, max_size=3),
              st.sampled_from(["state_delta", "stateDelta"])),
    st.sampled_from(["activity_start", "activityEnd", "activity_end"]).map(lambda key: good({key: {}}, "activity")),
    st.builds(lambda key, value: good({key: value}, "audio end"),
              st.sampled_from(["audio_stream_end", "audioStreamEnd"]), st.booleans()),
    st.binary(max_size=5000).map(lambda data: Message(data, "taken", "binary")),
    st.builds(lambda name, value: good({"x-" + name: value}, "unknown field"), TEXTS, STRICT),
)  # fmt: skip

BROKEN = st.builds(lambda whole, share: whole[: int(len(whole) * share)], GOOD.map(lambda m: m.data).filter(lambda d: isinstance(d, str)),
                   st.floats(0, 0.99))  # fmt: skip

BAD = st.one_of(
    BROKEN.map(lambda data: Message(data, "refused", "cut JSON")),
    STRICT.filter(lambda value: not isinstance(value, dict)).map(lambda v: Message(json.dumps(v), "refused", "no object")),
    st.builds(
        lambda depth, opening: Message(opening * depth, "refused", "deep"),
        st.integers(1, 200_000), st.sampled_from(["[", '{"a":', '{"content":', '{"content":{"parts":[']),
    ),
    st.integers(600, 50_000).map(lambda n: Message('{"state_delta":' + '{"a":' * n + "1" + "}" * n + "}", "either", "deep state")),
    st.builds(lambda key, value: Message(json.dumps({key: value}), "refused", "wrong type"),
              st.sampled_from(["content", "blob", "state_delta", "stateDelta", "activity_start", "activityEnd"]),
              st.integers() | st.booleans() | TEXTS | st.lists(st.integers(), max_size=2)),
    st.builds(lambda key, value: Message(json.dumps({key: value}), "refused", "wrong type"),
              st.sampled_from(["close", "partial", "audioStreamEnd", "audio_stream_end"]),
              st.sampled_from([{}, [], "perhaps", {"a": 1}, [True], 1.5])),
    st.sampled_from(
        [{"blob": {}}, {"blob": {"data": "AAAA"}}, {"blob": {"mime_type": "a/b"}}, {"blob": {"mimeType": "a/b", "data": "%"}},
         {"content": {}}, {"content": {"parts": []}}, {"content": {"parts": [{"functionCall": {"name": "f"}}]}},
         {"content": {"parts": [{"text": 1}]}}, {"content": {"parts": "hi"}}, {"content": {"parts": [1]}},
         {"content": {"parts": [{"text": "a"}, {"functionResponse": {"name": "f", "response": {}}}]}}]
    ).map(lambda frame: Message(json.dumps(frame), "refused", "wrong value")),
)  # fmt: skip

SOUND_PARTS = st.one_of(
    TEXTS.map(lambda text: {"text": text}),
    BLOBS.map(lambda blob: {"inlineData": blob}),
    st.builds(lambda call, value: {"functionResponse": {"name": "f", **call, "response": value}},
              st.sampled_from([{}, {"id": "1"}, {"id": ""}]), st.dictionaries(TEXTS, STRICT, max_size=2)),
    TEXTS.map(lambda uri: {"file_data": {"file_uri": uri, "mime_type": "text/plain"}}),
    st.sampled_from([{}, {"thought": True}, {"executableCode": {"code": "1", "language": "PYTHON"}}]),
)  # fmt: skip
SOUND: dict[str, st.SearchStrategy[Any]] = {
    "content": st.lists(SOUND_PARTS, min_size=1, max_size=3).map(lambda parts: {"parts": parts}),
    "blob": BLOBS,
    "activity_start": st.just({}),
    "activity_end": st.just({}),
    "audio_stream_end": st.booleans(),
    "partial": st.booleans() | st.none(),
    "state_delta": st.dictionaries(TEXTS | st.sampled_from(["app:a", "user:b", "temp:c", "__x"]), STRICT, max_size=3),
    "close": st.booleans(),
}
MIXED = st.fixed_dictionaries({}, optional={spelled: SOUND[name] for name in FIELDS for spelled in (name, camel(name))})

ODD = st.one_of(
    st.dictionaries(NAMES, JSON | BLOBS | CONTENTS, max_size=4).map(lambda f: Message(json.dumps(f), "either", "odd")),
    MIXED.map(lambda frame: Message(json.dumps(frame), "either", "mixed")),
    MIXED.map(lambda frame: Message(json.dumps({**frame, "close": True}), "either", "close")),
    CONTENTS.map(lambda content: Message(json.dumps({"content": content}), "either", "odd content")),
    TEXTS.map(lambda text: Message(text, "either", "any text")),
    st.integers(10_000, 300_000).map(lambda n: good({"content": {"parts": [{"text": "x" * n}]}}, "large")),
    st.integers(10_000, 300_000).map(lambda n: Message(b"x" * n, "taken", "large binary")),
)


def frame(opcode: Opcode, data: bytes, **bits: bool) -> bytes:
    return Frame(opcode, data, **bits).serialize(mask=True)


WHOLE = frame(Opcode.TEXT, b'{"content":{"parts":[{"text":"never whole"}]}}')
BROKEN_RULES: list[tuple[bytes, tuple[int, ...]]] = [
    (bytes([0x83, 0x80, 0, 0, 0, 0]), (1002,)),  # an opcode that is reserved
    (bytes([0xC1, 0x80, 0, 0, 0, 0]), (1002,)),  # a bit that is reserved
    (b"\x81\x02hi", (1002,)),  # not masked
    (frame(Opcode.CONT, b"x"), (1002,)),  # goes on with nothing
    (bytes([0x09, 0x80, 0, 0, 0, 0]), (1002,)),  # a ping in pieces
    (bytes([0x89, 0xFE, 0, 126, 0, 0, 0, 0]) + b"x" * 126, (1002,)),  # a ping too long
    (frame(Opcode.CLOSE, b"\x03"), (1002,)),  # half a code
    (frame(Opcode.CLOSE, struct.pack("!H", 1005)), (1002,)),  # a code that is never sent
    (frame(Opcode.CLOSE, struct.pack("!H", 999)), (1002,)),
    (frame(Opcode.CLOSE, struct.pack("!H", 1000) + b"\xff"), (1007, 1002)),  # a reason that is no UTF-8
    (frame(Opcode.TEXT, b"\xff\xfe"), (1007,)),
    (frame(Opcode.TEXT, b"\xc3", fin=False) + frame(Opcode.CONT, b"("), (1007,)),
    (frame(Opcode.TEXT, b"a", fin=False) + frame(Opcode.TEXT, b"b"), (1002,)),  # a message within a message
    (b"\x82\xff" + struct.pack("!Q", MAX_FRAME_BYTES + 1) + b"\0" * 4, (1009,)),
    (b"\x82\xff" + struct.pack("!Q", 2**63) + b"\0" * 4, (1002, 1009)),
    (b"GET / HTTP/1.1\r\n\r\n", (1002,)),
]  # fmt: skip

GOODBYES = st.one_of(
    st.just(Goodbye(close=True)),
    st.builds(
        lambda code, reason: Goodbye(code=code, reason=reason),
        st.one_of(st.sampled_from([1000, 1001, 1002, 1003, 1007, 1011, 1014]), st.integers(3000, 4999)),
        TEXTS,
    ),
    st.sampled_from(BROKEN_RULES).map(lambda rule: Goodbye(raw=rule[0], codes=rule[1])),
    st.integers(0, len(WHOLE) - 1).map(lambda end: Goodbye(raw=WHOLE[:end])),
    st.binary(max_size=40).map(lambda data: Goodbye(raw=data)),
)

TALKS = st.builds(Talk, st.lists(GOOD | BAD | ODD, max_size=6), GOODBYES)
