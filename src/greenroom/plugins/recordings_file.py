"""Recording files: their settings in a session's state, and records as YAML.

Source of names and layout: ADK's conformance tests, which send the settings with every message.
Keys are snake_case at every level.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, MutableSequence
from enum import Enum
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple, TypeVar, cast

import msgspec
import yaml

from greenroom.errors import InvalidRequest, ReplayConfigError
from greenroom.records import wire
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.recording import Recordings
from greenroom.records.session import Session

T = TypeVar("T")

RECORDINGS_CONFIG = "_adk_recordings_config"
REPLAY_CONFIG = "_adk_replay_config"

StreamingName = Literal["none", "sse"]


class Settings(NamedTuple):
    """The turn of a recording that a run belongs to."""

    directory: Path
    """The folder of the file."""

    turn: int
    """Index of the user's message, from 0."""

    streaming_mode: StreamingName

    @property
    def path(self) -> Path:
        return self.directory / recordings_file(self.streaming_mode)


def recordings_file(streaming_mode: StreamingName) -> str:
    if streaming_mode == "sse":
        return "generated-recordings-sse.yaml"
    return "generated-recordings.yaml"


def settings_of(session: Session, key: str) -> Settings | None:
    """The settings in a session's state; None when the entry, its directory or its index is absent.

    Raises ReplayConfigError when they are invalid.
    """
    value = session.state.get(key)
    if value is None:
        return None
    if not isinstance(value, dict):
        raise ReplayConfigError(f"{key} must be an object, not {type(value).__name__}")

    entry = cast("JsonObject", value)
    directory = entry.get("dir")
    turn = entry.get("user_message_index")
    mode = entry.get("streaming_mode") or "none"

    if not directory or turn is None:
        return None
    if not isinstance(directory, str) or type(turn) is not int or turn < 0:
        raise ReplayConfigError(f"{key} needs a directory and an index of 0 or more, not {directory!r} and {turn!r}")
    if mode not in ("none", "sse"):
        raise ReplayConfigError(f"{key}: streaming_mode must be 'none' or 'sse', not {mode!r}")

    return Settings(Path(directory), turn, mode)


_NEVER_WRITTEN = frozenset({"tools_dict", "http_options"})
"""Objects of this process, and headers, which may contain tokens."""


def load_recordings(source: Path | str | IO[str] | IO[bytes]) -> Recordings:
    """Reads a file, a YAML text, or a stream. Unknown keys are ignored, and camelCase is accepted.

    Raises ReplayConfigError.
    """
    if isinstance(source, Path):
        return read_record(source, Recordings)
    name = "The recordings"
    return _as_record(_parse(source, name), Recordings, name)


def read_record(path: Path, record: type[T]) -> T:
    """Raises ReplayConfigError when the file is missing or doesn't contain such a record."""
    return _as_record(read_plain(path), record, str(path))


def read_plain(path: Path) -> JsonValue:
    """Raises ReplayConfigError when the file is missing or isn't YAML."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ReplayConfigError(f"{path} can't be read: {error}") from error
    return _parse(text, str(path))


def dump_recordings(recordings: Recordings) -> str:
    return dump(to_snake(recordings) or {"recordings": []})


def dump(value: JsonValue) -> str:
    return yaml.dump(value, Dumper=_dumper(), sort_keys=False, allow_unicode=True, width=120)


def to_snake(value: object) -> Any:
    """Plain data without nulls and defaults. Bytes are URL-safe base64, as ADK's Java readers require."""
    if isinstance(value, msgspec.Struct):
        return _fields(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, bytes):
        return base64.urlsafe_b64encode(value).decode()
    if isinstance(value, Mapping):
        return {key: to_snake(entry) for key, entry in cast("Mapping[str, object]", value).items()}
    if isinstance(value, (list, tuple, MutableSequence)):
        return [to_snake(entry) for entry in cast("list[object]", value)]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value

    return repr(value)


def _fields(record: msgspec.Struct) -> JsonObject:
    out: JsonObject = {}
    for field in msgspec.structs.fields(record):
        value = getattr(record, field.name)
        if field.name in _NEVER_WRITTEN or value is None or value == field.default:
            continue
        if field.default_factory is not msgspec.NODEFAULT and value == field.default_factory():
            continue
        out[field.name] = to_snake(value)

    return out


def _parse(source: str | IO[str] | IO[bytes], name: str) -> JsonValue:
    try:
        plain = yaml.load(source, Loader=_loader())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ReplayConfigError(f"{name}: not valid YAML: {error}") from error
    return {} if plain is None else plain


def _as_record(plain: JsonValue, record: type[T], name: str) -> T:
    try:
        return wire.from_plain(plain, record)
    except InvalidRequest as error:
        raise ReplayConfigError(f"{name}: {error.detail}") from error


def _loader() -> Any:
    """Builds plain data only; dates stay text."""
    base = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    resolvers = {
        first: [(tag, pattern) for tag, pattern in pairs if not tag.endswith(":timestamp")]
        for first, pairs in base.yaml_implicit_resolvers.items()
    }
    return type("Loader", (base,), {"yaml_implicit_resolvers": resolvers})


def _dumper() -> Any:
    """A dumper for readable files: no anchors for contents shared by many requests, and block style for
    multi-line text.
    """
    base = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    dumper: Any = type("Dumper", (base,), {"ignore_aliases": _always})
    dumper.add_representer(str, _text)
    return dumper


def _always(*_: object) -> bool:
    return True


def _text(dumper: Any, text: str) -> Any:
    return dumper.represent_scalar(
        "tag:yaml.org,2002:str",
        text,
        style="|" if "\n" in text else None,
    )
