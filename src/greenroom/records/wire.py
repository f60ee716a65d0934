"""Bytes to records and back: the only place that knows how JSON is spelled.

Out: camelCase, standard base64, and U+0085, U+2028 and U+2029 escaped, because ADK's client splits streams at them.
In: camelCase or snake_case, either base64 alphabet with or without padding, and the small liberties that clients take
(null for a field left out, milliseconds for seconds). Unknown fields are ignored.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar, cast

import msgspec
import msgspec.inspect as inspect_types

from greenroom.errors import InvalidRequest
from greenroom.records.base import JsonValue
from greenroom.records.copy_on_write import CopyOnWriteList

T = TypeVar("T")

_MILLISECONDS_FROM = 1e11
_TIMES = frozenset({"timestamp", "startTimestamp", "endTimestamp"})
_SNAKE_KEY = re.compile(rb'"[a-zA-Z]+(?:_[a-zA-Z]+)+"\s*:')
_ESCAPED = ((b"\xc2\x85", rb"\u0085"), (b"\xe2\x80\xa8", rb"\u2028"), (b"\xe2\x80\xa9", rb"\u2029"))


def _encode_other(value: object) -> Any:
    if isinstance(value, CopyOnWriteList):
        return list(cast("CopyOnWriteList[Any]", value))
    raise NotImplementedError(f"{type(value).__name__} has no JSON form")


def _decode_other(wanted: Any, value: Any) -> Any:
    (item,) = wanted.__args__
    return CopyOnWriteList(msgspec.convert(value, list[item]))


_encoder = msgspec.json.Encoder(enc_hook=_encode_other)


def encode(value: object) -> bytes:
    """JSON of a record or of plain data. Raises TypeError for what JSON can't hold."""
    data = _encoder.encode(value)
    if data.isascii():
        return data
    for raw, escaped in _ESCAPED:
        if raw in data:
            data = data.replace(raw, escaped)
    return data


def decoder(record: type[T]) -> Callable[[bytes], T]:
    """A function from bytes that we wrote ourselves to records; strict and fast."""
    return msgspec.json.Decoder(record, dec_hook=_decode_other).decode


def to_plain(value: object) -> JsonValue:
    """A record as the dicts and lists that its JSON would decode to."""
    return msgspec.json.decode(_encoder.encode(value))


def from_plain(value: JsonValue, record: type[T]) -> T:
    """Plain data, spelled as clients may, to a record. Raises InvalidRequest."""
    try:
        return msgspec.convert(_spell_out(value, _shape(record)), record, dec_hook=_decode_other)
    except msgspec.ValidationError as error:
        raise _invalid(error) from None


def client_decoder(record: type[T]) -> Callable[[bytes], T]:
    """A function from a client's bytes to a record; raises InvalidRequest, which says where.

    What is spelled as we spell it is decoded in one pass; only the rest is spelled out first.
    """
    fast = msgspec.json.Decoder(record, dec_hook=_decode_other).decode
    has_events = _mentions_events(record)

    def decode(data: bytes) -> T:
        if not has_events and (b"_" not in data or _SNAKE_KEY.search(data) is None):
            try:
                return fast(data)
            except msgspec.ValidationError:
                pass
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise _malformed(error) from None
            except RecursionError:
                raise InvalidRequest("The JSON is nested too deeply", kind="json_invalid") from None
        try:
            plain = msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise _malformed(error) from None
        except RecursionError:
            raise InvalidRequest("The JSON is nested too deeply", kind="json_invalid") from None
        return from_plain(plain, record)

    return decode


def _malformed(error: Exception) -> InvalidRequest:
    return InvalidRequest(f"The body is not valid JSON: {error}", kind="json_invalid")


def _invalid(error: msgspec.ValidationError) -> InvalidRequest:
    """msgspec ends its message with the path of the value at fault: "… - at `$.newMessage.parts[0]`"."""
    text, _, path = str(error).partition(" - at `$")
    steps: list[str | int] = ["body"]
    for name, index in re.findall(r"\.([^.\[\]`]+)|\[(\d+|\.\.\.)\]", path):
        steps.append(name or (int(index) if index.isdigit() else index))
    missing = re.search(r"missing required field `(\w+)`", text)
    if missing:
        steps.append(missing.group(1))
    where = ".".join(str(step) for step in steps[1:])
    return InvalidRequest(
        f"{where}: {text}" if where else text, location=tuple(steps), kind="missing" if missing else "type_error"
    )


class _RecordShape(msgspec.Struct):
    """What is needed to spell a record out: its fields by any name a client may use."""

    fields: dict[str, tuple[str, Any, bool]]


@cache
def _shape(wanted: Any) -> Any:
    return _shape_of(inspect_types.type_info(wanted), {})


def _shape_of(info: inspect_types.Type, known: dict[type, _RecordShape]) -> Any:
    """A `_RecordShape`, `[shape]` of a list, `{"": shape}` of a map, `bytes`, or None for what is taken as it is."""
    if isinstance(info, inspect_types.StructType):
        if info.cls in known:
            return known[info.cls]
        shape = known[info.cls] = _RecordShape(fields={})
        for field, declared in zip(info.fields, msgspec.structs.fields(info.cls), strict=True):
            inner = _shape_of(field.type, known)
            if isinstance(field.type, inspect_types.CustomType):  # its arguments stand only where it was declared
                inner = [_shape_of(inspect_types.type_info(item), known) for item in declared.type.__args__]
            entry = (field.encode_name, inner, _may_be_null(field.type) or field.required)
            shape.fields[field.name] = shape.fields[field.encode_name] = entry
        return shape
    if isinstance(info, inspect_types.UnionType):
        shapes = [_shape_of(option, known) for option in info.types]
        return next((shape for shape in shapes if shape is not None), None)
    if isinstance(info, inspect_types.ListType):
        item = _shape_of(info.item_type, known)
        return None if item is None else [item]
    if isinstance(info, inspect_types.DictType):
        value = _shape_of(info.value_type, known)
        return None if value is None else {"": value}
    if isinstance(info, inspect_types.BytesType):
        return bytes
    return None


def _may_be_null(info: inspect_types.Type) -> bool:
    if isinstance(info, inspect_types.UnionType):
        return any(isinstance(option, inspect_types.NoneType) for option in info.types)
    return isinstance(info, (inspect_types.NoneType, inspect_types.AnyType))


def _mentions_events(wanted: Any) -> bool:
    """Events from clients may carry milliseconds or ADK's Java metadata, which only the slow way sees."""

    def visit(shape: Any, seen: list[Any]) -> bool:
        if isinstance(shape, list):
            return visit(cast("list[Any]", shape)[0], seen)
        if isinstance(shape, dict):
            return visit(cast("dict[str, Any]", shape)[""], seen)
        if not isinstance(shape, _RecordShape) or any(shape is known for known in seen):
            return False
        seen.append(shape)
        return "timestamp" in shape.fields or any(visit(field[1], seen) for field in shape.fields.values())

    return visit(_shape(wanted), [])


def _spell_out(value: JsonValue, shape: Any) -> JsonValue:
    """The same data with our names, standard base64, seconds, and without nulls where a field has another default."""
    if value is None or shape is None:
        return value
    if isinstance(shape, _RecordShape):
        return _spell_out_record(cast("Mapping[str, Any]", value), shape) if isinstance(value, dict) else value
    if isinstance(shape, list) and isinstance(value, list):
        item = cast("list[Any]", shape)[0]
        return [_spell_out(entry, item) for entry in cast("list[Any]", value)]
    if isinstance(shape, dict) and isinstance(value, dict):
        inner = cast("dict[str, Any]", shape)[""]
        return {key: _spell_out(entry, inner) for key, entry in cast("dict[str, Any]", value).items()}
    if shape is bytes and isinstance(value, str):
        return _standard_base64(value)
    return value


def _spell_out_record(value: Mapping[str, Any], shape: _RecordShape) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, entry in value.items():
        field = shape.fields.get(key)
        if field is None:
            continue
        name, inner, null_is_fine = field
        if entry is None and not null_is_fine:
            continue
        if name in _TIMES and isinstance(entry, (int, float)) and entry >= _MILLISECONDS_FROM:
            entry = entry / 1000
        elif name == "customMetadata" and isinstance(entry, list):
            entry = _metadata_map(cast("list[Any]", entry))
        out[name] = _spell_out(entry, inner)
    return out


def _metadata_map(entries: list[Any]) -> dict[str, Any]:
    """ADK for Java writes metadata as a list of `{"key": …, "stringValue": …}`."""
    out: dict[str, Any] = {}
    for entry in entries:
        if isinstance(entry, dict) and isinstance(cast("dict[str, Any]", entry).get("key"), str):
            pairs = cast("dict[str, Any]", entry)
            out[pairs["key"]] = next((v for k, v in pairs.items() if k != "key"), None)
    return out


def _standard_base64(text: str) -> str:
    text = text.translate({ord("-"): "+", ord("_"): "/"}).rstrip("=")
    text += "=" * (-len(text) % 4)
    try:
        base64.b64decode(text, validate=True)
    except ValueError:
        raise InvalidRequest("Binary data is not valid base64", kind="bytes_invalid_encoding") from None
    return text
