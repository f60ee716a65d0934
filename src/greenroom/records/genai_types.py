"""Objects of `google.genai.types` that users' code passes where records of the same names are expected.

The package is never imported here: its objects are recognized by the module of their class.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Collection
from enum import Enum
from functools import cache
from importlib import import_module
from typing import Any, Protocol, TypeVar, cast

_log = logging.getLogger("greenroom.records")

PACKAGE = "google.genai.types"

_HOMES = ("content", "generation", "tool_declaration", "answer_metadata", "model_options")
"""Modules with the records of these names."""


def record_named(name: str) -> Any:
    """The class or function of a module of records that has this name; None where there is none."""
    for home in _HOMES:
        module = f"greenroom.records.{home}"
        value = getattr(import_module(module), name, None)
        if getattr(value, "__module__", None) == module and not name.startswith("_"):
            return value
    return None


def record_names() -> list[str]:
    homes = [import_module(f"greenroom.records.{home}") for home in _HOMES]
    return sorted(
        name
        for home in homes
        for name, value in vars(home).items()
        if getattr(value, "__module__", None) == home.__name__ and not name.startswith("_")
    )


class _HasParts(Protocol):
    parts: Any


T = TypeVar("T", bound=_HasParts)


def is_foreign(value: object) -> bool:
    return type(value).__module__ == PACKAGE


def is_foreign_type(kind: type) -> bool:
    return kind.__module__ == PACKAGE


def own(value: Any) -> Any:
    """The record that says the same as an object of the package, or as a list or map of them; other values as they are.

    Objects without a record of their name stay, too. Fields that the record lacks are left out, with a warning.
    """
    if type(value) is list:
        items = cast("list[Any]", value)
        return [own(item) for item in items] if any(map(is_foreign, items)) else items
    if type(value) is dict:
        entries = cast("dict[str, Any]", value)
        if not any(map(is_foreign, entries.values())):
            return entries
        return {key: own(item) for key, item in entries.items()}
    if not is_foreign(value):
        return value
    if isinstance(value, Enum):
        return value.value
    kind = cast("Any", type(value))
    record = _record_of(kind)
    if record is None:
        return value

    taken: dict[str, Any] = {}
    for name in cast("Collection[str]", kind.model_fields):
        entry = getattr(value, name)
        if entry is None:
            continue
        if _has_field(record, name):
            taken[name] = own(entry)
        else:
            _log.warning("%s.%s of google.genai has no counterpart here, and is left out", record.__name__, name)
    return record(**taken)


@cache
def _record_of(kind: type) -> Any:
    """The record with the name of a class of the package, or of the one that it extends, as UserContent does."""
    for one in kind.__mro__:
        record = record_named(one.__name__) if one.__module__ == PACKAGE else None
        if hasattr(record, "__struct_fields__") or hasattr(record, "keys_by_name"):
            return record
    return None


def _has_field(record: Any, name: str) -> bool:
    names: Collection[str] = getattr(record, "__struct_fields__", None) or getattr(record, "keys_by_name", ())
    return name in names or not names  # open records without named fields take all


def own_content(content: T) -> T:
    """The content with its parts as records. Parts of a record that are not are replaced in place."""
    if PACKAGE not in sys.modules:  # then nobody has an object of it
        return content
    if is_foreign(content):
        content = own(content)
    for part in content.parts or ():
        if is_foreign(part):
            content.parts = own(list(content.parts))
            break
    return content
