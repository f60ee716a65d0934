"""Results of tools as function responses."""

from __future__ import annotations

import collections
import math
from dataclasses import dataclass
from datetime import date
from enum import Enum
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any

import pydantic
import pytest

from greenroom.errors import ToolError
from greenroom.records.content import Part
from greenroom.tools.result import to_response


class Color(Enum):
    RED = "red"


@dataclass
class Point:
    x: int
    inner: Any = None


class Person(pydantic.BaseModel):
    name: str
    born: date


class Text(str):
    pass


@pytest.mark.parametrize(
    ("value", "response"),
    [
        ({}, {}),
        ({"a": [1, {"b": None}]}, {"a": [1, {"b": None}]}),
        (None, {"result": None}),
        ("text", {"result": "text"}),
        (5, {"result": 5}),
        ([{"a": 1}], {"result": [{"a": 1}]}),
        (Point(1), {"result": {"x": 1, "inner": None}}),
        (Person(name="Ada", born=date(1815, 12, 10)), {"result": {"name": "Ada", "born": "1815-12-10"}}),
        (
            {"p": [Person(name="Ada", born=date(1815, 12, 10))], "c": Color.RED, "b": b"hi", "s": {1}, "t": (1, 2)},
            {"p": [{"name": "Ada", "born": "1815-12-10"}], "c": "red", "b": "aGk=", "s": [1], "t": [1, 2]},
        ),
        (MappingProxyType({"a": Part(text="x")}), {"a": {"text": "x"}}),
        (collections.defaultdict(int, a=1), {"a": 1}),
        ({1: "one"}, {"1": "one"}),
        (collections.deque([1]), {"result": [1]}),
        ({"k": {"a": 1}.keys(), "r": range(2)}, {"k": ["a"], "r": [0, 1]}),
        (PurePosixPath("/tmp"), {"result": "/tmp"}),
        (Text("sub"), {"result": "sub"}),
        ({"n": math.nan, "i": math.inf}, {"n": None, "i": None}),
    ],
)
def test_a_result_becomes_plain_data(value: object, response: dict[str, Any]):
    assert to_response(value) == response


def test_the_response_does_not_change_with_the_tools_own_object():
    mine = {"a": [1]}
    response = to_response(mine)
    mine["a"].append(2)
    assert response == {"a": [1]}


def _circle() -> list[Any]:
    circle: list[Any] = []
    circle.append({"again": circle})
    return circle


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": [1, object()]}, "result['a'][1] is of type object, which JSON can't hold"),
        (Point(1, {"f": print}), "result.inner['f'] is of type builtin_function_or_method, which JSON can't hold"),
        ({"a": {(1, 2): 3}}, "result['a'] is a mapping with a key of type tuple, which JSON can't hold"),
        (_circle(), "result[0]['again'] is a reference back to one of its containers, which JSON can't hold"),
        ({"a": "\ud800"}, "result['a'] is text with unpaired surrogates, which JSON can't hold"),
        ({"a": Point}, "result['a'] is of type type, which JSON can't hold"),
        ((n for n in [1]), "result is of type generator, which JSON can't hold"),
    ],
)
def test_what_json_can_not_hold_is_reported_by_type_and_path(value: object, text: str):
    with pytest.raises(ToolError) as caught:
        to_response(value)
    assert caught.value.detail == text


def nested(levels: int) -> Any:
    value: Any = "deep"
    for number in range(levels):
        value = [value] if number % 2 else {"in": value}
    return value


def test_results_are_nested_a_hundred_levels_at_most() -> None:
    assert to_response(nested(100)) == {"result": nested(100)}
    wide = {"rows": [{"cells": [1, 2]} for _ in range(1_000)]}
    assert to_response(wide) == wide
    for value in (nested(101), nested(600), nested(100_000), [nested(500), object()]):
        with pytest.raises(ToolError, match=r"nested more than 100 levels deep|of type object"):
            to_response(value)
