"""`LlmResponse.create`, which ADK's users call on replies of the Gemini API (row 12.5)."""

from __future__ import annotations

from google.genai import types as genai

from greenroom.models.gemini.reply import ContentReply, plain
from greenroom.records.model_exchange import LlmResponse


def response_of(**fields: object) -> LlmResponse:
    reply = genai.GenerateContentResponse.model_validate({"model_version": "gemini-x", **fields})
    return LlmResponse.create(reply)


def test_the_first_candidate_is_the_response() -> None:
    content = {"role": "model", "parts": [{"text": "hi"}, {"inline_data": {"data": b"\xff\xfe", "mime_type": "a/b"}}]}
    grounding = {"web_search_queries": ["hi"]}
    candidate = {"content": content, "finish_reason": "STOP", "avg_logprobs": -0.5, "grounding_metadata": grounding}
    response = response_of(candidates=[candidate], usage_metadata={"prompt_token_count": 3})
    assert response.content is not None
    assert response.content.parts is not None
    assert response.content.parts[0].text == "hi"
    assert response.content.parts[1].inline_data is not None
    assert response.content.parts[1].inline_data.data == b"\xff\xfe"
    assert (response.finish_reason, response.avg_logprobs, response.model_version) == ("STOP", -0.5, "gemini-x")
    assert response.grounding_metadata is not None
    assert response.grounding_metadata.web_search_queries == ["hi"]
    assert response.usage_metadata is not None
    assert response.usage_metadata.prompt_token_count == 3
    assert response.error_code is None


def test_bytes_of_a_part_are_read_whatever_they_are() -> None:
    data = bytes(range(256))
    part = genai.Part(inline_data=genai.Blob(data=data, mime_type="image/png"), thought_signature=data)
    candidate = genai.Candidate(content=genai.Content(parts=[part]), finish_reason=genai.FinishReason.STOP)
    reply = ContentReply()
    list(reply.add(plain(genai.GenerateContentResponse(candidates=[candidate]))))
    content = reply.whole().content
    assert content is not None
    assert content.parts is not None
    assert content.parts[0].inline_data is not None
    assert (content.parts[0].inline_data.data, content.parts[0].thought_signature) == (data, data)


def test_a_candidate_without_content_is_an_error() -> None:
    response = response_of(candidates=[{"finish_reason": "SAFETY", "finish_message": "unsafe"}])
    assert (response.error_code, response.error_message, response.content) == ("SAFETY", "unsafe", None)


def test_a_blocked_prompt_is_an_error() -> None:
    response = response_of(prompt_feedback={"block_reason": "SAFETY", "block_reason_message": "no"})
    assert (response.error_code, response.error_message) == ("SAFETY", "no")


def test_a_reply_without_candidates_is_empty() -> None:
    response = response_of()
    assert response.content is not None
    assert (response.content.role, response.content.parts, response.error_code) == ("model", [], None)
