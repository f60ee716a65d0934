"""Makes CloudEvents as Eventarc's API takes them.

Source: `CloudEvent` of the Eventarc Publishing API's reference, v1: required attributes are fields, the others are in
`attributes`.
"""

from __future__ import annotations

import base64
import binascii
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from greenroom.errors import ToolError
from greenroom.records.base import JsonObject
from greenroom.tools.google_cloud.eventarc.bindings import is_attribute_name

_JSON = "application/json"


def cloud_event(
    *,
    event_type: str,
    source: str,
    data: Any,
    is_base64: bool,
    datacontenttype: str | None,
    specversion: str,
    subject: str | None,
    event_id: str | None,
    time: str | None,
    extensions: Mapping[str, str],
) -> JsonObject:
    """time: now if it is None, left out if it is empty. datacontenttype: that of the data if it is None, left out if it
    is empty. Raises ToolError.
    """
    for name, value in (("type", event_type), ("source", source), ("id", event_id)):
        if value is not None and not value.strip():
            raise ToolError(f"{name} must not be empty")
    for name in extensions:
        if not is_attribute_name(name):
            raise ToolError(f"The custom attribute {name!r} must have lower-case letters and digits only")

    content, media_type = _content(data, is_base64, datacontenttype)
    attributes = dict(extensions)
    if media_type:
        attributes["datacontenttype"] = media_type
    if time != "":
        attributes["time"] = _time(time)
    if subject:
        attributes["subject"] = subject
    return {
        "id": event_id or str(uuid.uuid4()),
        "source": source,
        "type": event_type,
        "specVersion": specversion,
        "attributes": {name: {"ceString": value} for name, value in attributes.items()},
        **content,
    }


def _content(data: Any, is_base64: bool, media_type: str | None) -> tuple[JsonObject, str | None]:
    """The field with the data, if there are any, and their type."""
    if is_base64:
        return {"binaryData": _checked_base64(data)}, media_type or "application/octet-stream"
    if data is None or data == "":
        return {}, media_type
    if isinstance(data, str):
        return {"textData": data}, "text/plain" if media_type is None else media_type
    return {"textData": msgspec.json.encode(data).decode()}, _JSON if media_type is None else media_type


def _checked_base64(data: Any) -> str:
    if not isinstance(data, str):
        raise ToolError("data must be a text when is_base64_encoded is true")
    try:
        return base64.b64encode(base64.b64decode(data, validate=True)).decode()
    except (binascii.Error, ValueError):
        raise ToolError("data is not base64") from None


def _time(time: str | None) -> str:
    if time is None:
        return datetime.now(UTC).isoformat()
    try:
        datetime.fromisoformat(time)
    except ValueError:
        raise ToolError(f"time must be a time of RFC 3339, not {time!r}") from None
    return time
