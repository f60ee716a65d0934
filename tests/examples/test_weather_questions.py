"""Questions that nothing was tuned on: written after the code, measured once, and not to be tuned to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from examples.weather.agent import get_current_time, get_weather
from greenroom.models.local import files as local_files
from greenroom.models.local.llm import LocalLlm
from greenroom.records.content import FunctionCall, UserContent
from greenroom.records.generation import GenerateContentConfig
from greenroom.records.model_exchange import LlmRequest
from greenroom.records.tool_declaration import FunctionDeclaration, Tool
from greenroom.tools.functions.function_tool import FunctionTool

WEATHER, TIME = "get_weather", "get_current_time"

QUESTIONS = [
    ("How's the weather today in Amsterdam?", WEATHER, "Amsterdam"),
    ("Should I wear a jacket in Toronto?", WEATHER, "Toronto"),
    ("Is it foggy in San Francisco this morning?", WEATHER, "San Francisco"),
    ("What's the temperature in Mumbai?", WEATHER, "Mumbai"),
    ("Can you tell me if the sun is shining in Rome?", WEATHER, "Rome"),
    ("I'm in Vienna, is a storm coming?", WEATHER, "Vienna"),
    ("How warm is Cape Town at the moment?", WEATHER, "Cape Town"),
    ("weather report for Nairobi please", WEATHER, "Nairobi"),
    ("Is it freezing in Oslo?", WEATHER, "Oslo"),
    ("What are the skies like over Berlin?", WEATHER, "Berlin"),
    ("What time do they have in Vienna right now?", TIME, "Vienna"),
    ("Got the time for Madrid?", TIME, "Madrid"),
    ("Tell me what time it is in Rio de Janeiro.", TIME, "Rio de Janeiro"),
    ("Is it night time in Sydney?", TIME, "Sydney"),
    ("local time new york", TIME, "new york"),
    ("Would it be too early to phone someone in Singapore?", TIME, "Singapore"),
    ("Please check the clock in Cairo.", TIME, "Cairo"),
    ("It's noon here. What's the time in Mexico City?", TIME, "Mexico City"),
    ("Which hour of the day is it in London?", TIME, "London"),
    ("Are people in Tokyo asleep at this time?", TIME, "Tokyo"),
]
SMALL_TALK = [
    "hello",
    "Hey, how is it going?",
    "Thanks a lot, goodbye!",
    "What's your name?",
    "Who made you?",
    "Tell me a funny story about a cat.",
]


@pytest.fixture
async def model() -> AsyncIterator[LocalLlm]:
    await asyncio.to_thread(local_files.pull, "smollm2-135m")
    model = LocalLlm()
    yield model
    await model.close()


async def call_for(model: LocalLlm, question: str) -> FunctionCall | None:
    declarations = [FunctionTool(tool)._get_declaration() for tool in (get_weather, get_current_time)]
    tool = Tool(function_declarations=[d for d in declarations if isinstance(d, FunctionDeclaration)])
    config = GenerateContentConfig(tools=[tool], max_output_tokens=1)
    request = LlmRequest(contents=[UserContent(question)], config=config)
    [response] = [response async for response in model.generate_content_async(request)]
    parts = (response.content.parts if response.content else None) or []
    return parts[0].function_call if parts else None


@pytest.mark.model
async def test_most_questions_get_the_right_tool_and_city(model: LocalLlm) -> None:
    wrong: list[str] = []
    for question, name, city in QUESTIONS:
        call = await call_for(model, question)
        if call is None or (call.name, (call.args or {}).get("city")) != (name, city):
            wrong.append(f"{question} → {call and (call.name, call.args)}")
    assert len(QUESTIONS) - len(wrong) >= 14, "\n".join(wrong)


@pytest.mark.model
async def test_small_talk_calls_nothing(model: LocalLlm) -> None:
    called = [text for text in SMALL_TALK if await call_for(model, text) is not None]
    assert len(called) <= 2, called
