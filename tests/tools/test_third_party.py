"""Tools of LangChain, and objects made as CrewAI's tools are. Row 7.1."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from pydantic import BaseModel, Field

from greenroom.errors import ToolDeclarationError
from greenroom.tools.third_party import CrewaiTool, LangchainTool
from tests.tools.one_call import call_once, declaration


@pytest.fixture
def add() -> Any:
    from langchain_core.tools import tool  # takes a second to import

    @tool
    def add(first: int, second: int = 1) -> int:
        """Adds two numbers."""
        assert threading.current_thread() is not threading.main_thread()
        return first + second

    return add


@pytest.fixture
def greet() -> Any:
    from langchain_core.tools import tool

    @tool(return_direct=True)
    async def greet(name: str) -> dict[str, str]:
        """Greets."""
        return {"error": "nobody"} if name == "nobody" else {"greeting": f"Hi {name}"}

    return greet


async def test_a_tool_of_langchain_is_declared_and_called(add: Any) -> None:
    shown = await declaration(LangchainTool(add))
    assert (shown.name, shown.description) == ("add", "Adds two numbers.")
    schema = shown.json_schema()
    assert schema["required"] == ["first"]
    assert schema["properties"] == {"first": {"type": "integer"}, "second": {"type": "integer", "default": 1}}
    assert (await call_once(LangchainTool(add), "add", {"first": 2})).response == {"result": 3}


async def test_name_and_description_can_be_replaced(add: Any) -> None:
    shown = await declaration(LangchainTool(add, name="plus", description="Sums."))
    assert (shown.name, shown.description) == ("plus", "Sums.")
    shown = await declaration(CrewaiTool(Search(), name="find", description="Finds."))
    assert (shown.name, shown.description) == ("find", "Finds.")


@pytest.mark.parametrize(("name", "is_last"), [("Ada", True), ("nobody", None)])
async def test_return_direct_ends_the_turn_unless_the_result_is_an_error(
    greet: Any, name: str, is_last: bool | None
) -> None:
    calls = await call_once(LangchainTool(greet), "greet", {"name": name})
    assert calls.actions.skip_summarization is is_last


async def test_a_langchain_tool_without_a_schema_takes_one_text() -> None:
    from langchain_core.tools import Tool

    shout = LangchainTool(Tool(name="shout", func=lambda text: text.upper(), description="Shouts."))
    (argument,) = (await declaration(shout)).json_schema()["required"]
    assert (await call_once(shout, "shout", {argument: "hi"})).response == {"result": "HI"}


async def test_a_langchain_tool_of_a_coroutine_function_is_awaited() -> None:
    """Also where it was passed as the plain function, which LangChain calls in a thread."""
    from langchain_core.tools import StructuredTool, Tool

    async def double(number: int) -> int:
        """Doubles."""
        return number * 2

    async def shout(text: str) -> str:
        return text.upper()

    for tool in (StructuredTool.from_function(double), StructuredTool.from_function(coroutine=double)):
        assert (await call_once(LangchainTool(tool), "double", {"number": 2})).response == {"result": 4}
    single = LangchainTool(Tool(name="shout", func=shout, description="Shouts."))
    (argument,) = (await declaration(single)).json_schema()["required"]
    assert (await call_once(single, "shout", {argument: "hi"})).response == {"result": "HI"}


async def test_an_object_with_a_run_method_is_a_tool_too() -> None:
    class Clock:
        def run(self, zone: str) -> str:
            """Tells the time."""
            return f"noon in {zone}"

    clock = LangchainTool(Clock(), name="clock", description="Tells the time.")
    assert (await declaration(clock)).json_schema()["required"] == ["zone"]
    assert (await call_once(clock, "clock", {"zone": "Oslo"})).response == {"result": "noon in Oslo"}


def test_other_objects_are_refused() -> None:
    with pytest.raises(ToolDeclarationError, match="no method `run`"):
        LangchainTool(object())


class SearchArguments(BaseModel):
    query: str = Field(description="What to find.")
    limit: int = 3


class Search:
    """Has what CrewAI documents of its tools; the package itself would bring more than a hundred others."""

    name = "Web Search"
    description = "Searches the web."
    args_schema = SearchArguments

    def run(self, **arguments: Any) -> str:
        assert threading.current_thread() is not threading.main_thread()
        return f"found {arguments}"


async def test_a_tool_of_crewai_is_declared_and_called() -> None:
    shown = await declaration(CrewaiTool(Search()))
    assert (shown.name, shown.description) == ("web_search", "Searches the web.")
    assert shown.json_schema()["properties"]["query"]["description"] == "What to find."
    response = (await call_once(CrewaiTool(Search()), "web_search", {"query": "tea"})).response
    assert response == {"result": "found {'query': 'tea'}"}


async def test_invalid_arguments_are_reported_to_the_model(add: Any) -> None:
    for one in (LangchainTool(add), CrewaiTool(Search())):
        response = (await call_once(one, one.name, {"first": "much", "limit": "few"})).response
        assert f"{one.name} was not called" in response["error"]


async def test_an_exception_of_the_tool_is_the_runs() -> None:
    class Broken(Search):
        def run(self, **arguments: Any) -> str:
            raise ConnectionError("offline")

    with pytest.raises(ConnectionError, match="offline"):
        await call_once(CrewaiTool(Broken()), "web_search", {"query": "tea"})
