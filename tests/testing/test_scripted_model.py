from __future__ import annotations

import asyncio

import pytest

from greenroom.errors import ModelError
from greenroom.records.content import Content, FunctionCall, Part, UserContent
from greenroom.records.generation import GenerateContentConfig
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from greenroom.testing.scripted_model import Fails, Said, ScriptedModel


def request(text: str = "Hi", system: str | None = None, **labels: str) -> LlmRequest:
    config = GenerateContentConfig(system_instruction=system, labels=labels or None)
    return LlmRequest(contents=[UserContent(text)], config=config)


async def responses(
    model: ScriptedModel, asked: LlmRequest | None = None, *, stream: bool = False
) -> list[LlmResponse]:
    return [response async for response in model.generate_content_async(asked or request(), stream)]


async def text(model: ScriptedModel, asked: LlmRequest | None = None) -> str:
    [response] = await responses(model, asked)
    assert response.content is not None
    return response.content.text()


async def test_turns_come_in_order_and_run_out() -> None:
    model = ScriptedModel(["one", LlmResponse(content=Content(role="model", parts=[Part(text="two")]))])
    assert [await text(model), await text(model)] == ["one", "two"]
    with pytest.raises(ModelError, match="has 2 turns, and this is request 3: 'And now"):
        await text(model, request("And now?"))


async def test_a_loop_begins_again() -> None:
    model = ScriptedModel(["one", "two"], loop=True)
    assert [await text(model) for _ in range(5)] == ["one", "two", "one", "two", "one"]


async def test_streaming_gives_words_and_then_the_whole() -> None:
    *partials, whole = await responses(ScriptedModel(["Good day to you"]), stream=True)
    assert [p.content.text() for p in partials if p.content] == ["Good ", "day ", "to ", "you"]
    assert all(partial.partial for partial in partials)
    assert whole.content == Content(role="model", parts=[Part(text="Good day to you")])
    assert whole.partial is None


async def test_chunks_are_cut_as_asked() -> None:
    by_length = await responses(ScriptedModel(["abcde"], chunks=2), stream=True)
    assert [r.content.text() for r in by_length if r.content] == ["ab", "cd", "e", "abcde"]
    by_function = await responses(ScriptedModel(["a|b"], chunks=lambda said: said.split("|")), stream=True)
    assert [r.content.text() for r in by_function if r.content] == ["a", "b", "a|b"]


async def test_calls_come_whole_and_are_new_each_time() -> None:
    call = FunctionCall(name="get_weather", args={"city": "Oslo"})
    model = ScriptedModel([[Part(text="Let me see."), call], call])
    *partials, whole = await responses(model, stream=True)
    assert len(partials) == 3
    assert whole.content is not None
    assert whole.content.parts == [Part(text="Let me see."), Part(function_call=call)]
    [again] = await responses(model)
    assert again.content is not None
    assert again.content.parts is not None
    assert again.content.parts[0].function_call == call
    assert again.content.parts[0].function_call is not call


async def test_functions_see_the_request() -> None:
    async def shout(asked: LlmRequest) -> Said:
        return asked.contents[-1].text().upper()

    assert await text(ScriptedModel([shout, lambda asked: asked.contents[-1].text()[::-1]])) == "HI"
    endless = ScriptedModel(shout)
    assert [await text(endless, request("a")), await text(endless, request("b"))] == ["A", "B"]


async def test_an_error_is_raised_in_its_turn() -> None:
    error = ModelError("overloaded", model="scripted", retryable=True)
    model = ScriptedModel([error, "better"])
    with pytest.raises(ModelError) as caught:
        await responses(model)
    assert caught.value is error
    assert await text(model) == "better"


@pytest.mark.parametrize("chunks", [0, 2])
async def test_a_stream_can_break_off(chunks: int) -> None:
    model = ScriptedModel([Fails(error=RuntimeError("gone"), after_chunks=chunks, text="one two three")])
    answer = aiter(model.generate_content_async(request(), True))
    for expected in ["one ", "two "][:chunks]:
        partial = await anext(answer)
        assert partial.content == Content(role="model", parts=[Part(text=expected)])
    with pytest.raises(RuntimeError, match="gone"):
        await anext(answer)


async def test_a_script_per_agent() -> None:
    model = ScriptedModel({"clerk": ["clerk 1", "clerk 2"], "boss": ["boss 1"], "": ["somebody"]})
    assert await text(model, request(system='You are the agent "boss".')) == "boss 1"
    assert await text(model, request(adk_agent_name="clerk")) == "clerk 1"
    assert await text(model, request(system="You are nobody.")) == "somebody"
    assert await text(model, request(system='You are the agent "clerk".')) == "clerk 2"
    with pytest.raises(ModelError, match="for the agent 'boss' has 1 turns"):
        await text(model, request(system='You are the agent "boss".'))


async def test_requests_are_kept_as_they_were() -> None:
    model = ScriptedModel(["one", "two"])
    asked = request("first")
    await responses(model, asked)
    asked.contents.append(UserContent("second"))
    asked.config.append_system_text("Be kind.")
    await responses(model, asked)
    assert [[content.text() for content in seen.contents] for seen in model.requests] == [
        ["first"],
        ["first", "second"],
    ]
    assert [seen.config.system_text() for seen in model.requests] == ["", "Be kind."]


async def test_delay_comes_before_each_chunk() -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    await responses(ScriptedModel(["a b c"], delay=0.01), stream=True)
    assert loop.time() - began >= 0.03
