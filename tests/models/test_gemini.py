"""Features of Gemini only: its two backends, streamed arguments by path, blocked prompts, grounding."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from google.oauth2.credentials import Credentials

from greenroom.errors import MessageConversionError, ModelError
from greenroom.models.gemini.llm import Gemini
from greenroom.models.partial_args import write_partial_args
from greenroom.records.content import Content, FunctionCall, FunctionResponse, Part, PartialArg, UserContent
from greenroom.records.generation import GenerateContentConfig, SafetySetting
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from greenroom.records.tool_declaration import Tool
from tests.models.wire.gemini import GeminiServer
from tests.models.wire.server import frame


@pytest.fixture
async def server() -> AsyncIterator[GeminiServer]:
    async with GeminiServer().serving() as running:
        yield running


@pytest.fixture
async def model(server: GeminiServer) -> AsyncIterator[Gemini]:
    made = Gemini("gemini-2.5-pro", api_key=server.secret, base_url=server.url, headers={"X-Team": "desk"})
    yield made
    await made.close()


async def answers(model: Gemini, *contents: Content, stream: bool = False, **config: Any) -> list[LlmResponse]:
    asked = list(contents) or [UserContent("Hi")]
    request = LlmRequest(model=model.model, contents=asked, config=GenerateContentConfig(**config))
    return [response async for response in model.generate_content_async(request, stream)]


async def test_the_gemini_api(server: GeminiServer, model: Gemini) -> None:
    await answers(model, system_instruction="Be brief.", labels={"team": "desk"}, top_k=3.0)
    assert server.paths[0].endswith("/models/gemini-2.5-pro:generateContent")
    assert server.headers[0]["x-goog-api-key"] == server.secret
    assert server.headers[0]["x-team"] == "desk"
    assert server.seen == [
        {
            "contents": [{"role": "user", "parts": [{"text": "Hi"}]}],
            "systemInstruction": {"role": "user", "parts": [{"text": "Be brief."}]},
            "generationConfig": {"topK": 3.0},
        }
    ]


async def test_vertex(server: GeminiServer) -> None:
    credentials = Credentials("token-1")  # type: ignore[no-untyped-call]
    backend: dict[str, Any] = {"vertexai": True, "project": "desk", "location": "eu-west1", "credentials": credentials}
    model = Gemini("gemini-2.5-pro", base_url=server.url, **backend)
    await answers(model, labels={"team": "desk"})
    path = "/v1beta1/projects/desk/locations/eu-west1/publishers/google/models/gemini-2.5-pro:generateContent"
    assert server.paths == [path]
    assert server.headers[0]["authorization"] == "Bearer token-1"
    assert server.seen[0]["labels"] == {"team": "desk"}
    await model.close()


@pytest.mark.parametrize("names", [["GEMINI_API_KEY"], ["GOOGLE_API_KEY", "GEMINI_API_KEY"]])
async def test_keys_of_the_environment(server: GeminiServer, monkeypatch: pytest.MonkeyPatch, names: list[str]) -> None:
    monkeypatch.delenv("GOOGLE_API_KEY", raising=False)
    for name in names:
        monkeypatch.setenv(name, f"of-{name}")
    model = Gemini("gemini-2.5-pro", base_url=server.url)
    await answers(model)
    assert server.headers[0]["x-goog-api-key"] == f"of-{names[0]}"
    await model.close()


async def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GOOGLE_API_KEY", "GEMINI_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_ENTERPRISE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ModelError, match=r"(?i)api.?key") as caught:
        await answers(Gemini("gemini-2.5-pro"))
    assert caught.value.category == "AUTH_ERROR"


async def test_what_this_backend_lacks_is_refused(model: Gemini) -> None:
    with pytest.raises(MessageConversionError, match="retrieval"):
        await answers(model, tools=[Tool(retrieval={"vertexAiSearch": {"datastore": "d"}})])
    with pytest.raises(MessageConversionError, match="bogus"):
        await answers(model, http_options={"bogus": 1})


async def test_settings_and_tools_of_its_own(server: GeminiServer, model: Gemini) -> None:
    safety = SafetySetting(category="HARM_CATEGORY_HARASSMENT", threshold="BLOCK_NONE")
    tools = [Tool(google_search={}), Tool(url_context={}), Tool(code_execution={}), Tool(google_maps={})]
    await answers(model, safety_settings=[safety], tools=tools, response_modalities=["TEXT", "IMAGE"])
    sent = server.seen[0]
    assert sent["safetySettings"] == [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}]
    assert [next(iter(tool)) for tool in sent["tools"]] == ["googleSearch", "urlContext", "codeExecution", "googleMaps"]
    assert sent["generationConfig"]["responseModalities"] == ["TEXT", "IMAGE"]


async def test_ids_of_ours_are_not_sent(server: GeminiServer, model: Gemini) -> None:
    call = Part(function_call=FunctionCall(id="adk-1", name="look", args={}))
    response = Part(function_response=FunctionResponse(id="adk-1", name="look", response={"result": 1}))
    await answers(model, UserContent("Hi"), Content(role="model", parts=[call]), Content(role="user", parts=[response]))
    _, called, answered = server.seen[0]["contents"]
    assert called["parts"] == [{"functionCall": {"name": "look", "args": {}}}]
    assert answered["parts"] == [{"functionResponse": {"name": "look", "response": {"result": 1}}}]


async def test_a_conversation_that_ends_with_the_model_is_to_continue(server: GeminiServer, model: Gemini) -> None:
    await answers(model, UserContent("Hi"), Content(role="model", parts=[Part(text="Well")]))
    assert [content["role"] for content in server.seen[0]["contents"]] == ["user", "model", "user"]


def chunk(*parts: dict[str, Any], **candidate: Any) -> dict[str, Any]:
    return {"candidates": [{"content": {"role": "model", "parts": list(parts)}, **candidate}], "modelVersion": "g"}


async def test_streamed_arguments_are_put_where_their_paths_say(server: GeminiServer, model: Gemini) -> None:
    def piece(path: str, **value: Any) -> dict[str, Any]:
        return {"functionCall": {"partialArgs": [{"jsonPath": path, **value}], "willContinue": True}}

    server.raw = [
        frame(chunk({"functionCall": {"name": "book", "id": "c1", "willContinue": True}, "thoughtSignature": "c2ln"})),
        frame(chunk(piece("$.city", stringValue="Os"))),
        frame(chunk(piece("$.city", stringValue="lo"), piece("$.days[1]['the count']", numberValue=3))),
        frame(chunk({"functionCall": {}})),
        frame(chunk({"functionCall": {"name": "look", "args": {"at": "it"}}}, finishReason="STOP")),
    ]
    *partials, whole = await answers(model, stream=True)
    assert whole.content is not None
    book, look = whole.content.parts or []
    assert book.function_call == FunctionCall(
        id="c1", name="book", args={"city": "Oslo", "days": [None, {"the count": 3}]}
    )
    assert book.thought_signature == b"sig"
    assert look.function_call is not None
    calls = [part.function_call for p in partials if p.content for part in p.content.parts or () if part.function_call]
    assert [call.id for call in calls] == ["c1"] * 5 + [look.function_call.id]
    assert [bool(call.will_continue) for call in calls] == [True, True, True, True, False, False]


@pytest.mark.parametrize("path", ["$.a[0].b", "$.items[99999]", "$..", "$[1]"])
def test_paths_that_lead_nowhere_are_refused(path: str) -> None:
    with pytest.raises(ValueError, match=r"JSON path|no place"):
        write_partial_args({"a": {"b": 1}}, [PartialArg(json_path=path, string_value="x")])


@pytest.mark.parametrize("stream", [False, True])
async def test_a_blocked_prompt_is_an_error(server: GeminiServer, model: Gemini, stream: bool) -> None:
    blocked = {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "modelVersion": "g"}
    server.raw = [frame(blocked)] if stream else blocked
    [whole] = await answers(model, stream=stream)
    assert whole.error_code == "PROHIBITED_CONTENT"
    assert "PROHIBITED_CONTENT" in (whole.error_message or "")


@pytest.mark.parametrize("stream", [False, True])
async def test_grounding_code_images_and_signatures_come_back(
    server: GeminiServer, model: Gemini, stream: bool
) -> None:
    grounding = {"webSearchQueries": ["weather"], "groundingChunks": [{"web": {"uri": "https://a.example"}}]}
    whole_chunk = chunk(
        {"executableCode": {"code": "print(1)", "language": "PYTHON"}},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}},
        {"inlineData": {"mimeType": "image/png", "data": "iVBORw=="}},
        {"text": "Done."},
        {"text": "", "thoughtSignature": "c2ln"},
        finishReason="STOP",
        groundingMetadata=grounding,
        citationMetadata={"citationSources": [{"uri": "https://b.example", "startIndex": 1}]},
        avgLogprobs=-0.5,
    )
    server.raw = [frame(whole_chunk)] if stream else whole_chunk
    *_, whole = await answers(model, stream=stream)
    assert whole.content is not None
    code, result, image, text = whole.content.parts or []
    assert code.executable_code is not None
    assert result.code_execution_result is not None
    assert image.inline_data is not None
    assert image.inline_data.data == b"\x89PNG"
    assert (text.text, text.thought_signature, text.thought) == ("Done.", b"sig", None)
    assert whole.grounding_metadata == grounding
    assert whole.citation_metadata == {"citations": [{"uri": "https://b.example", "startIndex": 1}]}
    assert whole.avg_logprobs == -0.5
    server.raw = None
    await answers(model, UserContent("Hi"), whole.content, UserContent("More"))
    sent = json.loads(json.dumps(server.seen[-1]).replace("mime_type", "mimeType"))  # the SDK writes it so
    assert sent["contents"][1]["parts"] == [
        {"executableCode": {"code": "print(1)", "language": "PYTHON"}},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}},
        {"inlineData": {"mimeType": "image/png", "data": "iVBORw=="}},
        {"text": "Done.", "thoughtSignature": "c2ln"},
    ]


class _Continued(GeminiServer):
    """Ends the first stream of a reply with a token, by which the second is asked for."""

    def frames(self, parts: tuple[Part, ...], finish_reason: str) -> tuple[list[str], list[str]]:
        if self.seen[-1].get("continuationToken") == "dG9rZW4=":
            return super().frames((Part(text="It rains."),), "STOP")
        body, _ = super().frames((Part(text="It is cold. "),), "STOP")
        return body, [frame({"candidates": [{"finishReason": "CONTINUATION", "continuationToken": "dG9rZW4="}]})]


async def test_a_reply_in_several_streams_is_one() -> None:
    async with _Continued().serving() as server:
        model = Gemini("gemini-2.5-pro", api_key=server.secret, base_url=server.url)
        *_, whole = await answers(model, stream=True)
        await model.close()
    assert whole.content is not None
    assert (whole.content.text(), whole.finish_reason, len(server.seen)) == ("It is cold. It rains.", "STOP", 2)
    assert server.seen[0] == {name: value for name, value in server.seen[1].items() if name != "continuationToken"}


async def test_citations_of_the_gemini_api(server: GeminiServer, model: Gemini) -> None:
    source = {"startIndex": 0, "endIndex": 2, "uri": "https://a.example"}
    candidate = {"content": {"parts": [{"text": "Hi"}]}, "finishReason": "STOP"}
    server.raw = [frame({"candidates": [{**candidate, "citationMetadata": {"citationSources": [source]}}]})]
    *_, whole = await answers(model, stream=True)
    assert whole.citation_metadata is not None
    assert whole.citation_metadata.citations == [source]
