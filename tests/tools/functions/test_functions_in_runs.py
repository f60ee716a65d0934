"""Functions as tools in real runs, from the declaration to the response. Source: ADK's function tool."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import pydantic
import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.errors import ToolDeclarationError
from greenroom.invocation.user_context import ToolContext
from greenroom.records.content import Content, Part
from greenroom.records.event import Event, EventActions
from greenroom.records.model_exchange import LlmRequest
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.tools.functions.function_tool import FunctionTool
from greenroom.tools.tool import BaseTool
from tests.agents.talk import Talk, call, lines_of
from tests.tools.one_call import call_once, declaration, declared

if TYPE_CHECKING:
    from nowhere import Missing  # pyright: ignore


class Level(Enum):
    LOW = 1
    HIGH = 2


@dataclass
class Stay:
    city: str
    nights: int = 1


class Guest(pydantic.BaseModel):
    name: str


class Greeter:
    """Something that greets."""

    async def __call__(self, name: str) -> str:
        """Greets somebody."""
        return f"Hello, {name}."

    def by_method(self, name: str) -> str:
        """Greets by a method."""
        return f"Hi, {name}."


def look_up(city: str, limit: int = 3) -> str:
    """Looks a city up.

    Args:
        city: Its name.
        limit: At most so many.

    Returns:
        What was found.
    """
    return f"{city} {limit}"


@pytest.mark.parametrize(
    ("func", "name", "description"),
    [
        (look_up, "look_up", "Looks a city up.\n\nReturns:\n    What was found."),
        (Greeter(), "Greeter", "Greets somebody."),
        (Greeter().by_method, "by_method", "Greets by a method."),
        (functools.partial(look_up, limit=1), "look_up", "Looks a city up.\n\nReturns:\n    What was found."),
    ],
)
async def test_the_model_is_shown_name_and_docstring(func: Callable[..., Any], name: str, description: str) -> None:
    shown = await declaration(func)
    assert (shown.name, shown.description) == (name, description)


async def test_parameters_are_described_by_their_annotation_their_default_or_the_docstring() -> None:
    def f(
        a: Annotated[int, pydantic.Field(description="From the annotation.")],
        c: int,
        b: int = pydantic.Field(default=4, description="From the default."),
    ) -> None:
        """Does it.

        Args:
            a: not this
            c: From the docstring.
        """

    assert await declared(f) == {
        "type": "object",
        "properties": {
            "a": {"type": "integer", "description": "From the annotation."},
            "c": {"type": "integer", "description": "From the docstring."},
            "b": {"type": "integer", "description": "From the default.", "default": 4},
        },
        "required": ["a", "c"],
    }


async def test_classes_and_enums_are_definitions_and_only_a_default_makes_a_parameter_optional() -> None:
    def f(stays: list[Stay], level: list[Level], note: str | None, limit: int = 3) -> None: ...

    stay = {
        "title": "Stay",
        "type": "object",
        "properties": {"city": {"type": "string"}, "nights": {"type": "integer", "default": 1}},
        "required": ["city"],
    }
    assert await declared(f) == {
        "type": "object",
        "properties": {
            "stays": {"type": "array", "items": {"$ref": "#/$defs/Stay"}},
            "level": {"type": "array", "items": {"$ref": "#/$defs/Level"}},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
            "limit": {"type": "integer", "default": 3},
        },
        "required": ["stays", "level", "note"],
        "$defs": {"Stay": stay, "Level": {"title": "Level", "enum": [1, 2], "type": "integer"}},
    }


async def test_without_parameters_there_is_no_schema() -> None:
    def ping(tool_context: ToolContext) -> None: ...

    assert await declared(ping) is None


async def test_the_model_does_not_see_what_is_not_for_it_to_fill_in() -> None:
    def f(a: int, somewhere: ToolContext, input_stream: Any = None, *args: int, **kwargs: int) -> list[Any]:
        return [a, somewhere.function_call_id, args, kwargs]

    def g(a, tool_context):  # pyright: ignore
        return [a, tool_context.function_call_id]  # pyright: ignore

    assert await declared(f) == {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    assert (await call_once(f, "f", {"a": 1})).response == {"result": [1, "call-1", [], {}]}
    assert await declared(g) == {"type": "object", "properties": {"a": {}}, "required": ["a"]}  # pyright: ignore
    assert (await call_once(g, "g", {"a": 1})).response == {"result": [1, "call-1"]}  # pyright: ignore


async def test_a_typed_context_leaves_the_name_tool_context_to_the_model() -> None:
    def f(tool_context: str, somewhere: ToolContext) -> list[str | None]:
        return [tool_context, somewhere.function_call_id]

    assert (await call_once(f, "f", {"tool_context": "mine"})).response == {"result": ["mine", "call-1"]}


async def test_what_can_not_be_reported_to_a_model_ends_the_run() -> None:
    def f(a: int, b: Missing): ...  # pyright: ignore

    with pytest.raises(ToolDeclarationError, match=r"'f'.*parameter 'b'.*'Missing'.*not defined"):
        await call_once(f, "f", {"a": 1})  # pyright: ignore


async def test_arguments_become_what_the_function_takes() -> None:
    taken: list[Any] = []

    def book(stay: Stay, guests: list[Guest], nights: list[int], level: Level, count: int) -> None:
        taken.extend([stay, guests, nights, level, count])

    args = {
        "stay": {"city": "Oslo", "nights": 2.0},
        "guests": [{"name": "Ada"}],
        "nights": [1.0, 2],
        "level": 2.0,
        "count": 3.0,
        "invented": True,
    }
    assert (await call_once(book, "book", args)).response == {"result": None}
    assert taken == [Stay("Oslo", 2), [Guest(name="Ada")], [1, 2], Level.HIGH, 3]
    assert [type(number) for number in (*taken[2], taken[4])] == [int, int, int]


async def test_arguments_that_are_missing_or_do_not_fit_are_reported_and_the_function_is_not_called() -> None:
    called: list[str] = []

    def book(city: str, nights: int) -> None:
        called.append(city)

    assert (await call_once(book, "book")).response == {
        "error": "book was not called, because these mandatory arguments are missing:\n"
        "city\nnights\nCall it again with all of them."
    }
    assert (await call_once(book, "book", {"city": "Oslo", "nights": "two"})).response == {
        "error": "book was not called, because of these arguments:\n"
        "nights: Expected int, got str (expected: integer)\nCall it again with valid ones."
    }
    assert called == []


async def _awaited(x: int) -> int:
    assert threading.current_thread() is threading.main_thread()
    return x


def _in_a_thread(x: int) -> int:
    assert threading.current_thread() is not threading.main_thread()
    return x


def _generator(x: int):
    yield "first"
    yield x
    yield Event(author="tool")


async def _stream(x: int):
    yield "first"
    yield x
    yield Event(author="tool")


@pytest.mark.parametrize("func", [_awaited, _in_a_thread, _generator, _stream, functools.partial(_awaited)])
async def test_functions_of_every_kind_give_their_result(func: Callable[..., Any]) -> None:
    assert (await call_once(FunctionTool(func, name="f"), "f", {"x": 5})).response == {"result": 5}


async def test_a_callable_object_and_a_method_are_called() -> None:
    assert (await call_once(Greeter(), "Greeter", {"name": "Ada"})).response == {"result": "Hello, Ada."}
    assert (await call_once(Greeter().by_method, "by_method", {"name": "Ada"})).response == {"result": "Hi, Ada."}


async def test_an_exception_of_the_function_fails_the_run() -> None:
    def breaks() -> None:
        raise KeyError("no")

    with pytest.raises(KeyError, match="no"):  # ADK's callers catch the function's own exception
        await call_once(breaks, "breaks")


async def test_custom_metadata_is_kept_on_tools() -> None:
    class Curious(BaseTool):
        async def run_async(self, *, args: Any, tool_context: ToolContext) -> Any:
            return dict(self.custom_metadata)

        async def process_llm_request(self, *, tool_context: ToolContext, llm_request: LlmRequest) -> None:
            llm_request.tools_dict["curious"] = self

    metadata = {"team": "a", "cost": 3}
    tool = Curious(name="curious", description="Looks at itself.", custom_metadata=metadata)
    assert (await call_once(tool, "curious")).response == metadata
    assert FunctionTool(look_up, custom_metadata=metadata).custom_metadata == metadata


def progress(text: str, **fields: Any) -> Event:
    return Event(author="", content=Content(role="model", parts=[Part(text=text)]), **fields)


def count_in_a_thread() -> Iterator[Any]:
    """Counts."""
    yield progress("one", partial=True)
    yield progress("two", actions=EventActions(state_delta={"counted": 2}))
    yield 2
    yield 3


async def count() -> AsyncIterator[Any]:
    """Counts."""
    for value in count_in_a_thread():
        yield value


@pytest.mark.parametrize("func", [count, count_in_a_thread])
async def test_events_that_a_generator_yields_are_streamed_and_stored_before_its_response(
    func: Callable[..., Any],
) -> None:
    model = ScriptedModel([call(func.__name__), "Three."])
    talk = Talk(LlmAgent(name="agent", model=model, tools=[func]))
    events = await talk.say("count")
    assert lines_of(events) == [f"agent: {func.__name__}()", "agent…: one", *lines_of(events)[2:]]
    assert lines_of(events)[2] == "agent: two"
    assert lines_of(events)[-2:] == [f"agent: {func.__name__} -> {{'result': 3}}", "agent: Three."]
    assert [event.partial for event in events[1:3]] == [True, None]
    assert len({(event.invocation_id, event.branch) for event in events}) == 1
    assert [event.id for event in await talk.log()][1:] == [event.id for event in events if not event.partial]
    assert await talk.state() == {"counted": 2}
    roles = [(content.role, content.parts and content.parts[0].text) for content in model.requests[1].contents]
    assert roles == [("user", "count"), ("model", None), ("user", None)], "the response follows the call"


async def test_a_generator_in_a_thread_is_stopped_at_its_next_event_when_its_run_is_cancelled() -> None:
    cancelled, closed = threading.Event(), threading.Event()

    def endless() -> Iterator[Event]:
        try:
            yield progress("begun")
            cancelled.wait(5)
            while True:
                yield progress("more")
        finally:
            closed.set()

    talk = Talk(LlmAgent(name="agent", model=ScriptedModel([call("endless")]), tools=[endless]))
    async for event in talk.events("go"):
        if lines_of([event]) == ["agent: begun"]:
            break
    cancelled.set()
    assert await asyncio.to_thread(closed.wait, 5)
    assert "agent: more" not in lines_of(await talk.log())


async def test_arguments_that_are_nested_too_deeply_are_the_calls_error() -> None:
    def take(values: dict[str, Any]) -> None: ...

    arguments: dict[str, Any] = {}
    for _ in range(800):
        arguments = {"values": arguments}
    talk = Talk(LlmAgent(name="agent", model=ScriptedModel([call("take", **arguments)]), tools=[take]))
    with pytest.raises(RecursionError):
        await talk.say("go")
    (response,) = [r for event in await talk.log() for r in event.get_function_responses()]
    assert "recursion" in (response.response or {})["error"]
