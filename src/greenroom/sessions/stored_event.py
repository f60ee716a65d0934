"""Events as databases store them: without empty actions, and large inline data apart."""

from __future__ import annotations

from collections.abc import Iterator

from greenroom.records import wire
from greenroom.records.content import Blob
from greenroom.records.event import Event, EventActions

BLOB_BYTES = 64 * 1024
"""Inline data of more bytes is stored apart from its event, once for all events that have it."""

_NO_ACTIONS = b"," + wire.encode({"actions": EventActions()})[1:]
"""The end of most events. A quarter of a short one; the reader's defaults bring it back."""

_NO_OTHER_ACTIONS = b"," + _NO_ACTIONS[_NO_ACTIONS.index(b'"artifactDelta"') :]
"""The end of events that only change the state."""

_decode_event = wire.decoder(Event)


def to_stored(json: bytes) -> tuple[bytes, list[tuple[int, bytes]]]:
    """An event as it is stored, without empty maps of its actions, and its large inline data by position."""
    if json.endswith(_NO_ACTIONS):
        json = json[: -len(_NO_ACTIONS)] + b"}"
    elif json.endswith(_NO_OTHER_ACTIONS) and json.count(b'"artifactDelta"') == 1:  # not of custom metadata
        json = json[: -len(_NO_OTHER_ACTIONS)] + b"}}"
    if len(json) <= BLOB_BYTES:
        return json, []
    event = _decode_event(json)
    large: list[tuple[int, bytes]] = []
    for position, blob in enumerate(inline_blobs(event)):
        if blob.data is not None and len(blob.data) > BLOB_BYTES:
            large.append((position, blob.data))
            blob.data = b""
    return (wire.encode(event) if large else json), large


def inline_blobs(event: Event) -> Iterator[Blob]:
    for part in (event.content and event.content.parts) or ():
        if part.inline_data is not None:
            yield part.inline_data
        for inner in (part.function_response and part.function_response.parts) or ():
            if inner.inline_data is not None:
                yield inner.inline_data
