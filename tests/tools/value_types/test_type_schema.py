"""Types as JSON Schemas, and their values there and back."""

from __future__ import annotations

import dataclasses
import itertools
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Annotated, Any, Generic, Literal, NamedTuple, NotRequired, Required, TypedDict, TypeVar
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from greenroom.errors import AgentConfigError, InvalidRequest
from greenroom.records.base import Record
from greenroom.records.content import Blob, Content, Part
from greenroom.records.tool_declaration import Schema
from greenroom.tools.value_types.plain_types import InvalidValue
from greenroom.tools.value_types.type_schema import type_schema

T = TypeVar("T")


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


@dataclass
class Point:
    x: int
    y: float = 0.0


@dataclass
class Stop:
    """A place on the way."""

    name: str
    at: datetime
    color: Color = Color.RED


@dataclass
class Tree:
    label: str
    children: list[Tree] = field(default_factory=list["Tree"])


@dataclass
class Box(Generic[T]):
    content: T


class Options(TypedDict, total=False):
    depth: Required[int]
    note: str


class Settings(TypedDict):
    depth: int
    note: NotRequired[str]


class Pair(NamedTuple):
    left: int
    right: str = "none"


class Order(Record, kw_only=True):
    item_count: int
    ship_to: str | None = None


class Person(pydantic.BaseModel):
    name: str
    born: date
    tags: set[str] = set()


class Team(pydantic.BaseModel):
    people: list[Person]


@dataclass
class Holder:
    person: Person


POINT = {
    "title": "Point",
    "type": "object",
    "properties": {"x": {"type": "integer"}, "y": {"type": "number", "default": 0.0}},
    "required": ["x"],
}
COLOR = {"title": "Color", "enum": ["red", "blue"], "type": "string"}
UID = "12345678-1234-5678-1234-567812345678"


@pytest.mark.parametrize(
    ("tp", "schema", "json", "value"),
    [
        (int, {"type": "integer"}, 5, 5),
        (float, {"type": "number"}, 5, 5.0),
        (bool, {"type": "boolean"}, True, True),
        (str, {"type": "string"}, "5", "5"),
        (None, {"type": "null"}, None, None),
        (Any, {}, {"a": [1]}, {"a": [1]}),
        (object, {}, "x", "x"),
        (list, {"type": "array", "items": {}}, [1, "a"], [1, "a"]),
        (tuple, {"type": "array", "items": {}}, [1, "a"], (1, "a")),
        (set, {"type": "array", "items": {}, "uniqueItems": True}, [1], {1}),
        (
            dict[str, list[Any]],
            {"type": "object", "additionalProperties": {"type": "array", "items": {}}},
            {"a": [1]},
            {"a": [1]},
        ),
        (dict, {"type": "object"}, {"a": 1}, {"a": 1}),
        (dict[str, Any], {"type": "object"}, {"a": None}, {"a": None}),
        (Mapping[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}, {"a": 1}, {"a": 1}),
        (dict[int, str], {"type": "object", "additionalProperties": {"type": "string"}}, {"1": "a"}, {1: "a"}),
        (
            list[dict[str, list[int]]],
            {
                "type": "array",
                "items": {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "integer"}}},
            },
            [{"a": [1]}],
            [{"a": [1]}],
        ),
        (
            tuple[int, str],
            {
                "type": "array",
                "minItems": 2,
                "maxItems": 2,
                "prefixItems": [{"type": "integer"}, {"type": "string"}],
                "items": False,
            },
            [1, "a"],
            (1, "a"),
        ),
        (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}, [1, 2], (1, 2)),
        (set[int], {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}, [1], {1}),
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}, None, None),
        (int | str, {"anyOf": [{"type": "integer"}, {"type": "string"}]}, "5", "5"),
        (Literal["a", "b"], {"enum": ["a", "b"], "type": "string"}, "b", "b"),
        (Literal["a", 1], {"enum": [1, "a"]}, 1, 1),
        (Color, COLOR, "blue", Color.BLUE),
        (Level, {"title": "Level", "enum": [1, 2], "type": "integer"}, 2, Level.HIGH),
        (
            datetime,
            {"type": "string", "format": "date-time"},
            "2026-01-02T03:04:05Z",
            datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        ),
        (date, {"type": "string", "format": "date"}, "2026-01-02", date(2026, 1, 2)),
        (UUID, {"type": "string", "format": "uuid"}, UID, UUID(UID)),
        (Decimal, {"type": "string", "format": "decimal"}, "1.20", Decimal("1.20")),
        (bytes, {"type": "string", "contentEncoding": "base64"}, "aGk=", b"hi"),
        (Annotated[int, msgspec.Meta(ge=1, description="Many.")], {"description": "Many.", "type": "integer", "minimum": 1}, 1, 1),
        (Point, POINT, {"x": 1, "y": 2.5}, Point(1, 2.5)),
        (Point | None, {"anyOf": [{"$ref": "#/$defs/Point"}, {"type": "null"}], "$defs": {"Point": POINT}}, None, None),
        (
            Stop,
            {
                "title": "Stop",
                "description": "A place on the way.",
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "at": {"type": "string", "format": "date-time"},
                    "color": {"$ref": "#/$defs/Color", "default": "red"},
                },
                "required": ["name", "at"],
                "$defs": {"Color": COLOR},
            },
            {"name": "a", "at": "2026-01-02T03:04:05", "color": "blue"},
            Stop("a", datetime(2026, 1, 2, 3, 4, 5), Color.BLUE),
        ),
        (
            Box[int],
            {
                "title": "Box[int]",
                "type": "object",
                "properties": {"content": {"type": "integer"}},
                "required": ["content"],
            },
            {"content": 1},
            Box(1),
        ),
        (
            Options,
            {
                "title": "Options",
                "type": "object",
                "properties": {"depth": {"type": "integer"}, "note": {"type": "string"}},
                "required": ["depth"],
            },
            {"depth": 1},
            {"depth": 1},
        ),
        (
            Settings,
            {
                "title": "Settings",
                "type": "object",
                "properties": {"depth": {"type": "integer"}, "note": {"type": "string"}},
                "required": ["depth"],
            },
            {"depth": 1, "note": "n"},
            {"depth": 1, "note": "n"},
        ),
        (
            Pair,
            {
                "title": "Pair",
                "type": "array",
                "prefixItems": [{"type": "integer"}, {"type": "string", "default": "none"}],
                "minItems": 1,
                "maxItems": 2,
            },
            [1, "a"],
            Pair(1, "a"),
        ),
        (
            Order,
            {
                "title": "Order",
                "type": "object",
                "properties": {
                    "itemCount": {"type": "integer"},
                    "shipTo": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
                },
                "required": ["itemCount"],
            },
            {"itemCount": 2, "shipTo": "Oslo"},
            Order(item_count=2, ship_to="Oslo"),
        ),
        (
            Person,
            {
                "title": "Person",
                "type": "object",
                "properties": {
                    "name": {"title": "Name", "type": "string"},
                    "born": {"title": "Born", "type": "string", "format": "date"},
                    "tags": {
                        "title": "Tags",
                        "type": "array",
                        "items": {"type": "string"},
                        "uniqueItems": True,
                        "default": [],
                    },
                },
                "required": ["name", "born"],
            },
            {"name": "Ada", "born": "1815-12-10", "tags": ["math"]},
            Person(name="Ada", born=date(1815, 12, 10), tags={"math"}),
        ),
        (
            Annotated[int, pydantic.Field(ge=1, description="Many.")],
            {"type": "integer", "minimum": 1, "description": "Many."},
            1,
            1,
        ),
    ],
)  # fmt: skip
def test_schema_and_conversions_of_a_type(tp: object, schema: dict[str, Any], json: object, value: object):
    mine = type_schema(tp)
    assert mine.json_schema() == schema
    assert mine.convert(json) == value
    assert type(mine.convert(json)) is type(value)
    assert mine.convert(mine.to_json(value)) == value


@pytest.mark.parametrize(
    ("tp", "written", "meant"),
    [
        (int, 5.0, 5),
        (int, "5", 5),
        (float, "1.5", 1.5),
        (int | None, "5", 5),
        (list[int], [1.0, "2"], [1, 2]),
        (Level, 2.0, Level.HIGH),
        (Literal[1, 2], 2.0, 2),
        (Point, {"x": 1.0, "y": "2", "unknown": True}, Point(1, 2.0)),
        (list[Level], [1.0], [Level.LOW]),
        (Iterable, ["a"], ["a"]),
        (Iterable[int] | None, ["5"], [5]),
        (dict[str, Annotated[Iterable[Level], "Levels."]], {"all": [1.0]}, {"all": [Level.LOW]}),
        (Person, {"name": "Ada", "born": "1815-12-10", "unknown": 1}, Person(name="Ada", born=date(1815, 12, 10))),
    ],
)
def test_values_are_taken_as_models_write_them(tp: object, written: object, meant: object):
    assert type_schema(tp).convert(written) == meant


@pytest.mark.parametrize(
    ("tp", "written", "location", "kind"),
    [
        (int, "many", (), "type_error"),
        (int, True, (), "type_error"),
        (int, 1.5, (), "type_error"),
        (str, 5, (), "type_error"),
        (Color, "green", (), "type_error"),
        (Point, {"y": 1}, ("x",), "missing"),
        (Point, [], (), "type_error"),
        (list[Point], [{"x": 1}, {"x": "one"}], (1, "x"), "type_error"),
        (Iterable[int], [1, "one"], (1,), "type_error"),
        (Team, {"people": [{"name": 1, "born": "1815-12-10"}]}, ("people", 0, "name"), "type_error"),
        (Team, {}, ("people",), "missing"),
        ({"type": "object", "required": ["a"]}, {"b": 1}, ("a",), "missing"),
        ({"type": "object"}, "text", (), "type_error"),
    ],
)
def test_a_value_that_does_not_fit_is_reported_with_its_path(
    tp: object, written: object, location: tuple[object, ...], kind: str
):
    with pytest.raises(InvalidValue) as caught:
        type_schema(tp).convert(written)
    assert (caught.value.location, caught.value.kind) == (location, kind)
    assert isinstance(caught.value, InvalidRequest)
    assert isinstance(caught.value, ValueError)


def test_error_text_says_where_and_what():
    with pytest.raises(InvalidValue) as caught:
        type_schema(list[Point]).convert([{"x": 1}, {"x": "one"}])
    assert caught.value.detail == "[1].x: Expected int, got str"


def test_a_recursive_type_keeps_a_definition_and_has_an_object_at_its_root():
    body = {
        "title": "Tree",
        "type": "object",
        "properties": {"label": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#/$defs/Tree"}}},
        "required": ["label"],
    }
    tree = type_schema(Tree)
    assert tree.json_schema() == {**body, "$defs": {"Tree": body}}
    assert tree.convert({"label": "a", "children": [{"label": "b"}]}) == Tree("a", [Tree("b")])


def test_pydantic_inside_a_dataclass_or_a_list_is_found():
    json = {"person": {"name": "Ada", "born": "1815-12-10"}}
    assert type_schema(Holder).convert(json) == Holder(Person(name="Ada", born=date(1815, 12, 10)))
    assert type_schema(list[Person]).convert([json["person"]]) == [Person(name="Ada", born=date(1815, 12, 10))]
    assert "$defs" in type_schema(Holder).json_schema()


@pytest.mark.parametrize("key", ["inlineData", "inline_data"])
def test_records_are_taken_in_both_spellings(key: str):
    mime = {"inlineData": "mimeType", "inline_data": "mime_type"}[key]
    content = type_schema(Content).convert({"role": "user", "parts": [{key: {mime: "text/plain", "data": "aGk"}}]})
    assert content == Content(role="user", parts=[Part(inline_data=Blob(mime_type="text/plain", data=b"hi"))])
    assert type_schema(list[Part]).convert([{key: {mime: "a/b"}}]) == [Part(inline_data=Blob(mime_type="a/b"))]


def test_a_union_that_only_pydantic_can_distinguish_falls_back_to_it():
    either = type_schema(Point | Stop)
    assert either.convert({"x": 1}) == Point(1)
    assert either.convert({"name": "a", "at": "2026-01-02T03:04:05"}) == Stop("a", datetime(2026, 1, 2, 3, 4, 5))


def test_given_schemas_pass_through():
    given_schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    assert type_schema(given_schema).json_schema() == given_schema
    assert type_schema(given_schema).convert({"a": "x"}) == {"a": "x"}
    record = Schema(type="OBJECT", properties={"a": Schema(type="INTEGER")}, required=["a"])
    assert type_schema(record).json_schema() == given_schema


class Opaque:
    pass


@pytest.mark.parametrize("tp", [Opaque, list[Opaque], Point | Order])
def test_a_type_without_json_form_is_refused(tp: object):
    with pytest.raises(AgentConfigError):
        type_schema(tp)


def test_pydantic_is_not_imported_for_other_types():
    code = (
        "import sys, dataclasses\n"
        "from greenroom.tools.functions.function_tool import FunctionTool\n"
        "@dataclasses.dataclass\n"
        "class A:\n    x: int\n"
        "def f(a: A, b: list[int] | None = None): 'Does.'\n"
        "FunctionTool(f)\n"
        "sys.exit('pydantic' in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": os.pathsep.join(sys.path)})


SCALARS: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (int, st.integers(-(2**63), 2**63)),
    (float, st.floats(allow_nan=False, allow_infinity=False)),
    (bool, st.booleans()),
    (str, st.text()),
    (bytes, st.binary()),
    (date, st.dates()),
    (datetime, st.datetimes(timezones=st.just(UTC))),
    (UUID, st.uuids()),
    (Color, st.sampled_from(Color)),
]


NUMBERS = itertools.count()


def _nested(inner: st.SearchStrategy[tuple[Any, st.SearchStrategy[Any]]]):
    def as_dataclass(parts: list[tuple[Any, st.SearchStrategy[Any]]]) -> tuple[Any, st.SearchStrategy[Any]]:
        cls = dataclasses.make_dataclass(f"Made{next(NUMBERS)}", [(f"f{i}", tp) for i, (tp, _) in enumerate(parts)])
        return cls, st.builds(cls, *[values for _, values in parts])

    return st.one_of(
        inner.map(lambda part: (list[part[0]], st.lists(part[1], max_size=3))),
        inner.map(lambda part: (dict[str, part[0]], st.dictionaries(st.text(), part[1], max_size=3))),
        st.lists(inner, min_size=1, max_size=3).map(as_dataclass),
        inner.map(lambda part: (part[0] | None, st.none() | part[1])),
    )


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # the first draw loads all of Unicode
@given(st.recursive(st.sampled_from(SCALARS), _nested, max_leaves=6), st.data())
def test_any_tree_of_types_round_trips(made: tuple[Any, st.SearchStrategy[Any]], data: st.DataObject):
    tp, values = made
    value = data.draw(values)
    schema = type_schema(tp)
    assert schema.convert(msgspec.json.decode(msgspec.json.encode(schema.to_json(value)))) == value


def test_values_that_are_nested_too_deeply_do_not_fit() -> None:
    value: Any = "deep"
    for _ in range(100_000):
        value = [value]
    with pytest.raises(InvalidValue):
        type_schema(list[int]).convert(value)
    with pytest.raises(InvalidValue, match="Nested too deeply"):
        type_schema(dict[str, list[pydantic.JsonValue]]).convert({"a": value})
