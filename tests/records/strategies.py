"""Hypothesis strategies for records, made from their types."""

from __future__ import annotations

import base64
from functools import cache
from typing import Any, cast

import msgspec
import msgspec.inspect as inspect_types
from hypothesis import strategies as st

from greenroom.records.base import OpenRecord
from greenroom.records.copy_on_write import CopyOnWriteList

texts = st.text(max_size=8)
keys = st.text(max_size=6) | st.sampled_from(["user_name", "camelCase", "app:x", "user:y", "state_delta", "timestamp"])
whole_numbers = st.integers(-(2**63), 2**63 - 1)
numbers = st.floats(allow_nan=False, allow_infinity=False)
times = st.floats(0, 9e10)
"""As seconds: what is larger is taken for milliseconds when a client sends it."""

json_values = st.recursive(
    st.none() | st.booleans() | whole_numbers | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=5,
)


@cache
def records(record: type[Any]) -> st.SearchStrategy[Any]:
    """Any record of that class that JSON can hold."""
    info = inspect_types.type_info(record)
    assert isinstance(info, inspect_types.StructType)
    declared = {field.name: field.type for field in msgspec.structs.fields(record)}
    values = {field.name: _values(field.type, field.name, declared[field.name]) for field in info.fields}
    required = {field.name: values[field.name] for field in info.fields if field.required}
    optional = {name: value for name, value in values.items() if name not in required}
    given = st.fixed_dictionaries(required, optional=optional)
    # Most records leave most fields out.
    sparse = given.flatmap(
        lambda values: (
            st.sets(st.sampled_from(sorted(values)), max_size=6).map(
                lambda kept: {name: value for name, value in values.items() if name in kept or name in required}
            )
            if values
            else st.just(values)
        )
    )
    return (sparse | given).map(lambda values: record(**values))


def _values(info: inspect_types.Type, name: str, declared: Any = None) -> st.SearchStrategy[Any]:
    if isinstance(info, inspect_types.StructType):
        return st.deferred(lambda: records(info.cls))
    if isinstance(info, inspect_types.Metadata):  # words for the documentation
        return _values(info.type, name, declared)
    if isinstance(info, inspect_types.UnionType):
        return st.one_of([_values(option, name) for option in info.types])
    if isinstance(info, inspect_types.ListType):
        return st.lists(_values(info.item_type, name), max_size=2)
    if isinstance(info, inspect_types.DictType):
        return st.dictionaries(keys, _values(info.value_type, name), max_size=3)

    if isinstance(info, inspect_types.CustomType):
        if issubclass(info.cls, OpenRecord):
            return st.dictionaries(keys, texts, max_size=2).map(info.cls)
        (item,) = declared.__args__
        return st.lists(st.deferred(lambda: records(item)), max_size=2).map(CopyOnWriteList)

    if isinstance(info, inspect_types.EnumType):
        return st.sampled_from(list(info.cls))
    if isinstance(info, inspect_types.LiteralType):
        return st.sampled_from(info.values)
    if isinstance(info, inspect_types.FloatType):
        return times if name.endswith("timestamp") else numbers
    if isinstance(info, inspect_types.IntType):
        lowest = [-(2**63), *([] if info.ge is None else [info.ge]), *([] if info.gt is None else [info.gt + 1])]
        highest = [2**63 - 1, *([] if info.le is None else [info.le]), *([] if info.lt is None else [info.lt - 1])]
        return st.integers(max(lowest), min(highest))

    simple: dict[type[inspect_types.Type], st.SearchStrategy[Any]] = {
        inspect_types.StrType: texts,
        inspect_types.BoolType: st.booleans(),
        inspect_types.BytesType: st.binary(max_size=6),
        inspect_types.NoneType: st.none(),
        inspect_types.AnyType: json_values,
    }
    return simple[type(info)]


def as_python_clients_send(value: Any) -> Any:
    """Plain data in snake_case, URL-safe base64 without padding, and null for whatever is not set."""
    if isinstance(value, msgspec.Struct):
        return {name: as_python_clients_send(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, bytes):
        return base64.urlsafe_b64encode(value).decode().rstrip("=")
    if isinstance(value, (list, CopyOnWriteList)):
        return [as_python_clients_send(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {key: as_python_clients_send(item) for key, item in cast("dict[str, Any]", value).items()}
    return value
