"""Values of Bigtable's SQL: those of rows as JSON values, and parameters of a query as the API takes them.

Source: `google.bigtable.v2` of the Bigtable API's reference: `Type`, `Value` and `ProtoRows`.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta

from greenroom.errors import ToolError
from greenroom.records.base import JsonObject, JsonValue
from greenroom.tools.google_cloud.bigtable.protobuf import FieldValue, fields, signed
from greenroom.tools.google_cloud.rest_api import object_in, objects_in

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_VALUES_OF_ROWS = 2
_VALUES_OF_ARRAY = 1
_TYPE = 7

_BYTES = 2
_STRING = 3
_ARRAY = 4
_INT = 6
_BOOL = 10
_FLOAT = 11
_TIMESTAMP = 12
_DATE = 13

_PARAMETER_TYPES = {
    "STRING": ("stringType", "stringValue"),
    "BYTES": ("bytesType", "bytesValue"),
    "INT64": ("int64Type", "intValue"),
    "FLOAT64": ("float64Type", "floatValue"),
    "FLOAT32": ("float32Type", "floatValue"),
    "BOOL": ("boolType", "boolValue"),
    "TIMESTAMP": ("timestampType", "timestampValue"),
    "DATE": ("dateType", "dateValue"),
}
"""The fields of `Type` and `Value` by the name of the type in SQL."""


def read_rows(columns: list[JsonObject], proto_rows: bytes) -> list[JsonObject]:
    """A map per row, by the names of the columns. Raises ToolError."""
    values = [value for number, value in fields(proto_rows) if number == _VALUES_OF_ROWS]
    rows: list[JsonObject] = []
    for first in range(0, len(values), max(1, len(columns))):
        row = zip(columns, values[first : first + len(columns)], strict=False)
        rows.append({str(column.get("name") or ""): _read(object_in(column, "type"), value) for column, value in row})
    return rows


def parameter(name: str, value: JsonValue, type_name: JsonValue) -> JsonObject:
    """A parameter with its type, which follows from the value if it is not named. Raises ToolError."""
    kind = str(type_name).upper() if type_name is not None else _type_of(value)
    if kind not in _PARAMETER_TYPES:
        known = ", ".join(_PARAMETER_TYPES)
        raise ToolError(f"The type of the parameter {name!r} must be one of {known} in parameter_types")
    type_field, value_field = _PARAMETER_TYPES[kind]
    typed: JsonObject = {"type": {type_field: {}}}
    if value is None:
        return typed

    try:
        if kind == "DATE":
            day = date.fromisoformat(str(value))
            typed[value_field] = {"year": day.year, "month": day.month, "day": day.day}
        elif kind == "INT64":
            typed[value_field] = str(int(str(value)))
        elif kind in ("STRING", "BYTES", "TIMESTAMP"):
            typed[value_field] = str(value)
        else:
            typed[value_field] = value
    except ValueError:
        raise ToolError(f"The parameter {name!r} is no {kind}: {value!r}") from None
    return typed


def _type_of(value: JsonValue) -> str:
    if isinstance(value, bool):
        return "BOOL"
    if isinstance(value, int):
        return "INT64"
    if isinstance(value, float):
        return "FLOAT64"
    return "STRING" if isinstance(value, str) else "UNKNOWN"


def _read(kind: JsonObject, message: FieldValue) -> JsonValue:
    """kind: the only key of a type names it: `{"arrayType": {"elementType": …}}`."""
    found = [(number, value) for number, value in fields(_bytes(message)) if number != _TYPE]
    if not found:
        return None
    number, value = found[-1]
    if number == _ARRAY:
        return _read_list(kind, [item for key, item in fields(_bytes(value)) if key == _VALUES_OF_ARRAY])
    read = _READERS.get(number)
    if read is None:
        raise ToolError(f"Google's API answered with a value of an unknown kind ({number})")
    return read(value)


def _read_list(kind: JsonObject, items: list[FieldValue]) -> JsonValue:
    """Arrays are lists, structs and maps are maps."""
    if "structType" in kind:
        members = zip(objects_in(kind, "structType", "fields"), items, strict=False)
        return {str(one.get("fieldName") or ""): _read(object_in(one, "type"), item) for one, item in members}
    if "mapType" not in kind:
        element = object_in(kind, "arrayType", "elementType")
        return [_read(element, item) for item in items]

    result: JsonObject = {}
    for item in items:
        array = dict(fields(_bytes(item))).get(_ARRAY, b"")
        pair = [value for key, value in fields(_bytes(array)) if key == _VALUES_OF_ARRAY]
        if len(pair) == 2:
            key = _read(object_in(kind, "mapType", "keyType"), pair[0])
            result[str(key)] = _read(object_in(kind, "mapType", "valueType"), pair[1])
    return result


def _bytes(value: FieldValue) -> bytes:
    if not isinstance(value, bytes):
        raise ToolError("Google's API answered with rows that can't be read")
    return value


def _text(value: FieldValue) -> JsonValue:
    """Text, or base64 for bytes that are no text."""
    content = _bytes(value)
    try:
        return content.decode()
    except UnicodeDecodeError:
        return base64.b64encode(content).decode()


def _float(value: FieldValue) -> JsonValue:
    """Infinity and NaN, which JSON lacks, are text."""
    number = float(value)
    return number if math.isfinite(number) else str(number)


def _timestamp(value: FieldValue) -> JsonValue:
    parts = dict(fields(_bytes(value)))
    seconds = signed(int(parts.get(1, 0)))
    return str(_EPOCH + timedelta(seconds=seconds, microseconds=int(parts.get(2, 0)) // 1000))


def _date(value: FieldValue) -> JsonValue:
    parts = dict(fields(_bytes(value)))
    return f"{int(parts.get(1, 0)):04}-{int(parts.get(2, 0)):02}-{int(parts.get(3, 0)):02}"


_READERS: dict[int, Callable[[FieldValue], JsonValue]] = {
    _BYTES: _text,
    _STRING: _text,
    _INT: lambda value: signed(int(value)),
    _BOOL: bool,
    _FLOAT: _float,
    _TIMESTAMP: _timestamp,
    _DATE: _date,
}


def decode_base64(text: JsonValue) -> bytes:
    """Raises ToolError."""
    try:
        return base64.b64decode(str(text))
    except binascii.Error:
        raise ToolError("Google's API answered with rows that can't be read") from None
