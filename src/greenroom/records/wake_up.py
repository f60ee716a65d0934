"""Causes that continue a run which sleeps: a time, or a signal. The event with the call that waits has them."""

from __future__ import annotations

from typing import Any

import msgspec

from greenroom.records.base import JsonValue, Record
from greenroom.records.content import Content, FunctionCall, FunctionResponse, Part
from greenroom.records.event import Event

_METADATA_KEY = "greenroom_wake_ups"
"""In `custom_metadata` of the event with the calls; ADK's clients refuse other fields."""


class WakeUp(Record, kw_only=True):
    """A cause that continues a run which waits for the response to a call."""

    tool: str
    """The name of the function."""
    at: float | None = None
    """Unix seconds; None if no time does."""
    signal: str | None = None
    """The name of the signal; None if none does."""
    max_late_seconds: float | None = None
    """A run that its time can continue only that much later is cancelled instead; None: it always continues."""


class SentSignal(Record, kw_only=True):
    """A signal that was sent to a run."""

    id: str
    """Of its idempotency key or its URL; a run receives a signal with the same id once."""
    name: str
    """The name that a call of `wait_for` gives."""
    value: JsonValue = None
    """The result of the call."""
    sent_at: float
    """Unix seconds."""
    known_until: float
    """Unix seconds, until which the run refuses it a second time."""


def note_wake_up(event: Event, call: FunctionCall, wake_up: WakeUp) -> None:
    """Adds it to the event that makes the call."""
    metadata = dict(event.custom_metadata or {})
    metadata[_METADATA_KEY] = {**metadata.get(_METADATA_KEY, {}), call.id or "": msgspec.to_builtins(wake_up)}
    event.custom_metadata = metadata


def wake_ups_in(event: Event) -> dict[str, WakeUp]:
    """By id of the call. Empty for metadata of another form, which a client may have imported."""
    stored: Any = (event.custom_metadata or {}).get(_METADATA_KEY)
    try:
        return msgspec.convert(stored or {}, dict[str, WakeUp])
    except msgspec.ValidationError:
        return {}


def answer_to(call_id: str, name: str, response: dict[str, JsonValue]) -> Content:
    """The message that continues a run, by the response to a call of the function `name`."""
    answer = FunctionResponse(id=call_id, name=name, response=response)
    return Content(role="user", parts=[Part(function_response=answer)])
