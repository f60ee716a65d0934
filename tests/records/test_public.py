"""Records as users of ADK construct, dump and read them."""

from __future__ import annotations

import base64
import copy
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import pydantic
import pytest
from google.genai import types as genai

from greenroom import (
    ContextCacheConfig,
    Event,
    EventActions,
    LlmRequest,
    LlmResponse,
    NodeInfo,
    RunConfig,
    Session,
    types,
)
from greenroom.errors import InvalidRequest
from greenroom.records import wire
from greenroom.records.content import Part as PlainPart
from greenroom.records.event import Event as PlainEvent

CALL = {"name": "f", "args": {"a_b": {"c_d": 1}}}


def make(record: Any, **arguments: Any) -> Any:
    """Constructs as an untyped caller does."""
    return record(**arguments)


def test_dicts_become_records_wherever_a_record_is_meant() -> None:
    blob = {"inline_data": {"mime_type": "image/png", "data": b"x"}}
    content = make(
        types.Content, role="user", parts=[{"text": "hi"}, types.Part(text="you"), blob, {"functionCall": CALL}]
    )
    assert content == types.Content(
        role="user",
        parts=[
            types.Part(text="hi"),
            types.Part(text="you"),
            types.Part(inline_data=types.Blob(mime_type="image/png", data=b"x")),
            types.Part(function_call=types.FunctionCall(name="f", args={"a_b": {"c_d": 1}})),
        ],
    )
    config = make(
        types.GenerateContentConfig, safetySettings=[{"category": "A"}], thinking_config={"thinkingBudget": 0}
    )
    assert config.safety_settings[0].category == "A"
    assert config.thinking_config == types.ThinkingConfig(thinking_budget=0)
    response = make(LlmResponse, content={"parts": [{"text": "x"}]}, grounding_metadata={"webSearchQueries": ["q"]})
    assert response.content.parts[0].text == "x"
    assert response.grounding_metadata.web_search_queries == ["q"]


def test_the_arguments_may_be_in_camel_case_and_a_part_takes_its_text() -> None:
    part = make(types.Part, inlineData=types.Blob(mime_type="a/b"))
    assert part.inline_data.mime_type == "a/b"
    text: Any = types.Part
    assert text("hi") == types.Part(text="hi") == text({"text": "hi"})


def test_what_no_field_is_meant_for_is_refused() -> None:
    with pytest.raises(TypeError):
        make(types.Part, nothing=1)
    with pytest.raises(InvalidRequest):
        make(types.Content, parts=[{"text": 1}])
    with pytest.raises(TypeError):
        make(types.SpeechConfig, nothing=1)


def test_public_classes_stand_for_the_records_that_are_decoded() -> None:
    decoded = wire.from_plain({"text": "x"}, PlainPart)
    assert isinstance(decoded, types.Part)
    assert issubclass(PlainPart, types.Part)
    assert types.Part(text="x") == decoded
    assert type(types.Part(text="x")) is PlainPart

    class Mine(types.Part):
        pass

    assert isinstance(Mine(text="x"), types.Part)
    assert not isinstance(decoded, Mine)
    match decoded:
        case types.Part(text="x"):
            pass
        case _:
            raise AssertionError("no match")


def test_an_event_takes_its_message_state_and_route() -> None:
    event = make(Event, message="done", state={"a": 1}, route="big", node_path="w@1")
    assert event.content == event.message == types.Content(role="user", parts=[types.Part(text="done")])
    assert (event.author, event.actions.state_delta, event.actions.route) == ("", {"a": 1}, "big")
    assert (event.node_info, event.node_path) == (NodeInfo(path="w@1"), "w@1")
    with pytest.raises(ValueError, match="either"):
        make(Event, message="done", content=types.UserContent("hi"))


def test_an_event_goes_to_json_and_back() -> None:
    actions = make(EventActions, stateDelta={"some_key": 1}, endInvocation=True)
    event = Event(
        author="a",
        content=types.ModelContent([types.Part(text="ä"), types.Part.from_bytes(data=b"\xff", mime_type="a/b")]),
        actions=actions,
    )
    for text in (event.model_dump_json(), event.model_dump_json(by_alias=True, exclude_none=True, indent=2)):
        assert Event.model_validate_json(text) == event
    assert Event.model_validate(event.model_dump()) == event
    stored = wire.client_decoder(PlainEvent)(wire.encode(event))
    assert stored.actions.end_invocation is True
    assert b"endInvocation" not in wire.encode(Event(author="a"))


def test_dumps_are_as_pydantics() -> None:
    part = types.Part(inline_data=types.Blob(data=b"\xff", mime_type="a/b"))
    assert part.model_dump(exclude_none=True) == {"inline_data": {"data": b"\xff", "mime_type": "a/b"}}
    in_json = {"inline_data": {"data": base64.b64encode(b"\xff").decode(), "mime_type": "a/b"}}
    assert part.to_json_dict() == in_json
    assert part.model_dump(mode="json", by_alias=True, exclude_none=True) == {
        "inlineData": {"data": "/w==", "mimeType": "a/b"}
    }
    assert part.model_dump(include={"text"}) == {"text": None}
    assert "text" not in part.model_dump(exclude={"text"})
    assert RunConfig().model_dump()["max_llm_calls"] == 500


def test_copies_are_apart() -> None:
    content = types.UserContent("hi")
    changed = content.model_copy(update={"role": "model"}, deep=True)
    assert changed.parts is not None
    changed.parts[0].text = "you"
    assert (content.role, content.text(), changed.role, changed.text()) == ("user", "hi", "model", "you")


def test_a_record_is_a_field_of_a_pydantic_model() -> None:
    class Letter(pydantic.BaseModel):
        content: types.Content
        notes: list[types.Part] = []
        grounding: types.GroundingMetadata | None = None

    letter = Letter.model_validate({"content": {"parts": [{"text": "hi"}]}, "notes": [types.Part(text="x")]})
    assert letter.content.text() == "hi"
    assert Letter.model_validate_json(letter.model_dump_json()) == letter
    with pytest.raises(pydantic.ValidationError):
        Letter.model_validate({"content": {"parts": 1}})
    assert Letter.model_json_schema()["properties"]["content"] == {"title": "Content", "type": "object"}


def test_open_records_name_their_fields_and_keep_the_rest() -> None:
    text = '{"author":"a","groundingMetadata":{"groundingChunks":[{"web":{"uri":"u","new_thing":{"x":1}}}],"newField":[1]}}'
    event = wire.client_decoder(PlainEvent)(text.encode())
    grounding = event.grounding_metadata
    assert grounding is not None
    assert grounding.grounding_chunks is not None
    web = grounding.grounding_chunks[0].web
    assert web is not None
    assert (web.uri, web.title, grounding.grounding_supports) == ("u", None, None)
    assert grounding["newField"] == [1]
    assert isinstance(grounding, types.GroundingMetadata)
    assert b'"newField":[1]' in wire.encode(event)
    assert b'"new_thing":{"x":1}' in wire.encode(event)
    assert wire.decoder(PlainEvent)(wire.encode(event)) == event
    assert copy.deepcopy(grounding) == grounding
    with pytest.raises(AttributeError):
        grounding.__getattr__("nothing")


def test_options_are_maps_as_the_api_spells_them() -> None:
    voice = types.VoiceConfig(prebuilt_voice_config=types.PrebuiltVoiceConfig(voice_name="Kore"))
    speech = types.SpeechConfig(voice_config=voice, language_code="en")
    assert speech == {"voiceConfig": {"prebuiltVoiceConfig": {"voiceName": "Kore"}}, "languageCode": "en"}
    assert speech.model_dump() == {
        "voice_config": {"prebuilt_voice_config": {"voice_name": "Kore"}},
        "language_code": "en",
    }
    assert types.SpeechConfig.model_validate(speech.model_dump(by_alias=True)).voice_config == voice
    config = types.GenerateContentConfig(
        speech_config=speech,
        http_options=types.HttpOptions(retry_options=types.HttpRetryOptions(attempts=5, initial_delay=1)),
        media_resolution=types.MediaResolution.MEDIA_RESOLUTION_LOW,
        tools=[types.Tool(google_search=types.GoogleSearch()), types.Tool(code_execution=types.ToolCodeExecution())],
        safety_settings=[
            types.SafetySetting(
                category=types.HarmCategory.HARM_CATEGORY_HARASSMENT, threshold=types.HarmBlockThreshold.BLOCK_NONE
            )
        ],
    )
    plain = wire.to_plain(config)
    assert plain["httpOptions"] == {"retryOptions": {"attempts": 5, "initialDelay": 1}}
    assert plain["mediaResolution"] == "MEDIA_RESOLUTION_LOW"
    assert plain["tools"] == [{"googleSearch": {}}, {"codeExecution": {}}]
    assert plain["safetySettings"] == [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}]


@pytest.mark.parametrize("name", dir(types))
def test_every_name_is_there(name: str) -> None:
    assert getattr(types, name).__name__ == name


def test_importing_types_loads_no_record() -> None:
    code = "import sys, greenroom.types; print([m for m in sys.modules if m.startswith('greenroom.records.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['greenroom.records.genai_types']", "which has names only"


GROUNDING = {"webSearchQueries": ["oslo"], "groundingChunks": [{"web": {"uri": "https://a.example", "newField": 1}}]}
IN_SNAKE_CASE = {
    "web_search_queries": ["oslo"],
    "grounding_chunks": [{"web": {"uri": "https://a.example", "newField": 1}}],
}


@pytest.mark.parametrize("record", [Event, LlmResponse])
@pytest.mark.parametrize("given", [GROUNDING, IN_SNAKE_CASE, types.GroundingMetadata(IN_SNAKE_CASE)])
def test_metadata_in_either_spelling_equals_itself_after_a_round_trip(record: Any, given: Any) -> None:
    made = make(record, grounding_metadata=given)
    assert made.grounding_metadata == GROUNDING
    assert made.grounding_metadata.grounding_chunks[0].web.uri == "https://a.example"
    for by_alias in (False, True):
        assert record.model_validate_json(made.model_dump_json(by_alias=by_alias)) == made
        assert record.model_validate(made.model_dump(by_alias=by_alias)) == made
    assert wire.client_decoder(type(made))(wire.encode(made)) == made


def test_options_inside_options_are_spelled_alike() -> None:
    spelled = types.ContextWindowCompressionConfig({"trigger_tokens": 5, "sliding_window": {"target_tokens": 2}})
    assert spelled == {"triggerTokens": 5, "slidingWindow": {"targetTokens": 2}}
    assert spelled == types.ContextWindowCompressionConfig(
        trigger_tokens=5, sliding_window=types.SlidingWindow(target_tokens=2)
    )


def test_options_for_images_are_those_of_the_gemini_api() -> None:
    ours = types.GenerateImagesConfig(number_of_images=2, person_generation=types.PersonGeneration.ALLOW_ADULT)
    theirs = genai.GenerateImagesConfig.model_validate(ours)
    assert theirs.number_of_images == 2
    assert theirs.person_generation == genai.PersonGeneration.ALLOW_ADULT


def test_a_request_shows_its_system_instructions() -> None:
    def shown(instruction: Any) -> tuple[list[str], str | None]:
        request = LlmRequest(config=types.GenerateContentConfig(system_instruction=instruction))
        return request.system_instructions, request.first_system_instruction

    assert shown(None) == ([], None)
    assert shown("Be brief.") == (["Be brief."], "Be brief.")
    parts = types.Content(parts=[types.Part(text="Be brief."), types.Part(text="Be kind.")])
    assert shown(parts) == (["Be brief.", "Be kind."], "Be brief.")


def test_a_cache_config_has_the_names_of_the_contract() -> None:
    config = ContextCacheConfig(max_invocations=7, ttl_seconds=60)
    assert (config.cache_intervals, config.max_invocations, config.ttl_string) == (7, 7, "60s")
    assert ContextCacheConfig(cache_intervals=3).max_invocations == 3
    with pytest.raises(ValueError, match="cache_intervals must be from 1 to 100"):
        ContextCacheConfig(max_invocations=0)


def test_a_session_says_when_it_was_last_updated() -> None:
    session = Session(id="s", app_name="a", user_id="u", last_update_time=1_700_000_000.5)
    assert session.last_updated_at == datetime(2023, 11, 14, 22, 13, 20, 500_000, tzinfo=UTC)
