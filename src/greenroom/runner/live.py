"""What is different about a live run. Source: ADK's runner."""

from __future__ import annotations

import copy

from greenroom.records.event import Event
from greenroom.records.run import RunConfig, StreamingMode

_MEDIA = ("audio/", "video/", "image/")


def live_config(run_config: RunConfig) -> RunConfig:
    """The settings with what a live run fills in: it speaks, unless it was told what else to do."""
    config = copy.copy(run_config)
    config.streaming_mode = StreamingMode.BIDI
    config.response_modalities = run_config.response_modalities or ["AUDIO"]
    return config


def holds_media(event: Event) -> bool:
    """Whether the event holds audio, video or images in place."""
    parts = (event.content.parts if event.content is not None else None) or ()
    return any(part.inline_data is not None and (part.inline_data.mime_type or "").startswith(_MEDIA) for part in parts)
