"""Encodes records as JSON and decodes them: the only module that knows the spelling.

Out: camelCase, standard base64, and U+0085, U+2028 and U+2029 escaped, because ADK's client splits
streams at them. In: camelCase or snake_case, either base64 alphabet with or without padding, and small
deviations of clients (null for a missing field, milliseconds for seconds). Unknown fields are ignored.
"""

from __future__ import annotations

import base64
import contextlib
import math
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set, ValuesView
from functools import cache
from itertools import islice
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast, get_args

import msgspec
import msgspec.inspect as inspect_types

from greenroom.errors import InvalidRequest
from greenroom.records.copy_on_write import CopyOnWriteList
from greenroom.records.genai_types import is_foreign, own

JsonValue: TypeAlias = Any
T = TypeVar("T")

_MILLISECONDS_FROM = 1e11
_MAX_FAULTS = 100
_TIMES = frozenset({"timestamp", "startTimestamp", "endTimestamp"})
_SNAKE_KEY = re.compile(rb'"[a-zA-Z]+(?:_[a-zA-Z]+)+"\s*:')
_ESCAPED = ((b"\xc2\x85", rb"\u0085"), (b"\xe2\x80\xa8", rb"\u2028"), (b"\xe2\x80\xa9", rb"\u2029"))


def encode_other(value: Any) -> Any:
    """Encodes what users put into states and results, and msgspec does not know: mappings, other
    collections and views of dicts, paths, pydantic models, types with a `tolist`, subclasses of the
    plain types."""
    if isinstance(value, CopyOnWriteList):
        return list(cast("CopyOnWriteList[Any]", value))
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
        raise NotImplementedError(f"{value.__name__} is a class, which has no JSON form")
    if is_foreign(value):
        record = own(value)
        if record is not value:
            return record
        return value.model_dump(mode="json", by_alias=True, exclude_none=True)
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", by_alias=True)
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, (Sequence, Set, ValuesView)):
        return list(cast("Collection[Any]", value))

    raise NotImplementedError(f"{type(value).__name__} has no JSON form")


def _decode_other(wanted: Any, value: Any) -> Any:
    if isinstance(wanted, type):  # an OpenRecord
        try:
            return wanted(msgspec.convert(value, dict[str, Any]))
        except msgspec.ValidationError as error:
            raise TypeError(str(error)) from None  # msgspec adds the path to a TypeError
    (item,) = wanted.__args__
    return CopyOnWriteList(msgspec.convert(value, list[item], dec_hook=_decode_other))


_encoder = msgspec.json.Encoder(enc_hook=encode_other)


def encode(value: object) -> bytes:
    """Encodes a record or plain data as JSON. Raises TypeError for values that JSON can't hold."""
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


def write_page_token(time: float, *keys: str) -> str:
    """An opaque token for the position after the last record of a page: its time, and what orders equal times."""
    return base64.urlsafe_b64encode(_encoder.encode((time, keys))).decode().rstrip("=")


_read_position = msgspec.json.Decoder(tuple[float, list[str]]).decode


def read_page_token(token: str, *, keys: int) -> tuple[float, list[str]]:
    """The time and keys of `write_page_token`. Raises InvalidRequest."""
    time = 0.0
    values: list[str] = []
    with contextlib.suppress(ValueError, msgspec.MsgspecError):
        time, values = _read_position(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    if len(values) != keys:
        raise InvalidRequest("The page token is not one of ours", location=("query", "page_token"))
    return time, values


def to_plain(value: object) -> JsonValue:
    """A record as the dicts and lists that its JSON would decode to."""
    return msgspec.json.decode(_encoder.encode(value))


def from_plain(value: JsonValue, record: type[T]) -> T:
    """Plain data, spelled as clients may, to a record. Raises InvalidRequest."""
    respell = _respelling(record)
    plain = value if respell is None else respell(value)
    try:
        return msgspec.convert(plain, record, dec_hook=_decode_other)
    except msgspec.ValidationError:
        raise _invalid(plain, record) from None


def client_decoder(record: type[T]) -> Callable[[bytes], T]:
    """A function from a client's bytes to a record; raises InvalidRequest, which says where.

    Data in our own spelling is decoded in one pass; the rest is respelled first: snake_case names,
    times (maybe milliseconds) and metadata (ADK for Java writes a list).
    """
    fast = msgspec.json.Decoder(record, dec_hook=_decode_other).decode

    def decode(data: bytes) -> T:
        try:
            is_ours = b"_" not in data or _SNAKE_KEY.search(data) is None
            if is_ours and b'imestamp"' not in data and b'"customMetadata"' not in data:
                try:
                    return fast(data)
                except msgspec.ValidationError:
                    pass  # respelled, it may be right
            plain = msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InvalidRequest(f"The body is not valid JSON: {error}", kind="json_invalid") from None
        except RecursionError:
            raise InvalidRequest("The JSON is nested too deeply", kind="json_invalid") from None

        return from_plain(plain, record)

    return decode


def from_arguments(record: type[T], arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments of a record's constructor in its own names, with records made of the maps among them.

    Raises InvalidRequest.
    """
    respelling = _respelling(record)
    fields = respelling.fields if isinstance(respelling, _Respelling) else {}

    out: dict[str, Any] = {}
    for name, value in arguments.items():
        field = fields.get(name)
        if field is not None and field.respell is not None and _holds_map(value):
            try:
                value = msgspec.convert(field.respell(value), field.type, dec_hook=_decode_other)
            except msgspec.ValidationError as error:
                raise _fault(str(error), ("body",)) from None
        out[name if field is None else field.name] = value

    return out


def _holds_map(value: object) -> bool:
    if isinstance(value, (list, tuple)):
        return any(isinstance(item, dict) for item in cast("list[Any]", value))
    return isinstance(value, dict)


def _invalid(plain: Any, wanted: Any) -> InvalidRequest:
    """An error that lists all faults, since msgspec stops at the first."""
    first, *others = islice(_faults(plain, wanted, ("body",)), _MAX_FAULTS)
    first.others = tuple(others)
    return first


def _faults(plain: Any, wanted: Any, path: tuple[str | int, ...]) -> Iterator[InvalidRequest]:
    try:
        msgspec.convert(plain, wanted, dec_hook=_decode_other)
    except msgspec.ValidationError as error:
        inner: Iterator[InvalidRequest] | None = None
        options = [option for option in get_args(wanted) if option is not type(None)]
        record = options[0] if len(options) == 1 and isinstance(plain, dict) else wanted
        if isinstance(record, type) and issubclass(record, msgspec.Struct) and isinstance(plain, dict):
            inner = _faults_of_fields(cast("dict[str, Any]", plain), record, path)
        fault = None if inner is None else next(inner, None)
        if inner is None or fault is None:
            yield _fault(str(error), path)
        else:
            yield fault
            yield from inner


def _faults_of_fields(
    plain: dict[str, Any], record: type[msgspec.Struct], path: tuple[str | int, ...]
) -> Iterator[InvalidRequest]:
    for field in msgspec.structs.fields(record):
        location = (*path, field.encode_name)
        if field.encode_name in plain:
            yield from _faults(plain[field.encode_name], field.type, location)
        elif field.required:
            detail = f"Object missing required field `{field.encode_name}`"
            yield InvalidRequest(_located(detail, location), location=location, kind="missing")


def _fault(text: str, path: tuple[str | int, ...]) -> InvalidRequest:
    detail, below, is_missing = fault_of(text)
    location = (*path, *below)
    kind = "missing" if is_missing else "type_error"
    return InvalidRequest(_located(detail, location), location=location, kind=kind)


def fault_of(text: str) -> tuple[str, tuple[str | int, ...], bool]:
    """Splits a message such as "… - at `$.newMessage.parts[0]`": text, location, and whether a field is missing."""
    text, _, path = text.partition(" - at `$")
    location: list[str | int] = []
    for name, index in re.findall(r"\.([^.\[\]`]+)|\[(\d+|\.\.\.)\]", path):
        location.append(name or (int(index) if index.isdigit() else index))
    missing = re.search(r"missing required field `(\w+)`", text)
    if missing:
        location.append(missing.group(1))
    return text, tuple(location), missing is not None


def _located(text: str, path: Sequence[str | int]) -> str:
    location = ".".join(str(step) for step in path[1:])
    return f"{location}: {text}" if location else text


class _RespelledField(NamedTuple):
    """A field of a record: its names, its type, and how a client's value of it is spelled as ours."""

    name: str
    key: str
    type: Any
    respell: Callable[[Any], Any] | None
    may_be_null: bool


class _Respelling:
    """Spells a client's map as ours, with the fields of a record by any name a client may use.

    Names become ours, base64 standard and times seconds; a null goes where the field has another default.
    """

    def __init__(self) -> None:
        self.fields: dict[str, _RespelledField] = {}

    def __call__(self, value: JsonValue) -> JsonValue:
        if not isinstance(value, dict):
            return value

        out: dict[str, Any] = {}
        for name, entry in cast("dict[str, Any]", value).items():
            field = self.fields.get(name)
            if field is None or (entry is None and not field.may_be_null):
                continue
            if field.key in _TIMES and isinstance(entry, (int, float)) and entry >= _MILLISECONDS_FROM:
                entry = entry / 1000
            elif field.key == "customMetadata" and isinstance(entry, list):
                entry = _metadata_map(cast("list[Any]", entry))
            out[field.key] = entry if field.respell is None or entry is None else field.respell(entry)

        return out


@cache
def _respelling(wanted: Any) -> Callable[[Any], Any] | None:
    """Returns the function that respells JSON for a type; None if nothing needs to be respelled."""
    return _respelling_of(inspect_types.type_info(wanted), {})


def _respelling_of(info: inspect_types.Type, respellings: dict[type, _Respelling]) -> Callable[[Any], Any] | None:
    """None for types that need no respelling."""
    if isinstance(info, inspect_types.StructType):
        return respellings.get(info.cls) or _record_respelling(info, respellings)
    if isinstance(info, inspect_types.UnionType):
        options = [_respelling_of(option, respellings) for option in info.types]
        return next((respell for respell in options if respell is not None), None)
    if isinstance(info, inspect_types.ListType):
        item = _respelling_of(info.item_type, respellings)
        return None if item is None else _respell_items(item)
    if isinstance(info, inspect_types.DictType):
        entry = _respelling_of(info.value_type, respellings)
        return None if entry is None else _respell_entries(entry)
    if isinstance(info, inspect_types.CustomType) and issubclass(info.cls, dict):
        return lambda value: value  # an OpenRecord takes any map

    return standard_base64 if isinstance(info, inspect_types.BytesType) else None


def _record_respelling(info: inspect_types.StructType, respellings: dict[type, _Respelling]) -> _Respelling:
    record = respellings[info.cls] = _Respelling()
    for field, declared in zip(info.fields, msgspec.structs.fields(info.cls), strict=True):
        respell = _respelling_of(field.type, respellings)
        if isinstance(field.type, inspect_types.CustomType):  # a CopyOnWriteList, whose argument only `declared` has
            (item,) = get_args(declared.type)
            respell = _respell_items(_respelling_of(inspect_types.type_info(item), respellings))
        options = (field.type,)
        if isinstance(field.type, inspect_types.UnionType):
            options = field.type.types
        may_be_null = field.required or any(
            isinstance(option, (inspect_types.NoneType, inspect_types.AnyType)) for option in options
        )
        entry = _RespelledField(field.name, field.encode_name, declared.type, respell, may_be_null)
        record.fields[field.name] = record.fields[field.encode_name] = entry

    return record


def _respell_items(item: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    def respell(value: Any) -> Any:
        if item is None or not isinstance(value, list):
            return value
        return [item(entry) for entry in cast("list[Any]", value)]

    return respell


def _respell_entries(entry: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def respell(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {key: entry(inner) for key, inner in cast("dict[str, Any]", value).items()}

    return respell


def _metadata_map(entries: list[Any]) -> dict[str, Any]:
    """ADK for Java writes metadata as a list of `{"key": …, "stringValue": …}`."""
    out: dict[str, Any] = {}
    for entry in entries:
        if isinstance(entry, dict) and isinstance(cast("dict[str, Any]", entry).get("key"), str):
            pairs = cast("dict[str, Any]", entry)
            out[pairs["key"]] = next((v for k, v in pairs.items() if k != "key"), None)
    return out


def standard_base64(text: JsonValue) -> JsonValue:
    """Base64 of either alphabet, padded or not, as a strict decoder takes it. Raises InvalidRequest."""
    if not isinstance(text, str):
        return text
    text = text.translate({ord("-"): "+", ord("_"): "/"}).rstrip("=")
    text += "=" * (-len(text) % 4)
    try:
        base64.b64decode(text, validate=True)
    except ValueError:
        raise InvalidRequest("Binary data is not valid base64", kind="bytes_invalid_encoding") from None
    return text
