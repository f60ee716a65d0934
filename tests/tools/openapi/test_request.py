from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, unquote

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from greenroom.tools.openapi.request import in_cookie, in_header, in_path, in_query, to_text
from greenroom.tools.value_types.plain_types import InvalidValue

LIST = ["a b", "c"]
OBJECT = {"k": "a b", "n": 2}


@pytest.mark.parametrize(
    ("value", "style", "explode", "written"),
    [
        ("a b/c", "simple", False, "a%20b%2Fc"),
        (7, "simple", False, "7"),
        (True, "simple", False, "true"),
        (LIST, "simple", False, "a%20b,c"),
        (LIST, "simple", True, "a%20b,c"),
        (OBJECT, "simple", False, "k,a%20b,n,2"),
        (OBJECT, "simple", True, "k=a%20b,n=2"),
        ("x", "label", False, ".x"),
        (LIST, "label", False, ".a%20b,c"),
        (LIST, "label", True, ".a%20b.c"),
        (OBJECT, "label", True, ".k=a%20b.n=2"),
        ("x", "matrix", False, ";p=x"),
        (LIST, "matrix", False, ";p=a%20b,c"),
        (LIST, "matrix", True, ";p=a%20b;p=c"),
        (OBJECT, "matrix", False, ";p=k,a%20b,n,2"),
        (OBJECT, "matrix", True, ";k=a%20b;n=2"),
    ],
)
def test_styles_in_a_path(value: Any, style: str, explode: bool, written: str) -> None:
    assert in_path("p", value, style=style, explode=explode) == written


@pytest.mark.parametrize(
    ("value", "style", "explode", "written"),
    [
        ("a b&c", "form", True, ["p=a%20b%26c"]),
        ("", "form", True, ["p="]),
        (False, "form", True, ["p=false"]),
        (LIST, "form", True, ["p=a%20b", "p=c"]),
        (LIST, "form", False, ["p=a%20b,c"]),
        (LIST, "spaceDelimited", False, ["p=a%20b%20c"]),
        (LIST, "pipeDelimited", False, ["p=a%20b%7Cc"]),
        ([], "form", False, []),
        (OBJECT, "form", True, ["k=a%20b", "n=2"]),
        (OBJECT, "form", False, ["p=k,a%20b,n,2"]),
        ({}, "form", False, []),
        ({"k": {"x": [1, 2]}, "n": "é"}, "deepObject", True, ["p[k][x]=1", "p[k][x]=2", "p[n]=%C3%A9"]),
        ({"k": [1]}, "form", True, ["k=[1]".replace("[", "%5B").replace("]", "%5D")]),
    ],
)
def test_styles_in_a_query(value: Any, style: str, explode: bool, written: list[str]) -> None:
    assert in_query("p", value, style=style, explode=explode) == written


def test_reserved_characters_may_be_allowed_but_never_those_that_end_a_value() -> None:
    assert in_query("p", "a/b?c=d&e+f#g h", allow_reserved=True) == ["p=a/b?c=d%26e%2Bf%23g%20h"]


@pytest.mark.parametrize(
    "value", [".", "..", "../admin", "a/../b", "a\\..\\b", "%2e%2e", "..%2fadmin", ["a", ".."], ""]
)
def test_values_that_would_lead_to_another_path_are_refused(value: Any) -> None:
    with pytest.raises(InvalidValue):
        in_path("p", value, style="simple", explode=False)


@pytest.mark.parametrize(("value", "written"), [(LIST, "a b,c"), (OBJECT, "k=a b,n=2"), (1.5, "1.5"), (None, "")])
def test_styles_in_a_header(value: Any, written: str) -> None:
    assert in_header("p", value, explode=True) == written


@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "a\nb", "a\0b", ["ok", "a\nb"]])
def test_a_header_cannot_begin_another(value: Any) -> None:
    with pytest.raises(InvalidValue):
        in_header("p", value)


def test_cookies_are_escaped() -> None:
    assert in_cookie("p", "a;b c") == ["p=a%3Bb%20c"]
    assert in_cookie("p", {"x": 1, "y": 2}) == ["x=1", "y=2"]
    assert in_cookie("p", ["a", "b"], explode=False) == ["p=a%2Cb"]


@given(st.text(min_size=1))
def test_any_text_in_a_path_is_one_segment_and_comes_back(text: str) -> None:
    parts = text.replace("\\", "/").split("/") + unquote(text).replace("\\", "/").split("/")
    assume("." not in parts and ".." not in parts)
    written = in_path("p", text, style="simple", explode=False)
    assert not set(written) & set("/?#%{}") - {"%"}
    assert unquote(written) == text


@given(st.text(min_size=1), st.text())
def test_any_text_in_a_query_comes_back(name: str, value: str) -> None:
    assert parse_qsl("&".join(in_query(name, value)), keep_blank_values=True) == [(name, value)]


@given(st.text(), st.lists(st.text(), max_size=4))
def test_any_list_in_a_query_comes_back(name: str, values: list[str]) -> None:
    pairs = in_query(name, values)
    assert parse_qsl("&".join(pairs), keep_blank_values=True) == [(name, value) for value in values]


@given(st.dictionaries(st.text(min_size=1), st.one_of(st.text(), st.integers(), st.booleans()), max_size=4))
def test_any_object_in_a_query_comes_back(value: dict[str, Any]) -> None:
    pairs = in_query("p", value)
    found = parse_qsl("&".join(pairs), keep_blank_values=True)
    assert found == [(key, to_text(one)) for key, one in value.items()]


@given(st.text())
def test_any_text_in_an_allow_reserved_query_comes_back(value: str) -> None:
    assert parse_qsl(in_query("p", value, allow_reserved=True)[0], keep_blank_values=True) == [("p", value)]
