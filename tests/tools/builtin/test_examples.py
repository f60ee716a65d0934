"""Few-shot examples in the system instruction."""

from __future__ import annotations

from typing import Any

import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.errors import AgentConfigError
from greenroom.records import wire
from greenroom.records.content import Blob, Content, FunctionCall, FunctionResponse, Part
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.tools.builtin.examples import BaseExampleProvider, Example, ExampleTool
from tests.agents.talk import Talk


def said(role: str, *parts: Part | str) -> Content:
    return Content(role=role, parts=[Part(text=part) if isinstance(part, str) else part for part in parts])


WEATHER = Example(
    input=said("user", "Weather?", "In Oslo."),
    output=[
        said("model", Part(function_call=FunctionCall(name="weather", args={"city": "O'Slo", "days": 3}))),
        said("user", Part(function_response=FunctionResponse(name="weather", response={"temp": 18, "sky": "blå"}))),
        said("model", "18 degrees."),
        said("model", "Take a coat."),
    ],
)
GREETING = Example(input=said("user", "Hi"), output=[said("model", "Hello.")])


async def block(tool: ExampleTool, message: str | Content = "hi", *, model: str = "scripted") -> str | None:
    """The tool's addition to the system instruction."""
    asked = ScriptedModel(["ok"], model=model)
    await Talk(LlmAgent(name="a", model=asked, tools=[tool])).say(message)
    (request,) = asked.requests
    assert request.function_declarations() == []
    _, found, rest = request.config.system_text().partition("<EXAMPLES>")
    return found + rest if found else None


async def test_examples_are_numbered_and_framed_and_roles_are_named_when_they_change() -> None:
    text = await block(ExampleTool([WEATHER, GREETING]), model="gemini-2.5-flash")
    assert text is not None
    head, tail = text.split("\n\n", 1)
    assert head.startswith("<EXAMPLES>\nBegin few-shot\n")
    assert head.count("\n") == 2
    assert tail == (
        "EXAMPLE 1:\nBegin example\n[user]\nWeather?\nIn Oslo.\n"
        "[model]\n```\nweather(city='O\\'Slo', days=3)\n```\n"
        '[user]\n```\n{"temp":18,"sky":"blå"}\n```\n'
        "[model]\n18 degrees.\nTake a coat.\nEnd example\n\n"
        "EXAMPLE 2:\nBegin example\n[user]\nHi\n[model]\nHello.\nEnd example\n\n"
        "End few-shot\n<EXAMPLES>"
    )


async def test_models_that_are_no_gemini_get_fences_with_names() -> None:
    text = await block(ExampleTool([WEATHER]), model="claude-9")
    assert text is not None
    assert "```tool_code\nweather(" in text
    assert "```tool_outputs\n{" in text


class Provider(BaseExampleProvider):
    def __init__(self) -> None:
        self.queries: list[str] = []

    def get_examples(self, query: str) -> list[Example]:
        self.queries.append(query)
        return [GREETING] if "hi" in query else []


async def test_a_provider_is_asked_with_the_users_text_and_may_have_nothing() -> None:
    provider = Provider()
    text = await block(ExampleTool(provider), "hi there")
    assert text is not None
    assert "EXAMPLE 1:" in text
    assert await block(ExampleTool(provider), "bye") is None
    assert provider.queries == ["hi there", "bye"]


@pytest.mark.parametrize("examples", [[GREETING], Provider()])
async def test_a_message_without_text_gets_no_examples(examples: list[Example] | Provider) -> None:
    picture = said("user", Part(inline_data=Blob(data=b"x", mime_type="image/png")))
    assert await block(ExampleTool(examples), picture) is None
    assert not isinstance(examples, Provider) or examples.queries == []


async def test_examples_may_be_maps() -> None:
    content = {"role": "user", "parts": [{"text": "2+2?"}]}
    add = {"name": "add", "args": {"a": 2, "b": 2}}
    call = {"role": "model", "parts": [{"function_call": add}]}
    record = Example(input=wire.from_plain(content, Content), output=[wire.from_plain(call, Content)])
    for given in (
        {"input": content, "output": [call]},
        {"input": record.input, "output": record.output},
        {"input": content, "output": [{"role": "model", "parts": [{"functionCall": add}]}]},
    ):
        examples: Any = [given, record]
        assert ExampleTool(examples).examples == [record, record]


@pytest.mark.parametrize("given", [{}, {"input": "2+2?", "output": []}, {"input": {"parts": [5]}, "output": []}, 5])
def test_examples_that_are_none_are_refused(given: Any) -> None:
    with pytest.raises(AgentConfigError, match="An example of ExampleTool is not valid"):
        ExampleTool([given])
