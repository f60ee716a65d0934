"""The declaration of a function."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import pydantic
import pytest

from greenroom.errors import ToolDeclarationError
from greenroom.invocation.user_context import CallbackContext, ReadonlyContext, ToolContext
from greenroom.tools.functions.signature import Signature, read_signature
from tests.tools.functions.guide import get_weather, remember_city

if TYPE_CHECKING:
    from nowhere import Missing  # pyright: ignore


def test_the_first_function_of_the_guide():
    signature = read_signature(get_weather)
    assert (signature.name, signature.description) == ("get_weather", "Current weather of a city.")
    assert signature.json_schema() == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "Name of the city."},
            "unit": {"type": "string", "description": '"celsius" or "fahrenheit".', "default": "celsius"},
        },
        "required": ["city"],
    }


def test_the_second_function_of_the_guide_does_not_show_its_context():
    signature = read_signature(remember_city)
    assert signature.context == "tool_context"
    assert signature.json_schema() == {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    }


def test_a_function_without_parameters_has_no_schema():
    def ping(): ...

    assert read_signature(ping) == Signature("ping", "ping", {}, None, input_stream=False)
    assert read_signature(ping).json_schema() is None


def google(a: int, b: list[str]):
    """Do it.

    A longer text: with a colon.

    Args:
        a (int): The first,
            which goes on.

        b: The second.
        tool_context: not shown.

    Returns:
        A thing.
    """


def numpy(a: int, b: list[str]):
    """Do it.

    A longer text: with a colon.

    Parameters
    ----------
    a : int
        The first,
        which goes on.
    b : list
        The second.

    Returns
    -------
    A thing.
    """


def rest(a: int, b: list[str]):
    """Do it.

    A longer text: with a colon.

    :param a: The first,
        which goes on.
    :type a: int
    :param b: The second.
    :returns: A thing.
    """


@pytest.mark.parametrize(
    ("func", "end"),
    [(google, "Returns:\n    A thing."), (numpy, "Returns\n-------\nA thing."), (rest, ":returns: A thing.")],
)
def test_docstring_is_divided_between_tool_and_parameters(func: Callable[..., Any], end: str):
    signature = read_signature(func)
    assert signature.description == f"Do it.\n\nA longer text: with a colon.\n\n{end}"
    descriptions = {name: p.schema["description"] for name, p in signature.parameters.items()}
    assert descriptions == {"a": "The first, which goes on.", "b": "The second."}


def test_annotated_descriptions_win_over_the_docstring():
    def f(
        a: Annotated[int, "From text."],
        b: Annotated[int, msgspec.Meta(description="From Meta.", ge=1)],
        c: Annotated[int, pydantic.Field(description="From Field.", le=9)],
        d: int = pydantic.Field(default=4, description="From default."),
        e: list[int] = pydantic.Field(default_factory=list),  # noqa: B008
    ):
        """Do.

        Args:
            a: not this
        """

    signature = read_signature(f)
    assert signature.json_schema() == {
        "type": "object",
        "properties": {
            "a": {"type": "integer", "description": "From text."},
            "b": {"type": "integer", "description": "From Meta.", "minimum": 1},
            "c": {"type": "integer", "description": "From Field.", "maximum": 9},
            "d": {"type": "integer", "description": "From default.", "default": 4},
            "e": {"type": "array", "items": {"type": "integer"}},
        },
        "required": ["a", "b", "c"],
    }
    assert [p.make_default() for p in signature.parameters.values() if p.make_default] == [4, []]


@pytest.mark.parametrize("kind", [ToolContext, CallbackContext, ReadonlyContext])
def test_a_context_is_known_by_its_type(kind: type):
    def f(a: int, ctx: Any = None): ...

    f.__annotations__["ctx"] = kind | None
    signature = read_signature(f)
    assert (signature.context, list(signature.parameters)) == ("ctx", ["a"])


def test_a_context_imported_for_type_checkers_only_is_known_by_the_name_of_its_type():
    def f(ctx: ToolContext): ...

    f.__annotations__["ctx"] = "greenroom.ToolContext | None"
    assert read_signature(f).context == "ctx"


def test_the_name_tool_context_counts_only_without_a_typed_one():
    def f(tool_context: str, ctx: ToolContext): ...
    def g(tool_context): ...  # pyright: ignore

    assert (read_signature(f).context, list(read_signature(f).parameters)) == ("ctx", ["tool_context"])
    assert read_signature(g).context == "tool_context"  # pyright: ignore


def test_what_a_model_can_not_fill_in_is_left_out():
    def f(a, input_stream, *args, b=1, **kwargs): ...  # pyright: ignore

    signature = read_signature(f)  # pyright: ignore
    assert signature.input_stream
    assert signature.json_schema() == {
        "type": "object",
        "properties": {"a": {}, "b": {"default": 1}},
        "required": ["a"],
    }


def test_optional_alone_does_not_make_a_parameter_optional():
    def f(a: int | None, b: int | None = None, c: object = object()): ...

    schema = read_signature(f).json_schema()
    assert schema is not None
    assert schema["required"] == ["a"]
    assert schema["properties"]["b"] == {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None}
    assert schema["properties"]["c"] == {}


def test_postponed_annotations_of_local_classes_are_resolved():
    @dataclass
    class Local:
        x: int

    def f(a: Local, b: list[Local], mode: Literal["a"] = "a"): ...

    schema = read_signature(f).json_schema()
    local = {"title": "Local", "type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
    assert schema == {
        "type": "object",
        "properties": {
            "a": local,
            "b": {"type": "array", "items": {"$ref": "#/$defs/Local"}},
            "mode": {"enum": ["a"], "type": "string", "default": "a"},
        },
        "required": ["a", "b"],
        "$defs": {"Local": local},
    }


def test_two_classes_of_one_name_keep_apart():
    def make(tp: Any):
        return msgspec.defstruct("Same", [("x", tp)])

    one, two = make(int), make(str)

    def f(a: list[one], b: list[two], c: list[one]): ...  # pyright: ignore

    schema = read_signature(f).json_schema()  # pyright: ignore
    assert schema is not None
    references = [schema["properties"][name]["items"]["$ref"] for name in "abc"]
    assert references == ["#/$defs/Same", "#/$defs/Same_2", "#/$defs/Same"]
    assert schema["$defs"]["Same_2"]["properties"] == {"x": {"type": "string"}}


class Opaque:
    pass


def test_what_can_not_be_declared_is_refused_by_tool_and_parameter():
    def f(a: int, b: Missing): ...  # pyright: ignore
    def g(a: int, b: Opaque): ...

    with pytest.raises(ToolDeclarationError, match=r"'f'.*parameter 'b'.*'Missing'.*not defined"):
        read_signature(f)  # pyright: ignore
    with pytest.raises(ToolDeclarationError, match=r"'g'.*parameter 'b'.*Opaque.* is not supported"):
        read_signature(g)


class Counter:
    """Counts."""

    def __call__(self, step: int) -> int:
        """Goes on.

        Args:
            step: How far.
        """
        return step

    def method(self, step: int) -> int:
        """Goes on by method."""
        return step


class Silent:
    """Says what it is."""

    def __call__(self): ...


def test_names_of_all_kinds_of_callables():
    def bound(secret: str, city: str, limit: int = 3):
        """Looks up."""

    @functools.wraps(get_weather)
    def wrapped(*args: Any, **kwargs: Any) -> Any: ...

    signatures = [read_signature(f) for f in (Counter(), Silent(), Counter().method, wrapped)]
    assert [(s.name, s.description, list(s.parameters)) for s in signatures] == [
        ("Counter", "Goes on.", ["step"]),
        ("Silent", "Says what it is.", []),
        ("method", "Goes on by method.", ["step"]),
        ("get_weather", "Current weather of a city.", ["city", "unit"]),
    ]
    assert signatures[0].parameters["step"].schema == {"type": "integer", "description": "How far."}
    partial = read_signature(functools.partial(functools.partial(bound, "s"), limit=2))
    assert (partial.name, partial.description, list(partial.parameters)) == ("bound", "Looks up.", ["city"])
    assert read_signature(lambda: 1, name="given").name == "given"
    assert read_signature(lambda: 1).name == "lambda"


@pytest.mark.parametrize("hint", [pydantic.EmailStr, list[pydantic.EmailStr], dict[str, pydantic.NameEmail]])
def test_a_type_whose_package_is_missing_is_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch, hint: Any):
    monkeypatch.setitem(sys.modules, "email_validator", None)

    def invite(address: Any) -> None: ...

    invite.__annotations__["address"] = hint
    with pytest.raises(ToolDeclarationError, match=r"'invite'.*parameter 'address': email-validator is not installed"):
        read_signature(invite)


def test_a_tool_is_read_while_another_thread_imports_pydantic(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(city: str = "Oslo") -> str:
        """Find."""
        return city

    monkeypatch.setitem(sys.modules, "pydantic.fields", ModuleType("pydantic.fields"))  # not whole yet
    assert list(read_signature(find).parameters) == ["city"]
