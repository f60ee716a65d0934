"""The base of all records, and the types of free-form JSON inside them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

JsonValue: TypeAlias = Any
"""None, bool, int, float, str, or lists and string-keyed dicts of these."""

JsonObject: TypeAlias = dict[str, Any]


class Record(msgspec.Struct, rename="camel", omit_defaults=True, gc=False):
    """A struct whose JSON names are camelCase and whose unset fields are left out; subclasses say `kw_only=True`.

    Records are trees of data, so the garbage collector passes them by; one that may hold an object which leads back to
    it says `gc=True`.
    """


empty_map: Callable[[], dict[str, Any]] = {}.copy
"""Default of a map that is written even when it is empty: msgspec leaves out only plain `dict` defaults."""
