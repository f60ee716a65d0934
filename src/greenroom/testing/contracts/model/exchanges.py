"""Requests reach the provider, and its answers come back, streamed or not."""

from __future__ import annotations

import asyncio
import base64
import json
import logging

import msgspec
import pytest

from greenroom.errors import MessageConversionError
from greenroom.records.base import JsonObject
from greenroom.records.content import (
    Blob,
    Content,
    FileData,
    FunctionCall,
    FunctionResponse,
    FunctionResponsePart,
    Part,
)
from greenroom.records.generation import FunctionCallingConfig, ThinkingConfig, ToolConfig
from greenroom.records.model_exchange import ContextCacheConfig
from greenroom.records.tool_declaration import FunctionDeclaration, Tool
from greenroom.testing.contracts.model.provider import (
    GET_WEATHER,
    PNG,
    TRIP,
    WEATHER_TOOLS,
    ModelProvider,
    _ask,
    _call,
    _calls,
    _has_said,
    _request,
    _response,
    _sent,
    _texts,
    _whole,
)


@pytest.mark.parametrize("stream", [False, True])
async def test_text(provider: ModelProvider, stream: bool) -> None:
    provider.say(Part(text="Good day to you, Zoë! 🎭\n\n\tReally."))
    response = await _whole(provider, _request(), stream=stream)
    assert _has_said(provider, [response], "Good day to you, Zoë! 🎭\n\n\tReally.")
    assert response.content == Content(role="model", parts=[Part(text=_texts([response]))])
    assert response.finish_reason == "STOP" or "scripted answers" in provider.lacks
    assert response.error_code is None
    assert response.model_version


@pytest.mark.parametrize("stream", [False, True])
async def test_usage(provider: ModelProvider, stream: bool) -> None:
    provider.say(Part(text="Hello"))
    usage = (await _whole(provider, _request(), stream=stream)).usage_metadata
    assert usage is not None

    if "scripted answers" in provider.lacks:
        prompt = usage.prompt_token_count or 0
        total = usage.total_token_count or 0
        answer = (usage.candidates_token_count or 0) + (usage.thoughts_token_count or 0)
        assert prompt > 0 < answer
        assert prompt + answer == total
        return

    assert (usage.prompt_token_count, usage.cached_content_token_count) == (10, 4)
    assert (usage.candidates_token_count or 0) + (usage.thoughts_token_count or 0) == 5
    assert usage.total_token_count == 15


async def test_streamed_text_comes_in_pieces(provider: ModelProvider) -> None:
    provider.say(Part(text="One two three four five six"))
    *partials, complete = await _ask(provider, _request("Count to forty in words."), stream=True)
    assert len(partials) > 1
    assert _texts(partials) == _texts([complete])
    assert _has_said(provider, [complete], "One two three four five six")


_SAYINGS: list[tuple[list[Part], str]] = [
    ([Part(text="Hello there")], "STOP"),
    ([Part(text="Hello there, and")], "MAX_TOKENS"),
    ([], "SAFETY"),
    ([Part(text="Let me see."), _call("call_a", "Oslo"), _call("call_b", "Rome")], "STOP"),
    ([_call("call_a", 'Ørsta 🎭 "quoted" \\ back')], "STOP"),
    ([Part(text="Hm.", thought=True, thought_signature=b"c2lnbmVk"), Part(text="Yes.")], "STOP"),
    ([Part(text="Hm.", thought=True, thought_signature=b"c2lnbmVk"), _call("call_a", "Oslo")], "STOP"),
]


@pytest.mark.parametrize(
    "saying", _SAYINGS, ids=["text", "cut", "safety", "calls", "quotes", "thought", "thought, call"]
)
async def test_the_streamed_whole_equals_the_unstreamed(
    provider: ModelProvider, saying: tuple[list[Part], str]
) -> None:
    parts, finish_reason = saying
    if "thinking" in provider.lacks and any(part.thought for part in parts):
        parts = [part for part in parts if not part.thought]
    provider.say(*parts, finish_reason=finish_reason)
    request = _request(tools=WEATHER_TOOLS)
    assert await _whole(provider, request) == await _whole(provider, request, stream=True)


async def test_system_instruction_and_roles(provider: ModelProvider) -> None:
    provider.say(Part(text="Sure."))
    await _whole(
        provider,
        _request("First question", Content(role="model", parts=[Part(text="First answer")]), "Second question",
                 system_instruction="Be brief and kind."),
    )  # fmt: skip
    sent = _sent(provider)
    assert "Be brief and kind." in sent
    assert -1 < sent.index("First question") < sent.index("First answer") < sent.index("Second question")


async def test_settings_are_sent_or_logged(
    provider: ModelProvider,
    caplog: pytest.LogCaptureFixture,
) -> None:
    provider.say(Part(text="Sure."))
    settings: JsonObject = {
        "temperature": 0.25, "top_p": 0.75, "top_k": 17, "max_output_tokens": 4321, "stop_sequences": ["ENOUGH"],
        "seed": 77, "presence_penalty": 0.125, "frequency_penalty": 0.375,
    }  # fmt: skip
    with caplog.at_level(logging.WARNING, logger="greenroom.models"):
        await _whole(provider, _request(**settings))

    for name, value in settings.items():
        sent = "ENOUGH" if name == "stop_sequences" else str(value)
        assert sent in _sent(provider) or repr(name) in caplog.text or name in _ignored, name
        _ignored.update({name} if repr(name) in caplog.text else ())


_ignored: set[str] = set()
"""Settings that a model of this process warned of: once for each."""


@pytest.mark.parametrize("stream", [False, True])
async def test_tools_are_declared_and_called(provider: ModelProvider, stream: bool) -> None:
    provider.say(_call("call_a", "Oslo"))
    request = _request("Weather?", tools=WEATHER_TOOLS)
    [call] = _calls(await _whole(provider, request, stream=stream))
    assert (call.id, call.name, call.args) == ("call_a", "get_weather", {"city": "Oslo"})
    assert not call.partial_args
    assert not call.will_continue
    for said in ("get_weather", "Current weather of a city.", "Its name.", '"required": ["city"]'):
        assert said in _sent(provider)


async def test_streamed_calls_announce_themselves(provider: ModelProvider) -> None:
    """Partial calls have the id of the whole one, and aren't complete."""
    provider.say(_call("call_a", "Oslo"))
    *partials, complete = await _ask(provider, _request(tools=WEATHER_TOOLS), stream=True)
    announced = [call for partial in partials for call in _calls(partial)]
    assert announced
    assert {call.id for call in announced} == {_calls(complete)[0].id}


@pytest.mark.parametrize("stream", [False, True])
async def test_parallel_calls_and_their_responses(provider: ModelProvider, stream: bool) -> None:
    if "parallel calls" in provider.lacks:
        pytest.skip("calls one tool at a time")

    provider.say(
        Part(text="Let me see."),
        _call("call_a", "Oslo"),
        _call("call_b", "Rome"),
        _call("call_c", "Oslo"),
    )
    called = await _whole(provider, _request("Weather?", tools=WEATHER_TOOLS), stream=stream)
    assert called.content is not None
    assert [call.args for call in _calls(called)] == [{"city": "Oslo"}, {"city": "Rome"}, {"city": "Oslo"}]
    ids = [call.id for call in _calls(called)]
    assert len(set(ids)) == 3
    provider.say(Part(text="Cold, hot, cold."))
    answers = Content(
        role="user", parts=[_response(call_id, n) for n, call_id in zip((101, 102, 103), ids, strict=True)]
    )
    await _whole(
        provider,
        _request("Weather?", called.content, answers, tools=WEATHER_TOOLS),
        stream=stream,
    )
    sent = _sent(provider)
    assert sent.index("Let me see.") < sent.index("Rome") < sent.index("101") < sent.index("102") < sent.index("103")


async def test_calls_without_ids_or_with_strange_ones_are_answered(provider: ModelProvider) -> None:
    calls = Content(role="model", parts=[_call("", "Oslo"), _call("adk-1:2/3 x", "Rome")])
    answers = Content(role="user", parts=[_response(None, 101), _response("adk-1:2/3 x", 102)])
    provider.say(Part(text="Fine."))
    whole = await _whole(provider, _request("Weather?", calls, answers, tools=WEATHER_TOOLS))
    assert _has_said(provider, [whole], "Fine.")


async def test_calls_without_arguments(provider: ModelProvider) -> None:
    provider.say(Part(function_call=FunctionCall(id="call_a", name="now", args={})))
    request = _request(tools=[Tool(function_declarations=[FunctionDeclaration(name="now", description="The time.")])])
    for stream in (False, True):
        [call] = _calls(await _whole(provider, request, stream=stream))
        assert (call.name, call.args) == ("now", {})


@pytest.mark.parametrize("mode", ["ANY", "NONE"])
async def test_tool_choice(provider: ModelProvider, mode: str) -> None:
    tools = [Tool(function_declarations=[GET_WEATHER, FunctionDeclaration(name="other", description="Another.")])]
    provider.say(Part(text="Fine."))
    await _whole(provider, _request(tools=tools))
    undecided = _sent(provider)
    calling = FunctionCallingConfig(mode=mode)
    await _whole(
        provider,
        _request(tools=tools, tool_config=ToolConfig(function_calling_config=calling)),
    )
    assert ("tool choice" in provider.lacks) == (_sent(provider) == undecided)


async def test_images(provider: ModelProvider) -> None:
    image = Part.from_bytes(data=PNG, mime_type="image/png")
    await _media(provider, image, base64.b64encode(PNG).decode(), feature="images")


async def test_images_by_url(provider: ModelProvider) -> None:
    image = Part.from_uri(file_uri="https://example.com/cat.jpg", mime_type="image/jpeg")
    await _media(provider, image, "https://example.com/cat.jpg", feature="image URLs")


async def test_documents(provider: ModelProvider) -> None:
    data = b"%PDF-1.7\n" + bytes(range(64))
    document = Part(inline_data=Blob(data=data, mime_type="application/pdf", display_name="plan.pdf"))
    await _media(provider, document, base64.b64encode(data).decode(), feature="documents")


async def test_video(provider: ModelProvider) -> None:
    data = b"\0\0\0\x18ftypmp42" + bytes(range(64))
    video = Part.from_bytes(data=data, mime_type="video/mp4")
    await _media(provider, video, base64.b64encode(data).decode(), feature="video")


async def test_files_that_no_model_can_read(provider: ModelProvider) -> None:
    file = Part(file_data=FileData(file_uri="ftp://example.com/tape", mime_type="application/x-tape"))
    await _media(provider, file, "ftp://example.com/tape", feature=None)


async def _media(provider: ModelProvider, part: Part, marker: str, *, feature: str | None) -> None:
    """Media that the model can't take are refused when they are new, and named when they are old."""
    provider.say(Part(text="A cat."))

    question = Content(role="user", parts=[Part(text="What is this?"), part])
    if feature is not None and feature not in provider.lacks:
        await _whole(provider, _request(question))
        assert marker in _sent(provider).replace("_", "/").replace("-", "+") or marker in _sent(provider)
        return

    refusal = None
    try:
        await _whole(provider, _request(question))
    except MessageConversionError as error:
        refusal = error.detail

    if refusal is None and feature is None:
        assert marker in _sent(provider)
        return

    media = part.inline_data or part.file_data
    assert media is not None
    assert str(media.mime_type) in (refusal or "")
    await _whole(
        provider,
        _request(question, Content(role="model", parts=[Part(text="A cat.")]), "Sure?"),
    )


async def test_media_in_function_responses(provider: ModelProvider) -> None:
    if "images" in provider.lacks:
        pytest.skip("takes no images")

    provider.say(Part(text="A cat."))
    response = FunctionResponse(
        id="call_a",
        name="get_weather",
        response={"status": "drawn"},
        parts=[FunctionResponsePart(inline_data=Blob(data=PNG, mime_type="image/png"))],
    )
    answer = Content(role="user", parts=[Part(function_response=response)])
    calls = Content(role="model", parts=[_call("call_a", "Oslo")])
    await _whole(provider, _request("Draw it", calls, answer, tools=WEATHER_TOOLS))
    assert "drawn" in _sent(provider)
    assert base64.b64encode(PNG).decode() in _sent(provider).replace("_", "/").replace("-", "+")


@pytest.mark.parametrize("stream", [False, True])
async def test_thoughts_and_their_signatures_are_sent_back_as_they_came(
    provider: ModelProvider,
    stream: bool,
) -> None:
    if "thinking" in provider.lacks:
        pytest.skip("keeps its thoughts to itself")

    signature = base64.b64encode(bytes(range(256)))
    provider.say(
        Part(text="The user is polite.", thought=True, thought_signature=signature),
        _call("call_a", "Oslo"),
    )
    thinking = ThinkingConfig(include_thoughts=True, thinking_level="LOW")
    responses = await _ask(
        provider,
        _request(thinking_config=thinking, tools=WEATHER_TOOLS),
        stream=stream,
    )
    assert _texts(responses[-1:], thought=True) == "The user is polite."
    assert not stream or _texts(responses[:-1], thought=True) == "The user is polite."
    content = responses[-1].content
    assert content is not None
    stored = msgspec.json.decode(msgspec.json.encode(content), type=Content)
    answer = Content(role="user", parts=[_response(_calls(responses[-1])[0].id, 3)])
    provider.say(Part(text="Cold."))
    await _whole(
        provider,
        _request("Hi", stored, answer, thinking_config=thinking, tools=WEATHER_TOOLS),
    )
    sent = _sent(provider)
    assert signature.decode() in sent or base64.b64encode(signature).decode() in sent.replace("_", "/").replace(
        "-", "+"
    )


async def test_output_schema(provider: ModelProvider) -> None:
    provider.say(Part(text='{"city": "Oslo", "days": 3}'))

    request = _request(
        "Where to?",
        response_schema=TRIP,
        response_mime_type="application/json",
        max_output_tokens=1000,
    )
    for stream in (False, True):
        trip = json.loads(_texts([await _whole(provider, request, stream=stream)]))
        assert set(trip) == {"city", "days"}
        assert trip == {"city": "Oslo", "days": 3} or "scripted answers" in provider.lacks
        assert '"days"' in _sent(provider)


async def test_output_schema_together_with_tools(provider: ModelProvider) -> None:
    provider.say(Part(text='{"city": "Oslo", "days": 3}'))

    request = _request(
        "Where to?",
        tools=WEATHER_TOOLS,
        response_schema=TRIP,
        response_mime_type="application/json",
    )
    if "schema with tools" in provider.lacks:
        with pytest.raises(MessageConversionError):
            await _whole(provider, request)
        return

    await _whole(provider, request)
    assert '"days"' in _sent(provider)
    assert "get_weather" in _sent(provider)


async def test_json_without_schema(provider: ModelProvider) -> None:
    provider.say(Part(text="[]"))
    await _whole(provider, _request())
    plain = _sent(provider)
    await _whole(provider, _request(response_mime_type="application/json"))
    assert _sent(provider) != plain


async def test_built_in_tools(provider: ModelProvider) -> None:
    provider.say(Part(text="Found."))

    request = _request("News?", tools=[Tool(google_search={})])
    if "built-in tools" in provider.lacks:
        with pytest.raises(MessageConversionError, match="google_search"):
            await _whole(provider, request)
        return

    await _whole(provider, request)
    assert "search" in _sent(provider).lower()


@pytest.mark.parametrize("stream", [False, True])
async def test_a_context_cache(provider: ModelProvider, stream: bool) -> None:
    """Runs with the app's `cache_config` are answered as without, and their stable prefix is marked
    or left out.
    """
    provider.say(Part(text="Sure."))

    contents: list[Content | str] = ["First question"]
    cache_metadata: JsonObject | None = None
    for question in ("Second question", "Third question", "Fourth question"):
        contents += [Content(role="model", parts=[Part(text="First answer")]), question]
        request = _request(*contents, system_instruction="Be brief. " * 5000)
        request.cache_config = ContextCacheConfig()
        request.cache_metadata = cache_metadata
        request.cacheable_contents_token_count = 50_000
        response = await _whole(provider, request, stream=stream)
        cache_metadata = response.cache_metadata
        assert _texts([response]) == "Sure."
        assert response.usage_metadata is not None
        assert response.usage_metadata.cached_content_token_count == 4
        assert question in _sent(provider)

    assert ("context cache" in provider.lacks) == ("cache" not in _sent(provider).lower())


@pytest.mark.parametrize("stream", [False, True])
async def test_an_empty_reply_is_one_response_without_text(
    provider: ModelProvider,
    stream: bool,
) -> None:
    provider.say()
    responses = await _ask(provider, _request(), stream=stream)
    assert _texts(responses) == ""
    assert [response for response in responses if not response.partial] == responses[-1:]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_safety_stop(provider: ModelProvider, stream: bool) -> None:
    provider.say(finish_reason="SAFETY")
    whole = await _whole(provider, _request(), stream=stream)
    assert (whole.error_code, whole.finish_reason) == ("SAFETY", "SAFETY")
    assert whole.error_message


@pytest.mark.parametrize("other", ["anthropic", "openai", None])
async def test_the_history_of_another_model_is_accepted(
    provider: ModelProvider,
    other: str | None,
) -> None:
    """The history changes models in the middle of a tool loop: thoughts and signatures of the other model mean nothing
    here.
    """
    if other is not None and other == provider.metadata_key and "scripted answers" in provider.lacks:
        pytest.skip("a real service refuses invented blocks of its own")

    if other:
        metadata = {other: {"type": "thinking", "id": "rs_1"}}
    else:
        metadata = None

    thought = Part(
        text="Hm.",
        thought=True,
        thought_signature=b"foreign-signature",
        part_metadata=metadata,
    )

    if other:
        block = Part(part_metadata={other: {"type": "foreign-block"}})
    else:
        block = Part(text="")

    calls = Content(
        role="model",
        parts=[thought, block, Part(text="Let me see."), _call("toolu_1", "Oslo")],
    )
    if other is None:
        calls.parts = [part for part in calls.parts or () if not part.thought]

    provider.say(Part(text="Cold."))
    answer = Content(role="user", parts=[_response("toolu_1", 101)])

    if "thinking" in provider.lacks:
        thinking = None
    else:
        thinking = ThinkingConfig(thinking_budget=2048)

    response = await _whole(
        provider,
        _request("Weather?", calls, answer, tools=WEATHER_TOOLS, thinking_config=thinking),
    )
    assert _has_said(provider, [response], "Cold.")

    if provider.metadata_key != other:
        assert "foreign" not in _sent(provider)
        assert base64.b64encode(b"foreign-signature").decode() not in _sent(provider)

    assert _sent(provider).index("Let me see.") < _sent(provider).index("101")


async def test_a_request_is_not_changed(provider: ModelProvider) -> None:
    provider.say(Part(text="Sure."))
    request = _request(
        Content(role="user", parts=[Part(text="Hi"), Part.from_bytes(data=PNG, mime_type="image/png")])
        if "images" not in provider.lacks
        else "Hi",
        Content(role="model", parts=[_call("", "Oslo")]),
        Content(role="user", parts=[_response(None, 1)]),
        tools=WEATHER_TOOLS,
        system_instruction="Be brief.",
    )
    request.model = provider.model.model
    before = msgspec.json.encode(request)
    await _ask(provider, request)
    assert msgspec.json.encode(request) == before


async def test_one_model_answers_many_at_once(provider: ModelProvider) -> None:
    provider.say(Part(text="Hello there"))
    answers = await asyncio.gather(*(_whole(provider, _request(), stream=bool(n % 2)) for n in range(4)))
    assert all(_has_said(provider, [answer], "Hello there") for answer in answers)
