"""What is kept of one saved version: a description, and the payload beside it as plain bytes."""

from __future__ import annotations

import time
from typing import Literal

import msgspec

from greenroom.errors import InvalidRequest, TooLarge
from greenroom.records import wire
from greenroom.records.base import JsonObject, Record, empty_map
from greenroom.records.content import Part
from greenroom.records.listings import ArtifactVersion


class Description(Record, kw_only=True):
    """payload: which field of the part was taken out of it. create_time: Unix seconds."""

    part: Part
    payload: Literal["inlineData", "text", "fileData"]
    payload_bytes: int
    create_time: float
    custom_metadata: JsonObject = msgspec.field(default_factory=empty_map)

    def mime_type(self) -> str | None:
        if self.part.inline_data is not None:
            return self.part.inline_data.mime_type
        if self.part.file_data is not None and self.payload == "fileData":
            return self.part.file_data.mime_type
        return "text/plain"

    def as_version(self, version: int, canonical_uri: str) -> ArtifactVersion:
        return ArtifactVersion(
            version=version,
            canonical_uri=canonical_uri,
            custom_metadata=self.custom_metadata,
            create_time=self.create_time,
            mime_type=self.mime_type(),
        )


_decode = wire.decoder(Description)


def take_apart(part: Part, custom_metadata: JsonObject | None, *, limit_bytes: int | None) -> tuple[bytes, bytes]:
    """The description as one line of JSON, and the payload.

    Raises InvalidRequest for parts that aren't kept, and TooLarge for a payload over the limit.
    """
    blob, reference = part.inline_data, part.file_data
    kind: Literal["inlineData", "text", "fileData"]
    if blob is not None and blob.data is not None:
        bare = msgspec.structs.replace(part, inline_data=msgspec.structs.replace(blob, data=None))
        kind, payload = "inlineData", blob.data
    elif blob is None and part.text is not None:
        bare = msgspec.structs.replace(part, text=None)
        try:
            kind, payload = "text", part.text.encode()
        except UnicodeEncodeError:
            raise _not_unicode() from None
    elif blob is None and reference is not None and reference.file_uri:
        bare, kind, payload = part, "fileData", b""
    else:
        raise InvalidRequest("Not supported artifact type.", location=("body", "artifact"))
    if limit_bytes is not None and len(payload) > limit_bytes:
        raise TooLarge("The artifact", limit_bytes=limit_bytes)
    description = Description(
        part=bare,
        payload=kind,
        payload_bytes=len(payload),
        create_time=time.time(),
        custom_metadata=custom_metadata or {},
    )
    try:
        return wire.encode(description), payload
    except UnicodeEncodeError:
        raise _not_unicode() from None


def read_description(line: bytes) -> Description:
    """Raises msgspec.DecodeError for what `take_apart` didn't write."""
    return _decode(line)


def put_together(description: Description, payload: bytes) -> Part:
    """The part as it was saved; takes the description's own part for it."""
    part = description.part
    if description.payload == "text":
        part.text = payload.decode()
    elif description.payload == "inlineData" and part.inline_data is not None:
        part.inline_data.data = payload
    return part


def _not_unicode() -> InvalidRequest:
    return InvalidRequest("The artifact's text is not valid Unicode", location=("body", "artifact"))
