"""What a tool returned, as plain data that a function response can hold."""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Mapping, Sequence, Set, ValuesView
from typing import Any, cast

import msgspec

from greenroom.errors import ToolError
from greenroom.records.base import JsonObject, JsonValue


def to_response(value: object) -> JsonObject:
    """A mapping as it is, anything else as `{"result": value}`; a copy, in plain data. Raises ToolError."""
    plain = to_plain(value)
    if isinstance(plain, dict) and isinstance(value, Mapping):
        return cast("JsonObject", plain)
    return {"result": plain}


def to_plain(value: object) -> JsonValue:
    """A copy of the value in what JSON has. Raises ToolError, which names the type and the path at fault.

    Dataclasses, Structs, pydantic models, enums, dates, bytes (base64), sets, mappings, other collections, paths and
    array types with a `tolist` are taken; NaN and the infinities become null, as in JavaScript.
    """
    try:
        return msgspec.json.decode(_encoder.encode(value))
    except (TypeError, ValueError, OverflowError, RecursionError, NotImplementedError) as error:
        path, at_fault = _find_fault(value, "result", ()) or ("result", error)
        raise ToolError(f"{path} is {_describe(at_fault)}, which JSON can't hold") from error


def _encode_other(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(cast("Mapping[Any, Any]", value))
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, os.PathLike):
        return os.fspath(cast("os.PathLike[str]", value))
    if isinstance(value, type):
        raise NotImplementedError
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", by_alias=True)
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, (Sequence, Set, ValuesView)):
        return list(cast("Collection[Any]", value))
    raise NotImplementedError


_encoder = msgspec.json.Encoder(enc_hook=_encode_other)


def _find_fault(value: Any, path: str, above: tuple[object, ...]) -> tuple[str, object] | None:
    """The innermost part that can't be encoded. Slow: only walked to explain a failure."""
    if any(value is outer for outer in above):
        return path, _Circular()
    try:
        _encoder.encode(value)
    except Exception:  # user types may raise anything on their way to JSON
        pass
    else:
        return None
    for step, part in _parts(value):
        fault = _find_fault(part, f"{path}{step}", (*above, value))
        if fault is not None:
            return fault
    return path, value


def _parts(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, Mapping):
        entries = cast("Mapping[Any, Any]", value).items()
        return [(f"[{key!r}]", item) for key, item in entries]
    if isinstance(value, (list, tuple, set, frozenset)):
        return [(f"[{index}]", item) for index, item in enumerate(cast("Collection[Any]", value))]
    if hasattr(value, "__dataclass_fields__") or hasattr(value, "__struct_fields__"):
        names: Collection[str] = getattr(value, "__struct_fields__", None) or value.__dataclass_fields__
        return [(f".{name}", getattr(value, name)) for name in names if hasattr(value, name)]
    return []


class _Circular:
    pass


def _describe(fault: object) -> str:
    if isinstance(fault, _Circular):
        return "a reference back to what it is in"
    if isinstance(fault, str):
        return "text with unpaired surrogates"
    if isinstance(fault, Mapping):
        keys = cast("Mapping[Any, Any]", fault)
        strange = next((key for key in keys if not isinstance(key, (str, int, float))), None)
        return f"a mapping with a key of type {type(strange).__name__}"
    return f"of type {type(fault).__module__}.{type(fault).__qualname__}".replace("type builtins.", "type ")
