from __future__ import annotations

import asyncio
import json
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from greenroom.errors import MessageConversionError, MissingExtra, ModelError
from greenroom.models.local.conversation import (
    chat_messages,
    grounded,
    open_question,
    without_media,
    without_oldest_turn,
)
from greenroom.models.local.llm import LocalLlm
from greenroom.models.local.tools import candidates
from greenroom.records.answer_metadata import FinishReason
from greenroom.records.base import JsonObject
from greenroom.records.content import (
    Blob,
    Content,
    FileData,
    FunctionCall,
    FunctionResponse,
    FunctionResponsePart,
    ModelContent,
    Part,
    UserContent,
)
from greenroom.records.generation import FunctionCallingConfig, GenerateContentConfig, ToolConfig
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from greenroom.records.tool_declaration import FunctionDeclaration, Tool

needs_model = pytest.mark.model


@pytest.fixture(scope="session")
def model(model_file: Path) -> Iterator[LocalLlm]:
    """One for all tests, though each has an event loop of its own: what it has read once it needn't read again."""
    made = LocalLlm(f"local/{model_file}")
    yield made
    asyncio.run(made.close())


def declaration(name: str, description: str, **properties: JsonObject) -> FunctionDeclaration:
    required = [name for name, schema in properties.items() if "default" not in schema]
    schema = {"type": "object", "properties": properties, "required": required}
    return FunctionDeclaration(name=name, description=description, parameters_json_schema=schema)


def request(
    *contents: str | Content, declarations: list[FunctionDeclaration] | None = None, **config: Any
) -> LlmRequest:
    tools = [Tool(function_declarations=declarations)] if declarations else None
    return LlmRequest(
        contents=[UserContent(c) if isinstance(c, str) else c for c in contents],
        config=GenerateContentConfig(tools=tools, **config),
    )


async def responses(model: LocalLlm, asked: LlmRequest, *, stream: bool = False) -> list[LlmResponse]:
    async with asyncio.timeout(60):
        return [response async for response in model.generate_content_async(asked, stream)]


async def text(model: LocalLlm, asked: LlmRequest) -> str:
    [response] = await responses(model, asked)
    assert response.content is not None
    return response.content.text()


async def call(model: LocalLlm, asked: LlmRequest) -> FunctionCall | None:
    [response] = await responses(model, asked)
    parts = (response.content.parts if response.content else None) or []
    return parts[0].function_call if parts else None


@needs_model
async def test_streaming_gives_new_text_and_then_the_whole(model: LocalLlm) -> None:
    asked = request("Tell me about the sea.", max_output_tokens=24)
    *partials, whole = await responses(model, asked, stream=True)
    assert len(partials) > 10
    assert all(partial.partial for partial in partials)
    assert whole.content is not None
    assert "".join(p.content.text() for p in partials if p.content) == whole.content.text()
    assert (whole.partial, whole.finish_reason) == (None, FinishReason.MAX_TOKENS)
    usage = whole.usage_metadata
    assert usage is not None
    assert usage.candidates_token_count == 24
    assert (usage.total_token_count or 0) == (usage.prompt_token_count or 0) + 24
    assert await text(model, asked) == whole.content.text()


@needs_model
async def test_settings_are_respected(model: LocalLlm) -> None:
    warm: dict[str, Any] = {"temperature": 1.5, "max_output_tokens": 12, "top_p": 0.99, "top_k": 60.0}
    one, same, other = [await text(model, request("Sing!", seed=seed, **warm)) for seed in (1, 1, 2)]
    assert one == same != other
    [stopped] = await responses(model, request("Count: 1, 2, 3, 4", stop_sequences=[","], max_output_tokens=40))
    assert stopped.content is not None
    assert "," not in stopped.content.text()
    assert stopped.finish_reason == FinishReason.STOP


@needs_model
async def test_an_output_schema_holds(model: LocalLlm) -> None:
    schema = {
        "type": "object",
        "properties": {"mood": {"enum": ["good", "bad"]}, "stars": {"type": "integer", "minimum": 1, "maximum": 5}},
        "required": ["mood", "stars"],
        "additionalProperties": False,
    }
    ways: list[dict[str, Any]] = [{"response_schema": schema}, {"response_json_schema": schema}]
    for config in ways:
        answer = json.loads(await text(model, request("I loved that film!", **config)))
        assert answer["mood"] in ("good", "bad")
        assert 1 <= answer["stars"] <= 5


@needs_model
async def test_the_event_loop_is_never_blocked(model: LocalLlm) -> None:
    longest = 0.0

    async def watch() -> None:
        nonlocal longest
        loop = asyncio.get_running_loop()
        while True:
            before = loop.time()
            await asyncio.sleep(0.005)
            longest = max(longest, loop.time() - before)

    watcher = asyncio.create_task(watch())
    began_at = time.monotonic()
    declarations = [declaration("get_weather", "Current weather of a city.", city={"type": "string"})]
    await responses(model, request("Is it warm in Rome?", declarations=declarations))
    await responses(model, request("Tell me about the sea.", max_output_tokens=40), stream=True)
    watcher.cancel()
    assert longest < 0.2 * (time.monotonic() - began_at)


@needs_model
async def test_cancelling_stops_the_generation(model_file: Path) -> None:
    model = LocalLlm(f"local/{model_file}", context_tokens=4000)
    has_begun = asyncio.Event()

    async def read() -> None:
        async for _ in model.generate_content_async(request("Tell a long story.", max_output_tokens=3000), True):
            has_begun.set()

    task = asyncio.create_task(read())
    async with asyncio.timeout(30):
        await has_begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        # A thread that is still generating would keep this from returning.
        await model.close()


@needs_model
async def test_requests_at_once_don_t_mix(model: LocalLlm) -> None:
    questions = [f"Tell me about the number {n}." for n in range(6)]
    alone = [await text(model, request(question, max_output_tokens=10)) for question in questions]
    together = await asyncio.gather(*(responses(model, request(q, max_output_tokens=10)) for q in questions))
    assert len(set(alone)) > 1
    for [response], expected in zip(together, alone, strict=True):
        assert response.content is not None
        # Rounding differs with the size of a batch, so that only the beginning is sure to be the same.
        assert response.content.text()[:10] == expected[:10]


@needs_model
async def test_one_file_is_loaded_once(model_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []
    library: Any = pytest.importorskip("xllamacpp")
    server: Any = library.Server

    def load(params: Any) -> Any:
        made = server(params)
        loaded.append(made.listening_address)
        return made

    monkeypatch.setattr(library, "Server", load)
    one, other = (LocalLlm(f"local/{model_file}", context_tokens=600) for _ in range(2))
    asked = request("Hi", max_output_tokens=2)
    await asyncio.gather(text(one, asked), text(other, asked))
    await one.close()
    assert await text(other, asked)
    assert len(loaded) == 1
    await other.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((loaded[0].split(":")[1].strip("/"), int(loaded[0].rpartition(":")[2])))
    assert await text(one, asked)
    assert len(loaded) == 2
    await one.close()


@needs_model
async def test_a_long_conversation_loses_its_oldest_turns(model_file: Path) -> None:
    model = LocalLlm(f"local/{model_file}", context_tokens=512)
    turns: list[str | Content] = []
    for number in range(20):
        turns += [f"Note {number}: " + "the sea is wide and blue. " * 8, ModelContent("Noted.")]
    [response] = await responses(model, request(*turns, "Goodbye!", system_instruction="Be kind.", max_output_tokens=9))
    usage = response.usage_metadata
    assert usage is not None
    assert 250 < (usage.prompt_token_count or 0) <= 503
    with pytest.raises(ModelError, match="has room for"):
        await responses(model, request("the sea is wide and blue. " * 200))
    await model.close()


async def test_a_model_that_isn_t_there_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GREENROOM_CACHE_DIR", str(tmp_path))
    model = LocalLlm()
    with pytest.raises(ModelError, match="greenroom models pull smollm2-135m"):
        await responses(model, request("Hi"))
    await model.close()


async def test_without_the_library_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    model = LocalLlm(f"local/{tmp_path}/any.gguf")
    with pytest.raises(MissingExtra, match=r"greenroom\[local\]"):
        await responses(model, request("Hi"))
    await model.close()


async def test_a_file_that_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "broken.gguf").write_bytes(b"GGUF nonsense")
    model = LocalLlm(f"local/{tmp_path}/broken.gguf")
    with pytest.raises(ModelError, match=r"broken\.gguf can't be loaded"):
        await responses(model, request("Hi"))
    await model.close()


SHOP = [
    declaration("lookup_order", "Look up the status of an order.", order_id={"type": "string"}),
    declaration(
        "refund_order",
        "Refund the money of an order to the customer.",
        order_id={"type": "string"},
        reason={"type": "string", "enum": ["damaged", "late", "unwanted"], "default": "unwanted"},
    ),
    declaration("escalate", "Hand the conversation over to a human agent."),
]


@needs_model
@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("What's the status of order A-1003?", FunctionCall(name="lookup_order", args={"order_id": "A-1003"})),
        (
            "Order 93 came damaged, please refund it",
            FunctionCall(name="refund_order", args={"order_id": "93", "reason": "damaged"}),
        ),
        ("Let me speak with a real person please", FunctionCall(name="escalate", args={})),
        ("Hi there", None),
    ],
)
async def test_tools_of_a_shop(model: LocalLlm, question: str, expected: FunctionCall | None) -> None:
    assert await call(model, request(question, declarations=SHOP, max_output_tokens=2)) == expected


@needs_model
async def test_a_call_comes_alone_even_when_streaming(model: LocalLlm) -> None:
    [response] = await responses(model, request("Where is order 4711?", declarations=SHOP), stream=True)
    assert response.partial is None
    assert response.finish_reason == FinishReason.STOP
    assert response.usage_metadata is not None


@needs_model
async def test_arguments_of_all_kinds_follow_their_schema(model: LocalLlm) -> None:
    convert = declaration(
        "convert_money",
        "Convert an amount of money into another currency.",
        amount={"type": "number"},
        currency={"$ref": "#/$defs/Currency"},
        exact={"type": "boolean"},
        tags={"type": "array", "items": {"type": "string"}, "maxItems": 2},
        note={"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
    )
    assert convert.parameters_json_schema is not None
    convert.parameters_json_schema["$defs"] = {"Currency": {"type": "string", "enum": ["euro", "dollar", "yen"]}}
    forced = ToolConfig(function_calling_config=FunctionCallingConfig(mode="ANY"))
    asked = request("How much is 1,250.50 in yen?", declarations=[convert], tool_config=forced)
    called = await call(model, asked)
    assert called is not None
    assert called.args is not None
    assert (called.args["amount"], called.args["currency"]) == (1250.5, "yen")
    assert isinstance(called.args["exact"], bool)
    assert isinstance(called.args["tags"], list)
    assert "note" not in called.args


@needs_model
async def test_calling_modes(model: LocalLlm) -> None:
    def mode(name: str, *allowed: str) -> ToolConfig:
        calling = FunctionCallingConfig(mode=name, allowed_function_names=list(allowed) or None)
        return ToolConfig(function_calling_config=calling)

    never = request("Where is order 4711?", declarations=SHOP, tool_config=mode("NONE"), max_output_tokens=2)
    assert await call(model, never) is None
    only = request("Where is order 4711?", declarations=SHOP, tool_config=mode("ANY", "escalate"))
    assert await call(model, only) == FunctionCall(name="escalate", args={})


BILLING, TRAVEL = "Handles invoices, payments and bank details.", "Books flights, trains and hotels."
TRANSFER = declaration(
    "transfer_to_agent",
    "Hands the conversation over to another agent.",
    agent_name={"type": "string", "enum": ["billing", "travel_desk"]},
)


@needs_model
@pytest.mark.parametrize(
    "system",
    [
        f"You can hand over to:\n- billing: {BILLING}\n- travel_desk: {TRAVEL}\nCall `transfer_to_agent` to do so.",
        f"Agent name: billing\nAgent description: {BILLING}\n\nAgent name: travel_desk\nAgent description: {TRAVEL}\n",
    ],
)
@pytest.mark.parametrize(
    ("question", "agent"),
    [
        ("I have a question about my last invoice", "billing"),
        ("Why was my credit card charged twice?", "billing"),
        ("I need a hotel in Lisbon for next week", "travel_desk"),
        ("hello", None),
    ],
)
async def test_handing_over(model: LocalLlm, system: str, question: str, agent: str | None) -> None:
    asked = request(question, declarations=[TRANSFER], system_instruction=system, max_output_tokens=2)
    called = await call(model, asked)
    assert called == (agent and FunctionCall(name="transfer_to_agent", args={"agent_name": agent}))


@needs_model
async def test_a_question_isn_t_handed_round_in_circles(model: LocalLlm) -> None:
    retold = UserContent(
        ["For context:", "[root] called tool `transfer_to_agent` with parameters: {'agent_name': 'billing'}"]
    )
    asked = request(
        "Book me a hotel in Lisbon",
        retold,
        declarations=[TRANSFER],
        system_instruction=f"- billing: {BILLING}\n- travel_desk: {TRAVEL}",
        max_output_tokens=4,
    )
    assert await call(model, asked) is None


@needs_model
async def test_results_become_an_answer_that_holds_them(model: LocalLlm) -> None:
    weather = {"city": "Oslo", "condition": "light snow", "temperature": 4, "unit": "celsius"}
    asked = request(
        "What's the weather in Oslo?",
        ModelContent([Part.from_function_call(name="get_weather", args={"city": "Oslo"})]),
        UserContent([Part.from_function_response(name="get_weather", response=weather)]),
        declarations=[declaration("get_weather", "Current weather of a city.", city={"type": "string"})],
    )
    *partials, whole = await responses(model, asked, stream=True)
    assert whole.content is not None
    answer = whole.content.text()
    assert "light snow" in answer
    assert "4" in answer
    assert "".join(p.content.text() for p in partials if p.content) == answer


@needs_model
@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ({"error": "I have no weather for Atlantis"}, "Sorry, that didn't work: I have no weather for Atlantis."),
        ({"result": "The order left our warehouse on Monday."}, "The order left our warehouse on Monday."),
        ({"result": 84}, "The answer is 84."),
        ({}, "Done: get weather."),
    ],
)
async def test_plain_results_are_passed_on(model: LocalLlm, response: JsonObject, answer: str) -> None:
    asked = request("Well?", UserContent([Part.from_function_response(name="get_weather", response=response)]))
    assert await text(model, asked) == answer


def test_an_answer_stands_only_on_facts() -> None:
    facts = [("city", "Oslo"), ("temperature", "4"), ("condition", "light snow")]
    whole = "Oslo has light snow at 4 degrees."
    listed = "Here is what I found: city: Oslo, temperature: 4, condition: light snow."
    assert grounded(whole, "Weather in Oslo?", facts) == whole
    assert grounded("It is 4 degrees.", "Weather in Oslo?", facts) == "It is 4 degrees (condition: light snow)."
    assert grounded("It is 14 degrees with light snow.", "Weather in Oslo?", facts) == listed
    assert grounded("Oslo is a city.", "Weather in Oslo?", facts) == listed
    assert grounded("No, it is 4 with light snow.", "Weather in Oslo?", facts) == listed


def test_the_open_question_is_the_users_own() -> None:
    question = open_question(
        [
            UserContent("What time is it in Rome?"),
            ModelContent("It is noon."),
            UserContent("And in Oslo?"),
            UserContent(["For context:", "[root] said: I will ask the clerk."]),
            ModelContent([Part.from_function_call(name="get_time", args={"city": "Oslo"})]),
            UserContent([Part.from_function_response(name="get_time", response={"time": "12:00"})]),
        ]
    )
    assert (question.text, question.earlier) == ("And in Oslo?", "What time is it in Rome?")
    assert "[root] said" in question.retold
    assert [result.response for result in question.results] == [{"time": "12:00"}]


def test_messages_alternate_and_the_oldest_turn_goes_first() -> None:
    messages = chat_messages("Be kind.", [UserContent("a"), UserContent("b"), ModelContent("c"), UserContent("d")])
    assert messages == [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "a\nb"},
        {"role": "assistant", "content": "c"},
        {"role": "user", "content": "d"},
    ]
    assert without_oldest_turn(messages) == [messages[0], messages[3]]
    assert without_oldest_turn([messages[0], messages[3]]) is None


def test_described_values_of_a_choice_are_candidates_of_their_own() -> None:
    found = candidates([TRANSFER], system=f"- billing: {BILLING}\n- travel_desk: {TRAVEL}", is_tool_required=True)
    assert [(candidate.task, candidate.args) for candidate in found] == [
        (f"Billing: {BILLING}", {"agent_name": "billing"}),
        (f"Travel desk: {TRAVEL}", {"agent_name": "travel_desk"}),
    ]


IMAGE = Part(inline_data=Blob(data=b"png", mime_type="image/png", display_name="a.png"))
FILE = Part(file_data=FileData(file_uri="gs://desk/a.pdf", mime_type="application/pdf"))
SCREEN = FunctionResponsePart(inline_data=Blob(data=b"png", mime_type="image/png"))


@pytest.mark.parametrize(
    ("part", "named"),
    [
        (IMAGE, "image/png a.png"),
        (FILE, "application/pdf gs://desk/a.pdf"),
        (Part(function_response=FunctionResponse(name="look", response={}, parts=[SCREEN])), "image/png"),
    ],
)
async def test_media_are_refused_before_the_model_is_loaded(part: Part, named: str) -> None:
    model = LocalLlm("local/no-such-model")
    with pytest.raises(MessageConversionError, match=f"local/no-such-model takes no {named}"):
        await responses(model, request(UserContent([Part(text="What is this?"), part])))


async def test_built_in_tools_are_refused() -> None:
    asked = LlmRequest(contents=[UserContent("Hi")], config=GenerateContentConfig(tools=[Tool(google_search={})]))
    with pytest.raises(MessageConversionError, match="no built-in tool 'google_search'"):
        await responses(LocalLlm("local/no-such-model"), asked)


def test_media_of_earlier_turns_become_placeholders() -> None:
    earlier = UserContent([Part(text="Look:"), IMAGE])
    contents = without_media([earlier, ModelContent("A cat."), UserContent("Sure?")], model="local/x")
    assert [content.text().strip() for content in contents] == ["Look: [image/png a.png]", "A cat.", "Sure?"]
