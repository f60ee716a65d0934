"""Reads rows of BigQuery's REST API, in which most values are text, as JSON values.

Source: `TableSchema` and `jobs.query` of the BigQuery API's reference, v2:

    {"schema": {"fields": [{"name": "n", "type": "INTEGER"}]}, "rows": [{"f": [{"v": "7"}]}]}

becomes `[{"n": 7}]`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from greenroom.records.base import JsonObject, JsonValue
from greenroom.tools.google_cloud.rest_api import json_or_text

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def read_rows(schema: JsonObject, rows: list[JsonObject]) -> list[JsonObject]:
    """A map per row, by the names of the columns."""
    fields = cast("list[JsonObject]", schema.get("fields") or [])
    return [_record(fields, row) for row in rows]


def _record(fields: list[JsonObject], row: JsonObject) -> JsonObject:
    cells = cast("list[JsonObject]", row.get("f") or [])
    return {field["name"]: _value(field, cell.get("v")) for field, cell in zip(fields, cells, strict=False)}


def _value(field: JsonObject, value: JsonValue) -> JsonValue:
    if value is None:
        return None
    if field.get("mode") == "REPEATED":
        single = {**field, "mode": "NULLABLE"}
        return [_value(single, item.get("v")) for item in cast("list[JsonObject]", value)]
    kind = field.get("type")
    if kind in ("RECORD", "STRUCT"):
        return _record(cast("list[JsonObject]", field.get("fields") or []), cast("JsonObject", value))
    convert = _CONVERSIONS.get(str(kind))
    return value if convert is None else convert(str(value))


def _float(text: str) -> JsonValue:
    """Infinity and NaN, which JSON lacks, stay text."""
    number = float(text)
    return number if math.isfinite(number) else text


def _timestamp(text: str) -> JsonValue:
    """text: microseconds since 1970."""
    return str(_EPOCH + timedelta(microseconds=int(text)))


def _datetime(text: str) -> JsonValue:
    return text.replace("T", " ", 1)


_CONVERSIONS: dict[str, Callable[[str], Any]] = {
    "INTEGER": int,
    "INT64": int,
    "FLOAT": _float,
    "FLOAT64": _float,
    "BOOLEAN": lambda text: text.lower() == "true",
    "BOOL": lambda text: text.lower() == "true",
    "TIMESTAMP": _timestamp,
    "DATETIME": _datetime,
    "JSON": json_or_text,
}
