"""The liberties that clients take, the faults that are named, and the examples of the protocol."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from greenroom.errors import InvalidRequest
from greenroom.records import wire
from greenroom.records.content import Blob, Content, Part
from greenroom.records.event import Event, EventActions, EventCompaction, ToolConfirmation
from greenroom.records.listings import AppInfo, ArtifactVersion, ListAppsResponse
from greenroom.records.model_exchange import LiveRequest
from greenroom.records.run import AgentRunRequest
from greenroom.records.session import Session
from greenroom.server.routes.artifacts import SaveArtifactRequest
from greenroom.server.routes.sessions import AddToMemoryRequest, CreateSessionRequest, PatchSessionRequest

RECORDS: dict[str, type[Any]] = {
    record.__name__: record
    for record in (
        AddToMemoryRequest, AgentRunRequest, AppInfo, ArtifactVersion, CreateSessionRequest, Event, EventCompaction,
        ListAppsResponse, LiveRequest, Part, PatchSessionRequest, SaveArtifactRequest, Session, ToolConfirmation,
    )
}  # fmt: skip


def protocol(name: str) -> list[tuple[type[Any], str]]:
    """Lines of a record's name and its JSON as ADK's clients and servers write it."""
    lines = Path(__file__).with_name(f"protocol_{name}.txt").read_text("utf-8").split("\n")[:-1]
    return [(RECORDS[record], text) for record, _, text in (line.partition(" ") for line in lines)]


@pytest.mark.parametrize(("record", "text"), protocol("examples"))
def test_the_examples_of_the_protocol_are_read_and_written_again(record: type[Any], text: str) -> None:
    decoded = wire.client_decoder(record)(text.encode())
    plain = wire.to_plain(decoded)
    assert spelled_alike(plain) == spelled_alike(json.loads(text))


@pytest.mark.parametrize(("record", "text"), protocol("requests"))
def test_the_requests_of_the_protocol_are_read(record: type[Any], text: str) -> None:
    assert isinstance(wire.client_decoder(record)(text.encode()), record)


def spelled_alike(value: Any) -> Any:
    """Live blobs come in snake_case and go out in camelCase; what is empty by default may be left out."""
    if isinstance(value, dict):
        entries = {key: spelled_alike(inner) for key, inner in value.items()}
        return {("mimeType" if key == "mime_type" else key): inner for key, inner in entries.items() if inner != ""}
    return [spelled_alike(inner) for inner in value] if isinstance(value, list) else value


@pytest.mark.parametrize("data", ["+/++Pj8=", "-_--Pj8=", "+/++Pj8", "-_--Pj8", "+_+-Pj8=", "+/++Pj8=="])
@pytest.mark.parametrize("shape", ['{"inlineData":{"data":"%s"}}', '{"inline_data":{"data":"%s"}}'])
def test_either_alphabet_of_base64_is_read_and_the_standard_one_written(data: str, shape: str) -> None:
    part = wire.client_decoder(Part)((shape % data).encode())
    assert part == Part(inline_data=Blob(data=b"\xfb\xff\xbe\x3e\x3f"))
    assert wire.encode(part) == b'{"inlineData":{"data":"+/++Pj8="}}'


@pytest.mark.parametrize("data", ["a", "ab§c", "a b c", "====", "AAAA\n", "💥"])
def test_what_is_no_base64_is_refused(data: str) -> None:
    if data == "====":
        assert wire.client_decoder(Blob)(b'{"data":"===="}') == Blob(data=b"")
        return
    with pytest.raises(InvalidRequest):
        wire.client_decoder(Blob)(json.dumps({"data": data}).encode())


@pytest.mark.parametrize(
    ("sent", "seconds"),
    [
        (1771000002.4, 1771000002.4),
        (1771000002400, 1771000002.4),
        (0, 0.0),
        (99999999999, 99999999999.0),
        (1e11, 1e8),
        (-5, -5.0),
    ],
)
def test_milliseconds_become_seconds(sent: float, seconds: float) -> None:
    for name in ("startTimestamp", "start_timestamp"):
        compaction = {name: sent, "endTimestamp": sent, "compactedContent": {}}
        data = {"author": "x", "timestamp": sent, "actions": {"compaction": compaction}}
        event = wire.client_decoder(Event)(json.dumps(data).encode())
        assert event.timestamp == seconds
        assert event.actions.compaction == EventCompaction(
            start_timestamp=seconds, end_timestamp=seconds, compacted_content=Content()
        )


def test_free_maps_are_left_as_they_are() -> None:
    free = {"some_key": None, "timestamp": 1771000002400, "inline_data": {"data": "-_"}, "": 0}
    data = {"author": "x", "actions": {"state_delta": free}, "custom_metadata": free}
    event = wire.client_decoder(Event)(json.dumps(data).encode())
    assert event.actions.state_delta == event.custom_metadata == free


def test_null_stands_for_what_is_left_out() -> None:
    data = {"author": "x", "id": None, "actions": None, "timestamp": None, "invocationId": None, "partial": None}
    event = wire.client_decoder(Event)(json.dumps(data).encode())
    assert event.actions == EventActions()
    assert event.id
    assert event.timestamp > 0


def test_null_is_not_a_required_value() -> None:
    with pytest.raises(InvalidRequest):
        wire.client_decoder(Event)(b'{"author":null}')


def test_the_newer_spelling_wins_over_nothing() -> None:
    """Both spellings at once: the last one counts, as in any JSON object with a key twice."""
    decode = wire.client_decoder(AddToMemoryRequest)
    assert decode(b'{"session_id":"a","sessionId":"b"}').session_id == "b"
    assert decode(b'{"sessionId":"b","session_id":"a"}').session_id == "a"


def test_javas_metadata_becomes_a_map() -> None:
    entries = [{"key": "a", "stringValue": "x"}, {"key": "b", "numericValue": 5}, {"key": "c"}, "rubbish", {"k": 1}]
    data = json.dumps({"author": "x", "customMetadata": entries}).encode()
    assert wire.client_decoder(Event)(data).custom_metadata == {"a": "x", "b": 5, "c": None}


@pytest.mark.parametrize("mark", ["\x85", "\u2028", "\u2029"])
def test_line_separators_are_escaped(mark: str) -> None:
    data = wire.encode(Part(text=f"a{mark}b"))
    assert data == b'{"text":"a\\u%04xb"}' % ord(mark)
    assert wire.decoder(Part)(data) == Part(text=f"a{mark}b")


@pytest.mark.parametrize(
    ("body", "location", "kind"),
    [
        (b"{", ("body",), "json_invalid"),
        (b"", ("body",), "json_invalid"),
        (b'{"appName":"\xff"}', ("body",), "json_invalid"),
        (b"[" * 5000, ("body",), "json_invalid"),
        (b"[]", ("body",), "type_error"),
        (b'{"appName":"a","userId":"u"}', ("body", "sessionId"), "missing"),
        (b'{"app_name":"a","user_id":"u"}', ("body", "sessionId"), "missing"),
        (b'{"appName":"a","userId":"u","sessionId":5}', ("body", "sessionId"), "type_error"),
        (b'{"appName":"a","userId":"u","sessionId":"s","newMessage":{"parts":[{},{"text":1}]}}',
         ("body", "newMessage", "parts", 1, "text"), "type_error"),
        (b'{"appName":"a","userId":"u","sessionId":"s","newMessage":{"parts":[{"inlineData":{"data":"\xc2\xa7"}}]}}',
         ("body",), "bytes_invalid_encoding"),
    ],
)  # fmt: skip
def test_faults_are_named_with_their_place(body: bytes, location: tuple[str | int, ...], kind: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        wire.client_decoder(AgentRunRequest)(body)
    assert (caught.value.location, caught.value.kind) == (location, kind)


def test_what_json_cannot_hold_is_a_type_error() -> None:
    for value in (object(), {1, 2} and object, 1j):
        with pytest.raises((TypeError, NotImplementedError)):
            wire.encode({"a": value})
