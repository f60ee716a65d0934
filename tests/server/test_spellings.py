"""Each field of each body is known by its camelCase and its snake_case name. Made from the request types: a new one is
covered by itself."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
import msgspec.inspect as types
import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.records.model_exchange import LiveRequest
from greenroom.server.endpoint import Endpoint
from greenroom.server.endpoints import ENDPOINTS
from greenroom.testing import ScriptedLiveModel
from tests.server.conftest import Serve
from tests.server.live_client import talking
from tests.server.serving import Serving
from tests.server.test_endpoint_table import HEADERS, VALUES, filled


class Wrong(NamedTuple):
    """A body in which one value is of a wrong type. place: the names that lead to it, as in an error."""

    body: dict[str, Any]
    place: list[str]


def wrong_bodies(record: types.StructType, *, snake: bool, tried: set[type]) -> Iterator[Wrong]:
    """tried: records whose fields are left out where they are in others; those that are tried here are added."""
    tried.add(record.cls)
    for name, field, kind in fields_of(record, snake=snake):
        if kind is None:
            continue
        rest = needed(record, snake=snake)
        inner, around = struct_in(kind)
        if inner is not None and inner.cls not in tried:
            for below in wrong_bodies(inner, snake=snake, tried=tried):
                yield Wrong({**rest, name: around(below.body)}, [field.encode_name, *below.place])
        yield Wrong({**rest, name: wrong_value(kind)}, [field.encode_name])


def fields_of(record: types.StructType, *, snake: bool) -> Iterator[tuple[str, types.Field, types.Type | None]]:
    """Name as a client writes it, field, its type; None for a type that takes anything."""
    for field in record.fields:
        kind = field.type
        if isinstance(kind, types.UnionType):
            kind = next((one for one in kind.types if not isinstance(one, types.NoneType)), kind)
        while isinstance(kind, types.Metadata):
            kind = kind.type
        yield (field.name if snake else field.encode_name), field, None if isinstance(kind, types.AnyType) else kind


def struct_in(kind: types.Type) -> tuple[types.StructType | None, Any]:
    """The record that a value is, or holds, and what puts one into its place."""
    if isinstance(kind, types.StructType):
        return kind, lambda value: value
    if isinstance(kind, types.ListType) and isinstance(kind.item_type, types.StructType):
        return kind.item_type, lambda value: [value]
    if isinstance(kind, types.DictType) and isinstance(kind.value_type, types.StructType):
        return kind.value_type, lambda value: {"k-1": value}
    return None, None


def wrong_value(kind: types.Type) -> Any:
    return "no number" if isinstance(kind, (types.IntType, types.FloatType, types.BoolType)) else 5


def needed(record: types.StructType, *, snake: bool) -> dict[str, Any]:
    """The fields without which there is no such record."""
    out: dict[str, Any] = {}
    for name, field, kind in fields_of(record, snake=snake):
        if field.required:
            right: dict[Any, Any] = {
                types.StrType: "x",
                types.FloatType: 1.5,
                types.BoolType: True,
                types.DictType: {},
                types.ListType: [],
            }
            if isinstance(kind, types.LiteralType):
                out[name] = kind.values[0]
            else:
                out[name] = needed(kind, snake=snake) if isinstance(kind, types.StructType) else right[type(kind)]
    return out


def body_of(endpoint: Endpoint) -> types.StructType | None:
    """None for a body that is a free map, or none."""
    info = types.type_info(endpoint.body)
    options = info.types if isinstance(info, types.UnionType) else (info,)
    return next((one for one in options if isinstance(one, types.StructType)), None)


WITH_FIELDS = [endpoint for endpoint in ENDPOINTS if body_of(endpoint) is not None]


@pytest.mark.parametrize("snake", [False, True], ids=["camelCase", "snake_case"])
async def test_each_field_of_a_body_is_known_by_either_name(server: Serving, snake: bool) -> None:
    """A name that is not known would be ignored, and so would be what is wrong with its value. Records within bodies
    are tried in the first body that has them: how they are decoded does not depend on what is around them."""
    tried: set[type] = set()
    for endpoint in WITH_FIELDS:
        record = body_of(endpoint)
        assert record is not None
        count = 0
        for body, place in wrong_bodies(record, snake=snake, tried=tried):
            url = filled(endpoint.path, VALUES)
            reply = await server.client.request(endpoint.method, url, json=body, headers=HEADERS)
            assert reply.status_code == 422, (endpoint.path, place, reply.text)
            (cause,) = reply.json()["errors"]
            reported = [step for step in cause["loc"] if isinstance(step, str) and step != "..."]
            assert reported == ["body", *place], (endpoint.path, reply.text)
            count += 1
        anything = sum(isinstance(field.type, types.AnyType) for field in record.fields)
        assert count >= len(record.fields) - max(anything, 1), endpoint.path


@pytest.mark.parametrize("snake", [False, True], ids=["camelCase", "snake_case"])
async def test_each_field_of_a_live_frame_is_known_by_either_name(serve: Serve, snake: bool) -> None:
    server = await serve(LlmAgent(name="desk", model=ScriptedLiveModel([])))
    await server.new_session("desk")
    record = types.type_info(LiveRequest)
    assert isinstance(record, types.StructType)
    async with talking(server.port) as client:
        for body, (first, *place) in wrong_bodies(record, snake=snake, tried=set()):
            ((name, value),) = body.items()
            if not snake:
                name = re.sub("_(.)", lambda match: match[1].upper(), name)
            await client.socket.send(json.dumps({name: value}))
            frame = await client.next()
            assert "error" in frame, (name, frame)
            reported = re.sub(r"\[\d+\]|\.\d+", "", frame["details"]["detail"].partition(": ")[0])
            assert reported == ".".join([first, *place]), frame


def test_the_bodies_that_have_no_fields_are_known() -> None:
    """A body with fields that the tests above can't see would slip through."""
    free = {endpoint.handler.__name__ for endpoint in ENDPOINTS if endpoint.body and endpoint not in WITH_FIELDS}
    assert free == {"create_session_with_id", "upload_artifact", "signal_run", "send_signal"}
    assert all(issubclass(record.cls, msgspec.Struct) for record in map(body_of, WITH_FIELDS) if record is not None)
