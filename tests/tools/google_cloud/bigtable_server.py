"""The rows of Bigtable's API, v2, as it serializes them: by protobuf's own library, from the API's definitions."""

from __future__ import annotations

import base64
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from tests.tools.google_api.server import Json

_FIELD = descriptor_pb2.FieldDescriptorProto
_VALUE_FIELDS = {
    "bytes_value": (2, _FIELD.TYPE_BYTES),
    "string_value": (3, _FIELD.TYPE_STRING),
    "int_value": (6, _FIELD.TYPE_INT64),
    "bool_value": (10, _FIELD.TYPE_BOOL),
    "float_value": (11, _FIELD.TYPE_DOUBLE),
}


def _messages() -> dict[str, Any]:
    """The classes of `google.bigtable.v2` that rows are made of."""
    file = descriptor_pb2.FileDescriptorProto(name="rows.proto", package="rows", syntax="proto3")
    value = file.message_type.add(name="Value")
    value.oneof_decl.add(name="kind")
    for name, (number, kind) in _VALUE_FIELDS.items():
        value.field.add(name=name, number=number, type=kind, label=_FIELD.LABEL_OPTIONAL, oneof_index=0)
    for name, number, message in (
        ("timestamp_value", 12, "Timestamp"),
        ("date_value", 13, "Date"),
        ("array_value", 4, "ArrayValue"),
    ):
        value.field.add(
            name=name,
            number=number,
            type=_FIELD.TYPE_MESSAGE,
            type_name=f".rows.{message}",
            label=_FIELD.LABEL_OPTIONAL,
            oneof_index=0,
        )
    for message, number in (("ArrayValue", 1), ("ProtoRows", 2)):
        file.message_type.add(name=message).field.add(
            name="values",
            number=number,
            type=_FIELD.TYPE_MESSAGE,
            type_name=".rows.Value",
            label=_FIELD.LABEL_REPEATED,
        )
    for message, names in (("Timestamp", ("seconds", "nanos")), ("Date", ("year", "month", "day"))):
        added = file.message_type.add(name=message)
        for number, name in enumerate(names, 1):
            kind = _FIELD.TYPE_INT64 if name == "seconds" else _FIELD.TYPE_INT32
            added.field.add(name=name, number=number, type=kind, label=_FIELD.LABEL_OPTIONAL)

    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        one.name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"rows.{one.name}"))
        for one in file.message_type
    }


_MESSAGES = _messages()


def value(**kind: Any) -> Any:
    """`value(int_value=7)`; without an argument NULL. `array_value` and its kin take lists and maps."""
    converted: Json = {}
    for name, given in kind.items():
        if name == "array_value":
            given = _MESSAGES["ArrayValue"](values=given)
        elif name == "timestamp_value":
            given = _MESSAGES["Timestamp"](**given)
        elif name == "date_value":
            given = _MESSAGES["Date"](**given)
        converted[name] = given
    return _MESSAGES["Value"](**converted)


def serialized(*values: Any) -> bytes:
    """The values of rows, one row after the other."""
    return _MESSAGES["ProtoRows"](values=values).SerializeToString()


def batch(content: bytes, **more: Any) -> Json:
    """One part of the stream of an executed query."""
    data = base64.b64encode(content).decode()
    return {"results": {"protoRowsBatch": {"batchData": data}, **more}}


def prepared(**columns: Json) -> Json:
    """The reply for a prepared query with columns of these types."""
    schema = [{"name": name, "type": kind} for name, kind in columns.items()]
    return {"metadata": {"protoSchema": {"columns": schema}}, "preparedQuery": "cHJlcGFyZWQ="}
