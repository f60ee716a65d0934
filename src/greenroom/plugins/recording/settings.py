"""How a session says that it is to be recorded or replayed: by an entry in its state.

Source: ADK's conformance tests, which send the entry with every message.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple, cast

from greenroom.errors import ReplayConfigError
from greenroom.records.base import JsonObject
from greenroom.records.session import Session

RECORDINGS_CONFIG = "_adk_recordings_config"
REPLAY_CONFIG = "_adk_replay_config"

StreamingName = Literal["none", "sse"]


class Settings(NamedTuple):
    """directory: where the file is. turn: index of the user's message, from 0."""

    directory: Path
    turn: int
    streaming_mode: StreamingName

    @property
    def path(self) -> Path:
        return self.directory / recordings_file(self.streaming_mode)


def recordings_file(streaming_mode: StreamingName) -> str:
    return "generated-recordings-sse.yaml" if streaming_mode == "sse" else "generated-recordings.yaml"


def settings_of(session: Session, key: str) -> Settings | None:
    """None when the entry is absent or lacks the directory or the index.

    Raises ReplayConfigError for one that can't be meant.
    """
    value = session.state.get(key)
    if value is None:
        return None
    if not isinstance(value, dict):
        raise ReplayConfigError(f"{key} must be an object, not {type(value).__name__}")
    entry = cast("JsonObject", value)
    directory, turn, mode = entry.get("dir"), entry.get("user_message_index"), entry.get("streaming_mode") or "none"
    if not directory or turn is None:
        return None
    if not isinstance(directory, str) or type(turn) is not int or turn < 0:
        raise ReplayConfigError(f"{key} needs a directory and an index from 0 on, not {directory!r} and {turn!r}")
    if mode not in ("none", "sse"):
        raise ReplayConfigError(f"{key}: streaming_mode must be 'none' or 'sse', not {mode!r}")
    return Settings(Path(directory), turn, mode)
