"""Files that go into environments and come out of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

from greenroom.records.base import Record

MAX_FILES = 50
MAX_FILE_BYTES = 5 * 1024 * 1024
MAX_BYTES_IN_ALL = 16 * 1024 * 1024
"""Limits of the files that come out of an environment at once."""

MAX_NAME_BYTES = 1024
MAX_COMPONENT_BYTES = 255


class File(Record, kw_only=True, rename=None):
    """A file that code reads or has written."""

    name: str
    """A relative path."""

    content: bytes
    """In JSON, as in the session's state, base64."""

    mime_type: str = "text/plain"


@dataclass(frozen=True)
class FileStatus:
    """A file without its content."""

    name: str
    """A relative path."""

    size: int
    modified_ns: int


def is_safe_name(name: str) -> bool:
    """True for a relative path that stays below its folder on every system and prints on one line."""
    if not name or not name.isprintable() or "\\" in name or ":" in name.partition("/")[0][1:2]:
        return False

    try:
        encoded = name.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, as in names that are not UTF-8
        return False

    components = name.split("/")
    return (
        len(encoded) <= MAX_NAME_BYTES
        and not PurePosixPath(name).is_absolute()
        and all(part not in ("", ".", "..") and len(part.encode()) <= MAX_COMPONENT_BYTES for part in components)
    )
