"""Objects of google.genai where records are expected."""

from __future__ import annotations

from typing import Any

import google.genai.types as genai
import pytest

from greenroom import BuiltInPlanner, LlmAgent, types
from greenroom.records import wire
from greenroom.records.content import Content, Part
from greenroom.records.genai_types import own, own_content
from greenroom.records.generation import GenerateContentConfig, ThinkingConfig


def test_a_config_becomes_a_record_with_all_that_it_holds() -> None:
    declared = genai.FunctionDeclaration(
        name="find",
        parameters=genai.Schema(type=genai.Type.OBJECT, properties={"word": genai.Schema(type=genai.Type.STRING)}),
    )
    given = genai.GenerateContentConfig(
        temperature=0.5,
        system_instruction=genai.Content(parts=[genai.Part(text="Help.")]),
        tools=[genai.Tool(function_declarations=[declared]), genai.Tool(google_search=genai.GoogleSearch())],
        response_schema=dict,
        safety_settings=[
            genai.SafetySetting(
                category=genai.HarmCategory.HARM_CATEGORY_HARASSMENT, threshold=genai.HarmBlockThreshold.OFF
            )
        ],
        thinking_config=genai.ThinkingConfig(thinking_budget=10),
        http_options=genai.HttpOptions(timeout=3),
    )
    config = own(given)
    assert isinstance(config, GenerateContentConfig)
    assert config.response_schema is dict
    config.response_schema = None
    plain = given.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"response_schema"})
    assert wire.to_plain(config) == plain


@pytest.mark.parametrize(
    "given",
    [
        genai.Part(inline_data=genai.Blob(data=b"\xff\xfe", mime_type="image/png"), thought_signature=b"\x01"),
        genai.Part.from_function_response(name="find", response={"a": [1, None]}),
        genai.UserContent("Hello"),
        genai.Content(parts=[genai.Part(text="Hello", thought=True), genai.Part.from_uri(file_uri="gs://a/b.png")]),
    ],
)
def test_contents_say_the_same(given: Any) -> None:
    record = own(given)
    assert isinstance(record, (Part, Content))
    theirs: Any = genai.Content if isinstance(given, genai.Content) else genai.Part
    assert theirs.model_validate_json(wire.encode(record)).model_dump() == given.model_dump()


def test_what_has_no_record_stays_and_fields_without_one_are_named(caplog: pytest.LogCaptureFixture) -> None:
    interval = genai.Interval()
    assert own(interval) is interval
    assert own("text") == "text"
    assert own([genai.Language.PYTHON, 1]) == ["PYTHON", 1]
    clients = genai.HttpOptions(timeout=3, httpx_client=None)
    assert own(clients) == {"timeout": 3}
    assert not caplog.records
    assert own(genai.ProactivityConfig(proactive_audio=True, proactive_video=True)) == {"proactiveAudio": True}
    assert "ProactivityConfig.proactive_video" in caplog.text


def test_constructors_take_them() -> None:
    content = types.Content(role="user", parts=[genai.Part(text="a"), types.Part(text="b")])  # type: ignore[list-item]
    assert content == Content(role="user", parts=[Part(text="a"), Part(text="b")])
    mixed = Content(role="user", parts=[Part(text="a"), genai.Part(text="b")])  # type: ignore[list-item]
    assert own_content(mixed) == content
    assert types.Part.model_validate(genai.Part(text="a")) == Part(text="a")


def test_agents_take_them() -> None:
    agent = LlmAgent(
        name="a",
        static_instruction=genai.Content(parts=[genai.Part(text="Stay polite.")]),  # type: ignore[arg-type]
        generate_content_config=genai.GenerateContentConfig(temperature=0.5),  # type: ignore[arg-type]
        planner=BuiltInPlanner(thinking_config=genai.ThinkingConfig(thinking_budget=1)),  # type: ignore[arg-type]
    )
    assert agent.static_instruction == Content(parts=[Part(text="Stay polite.")])
    assert agent.generate_content_config == GenerateContentConfig(temperature=0.5)
    assert isinstance(agent.planner, BuiltInPlanner)
    assert agent.planner.thinking_config == ThinkingConfig(thinking_budget=1)


def test_names_without_a_record_are_those_of_the_package() -> None:
    assert types.Interval is genai.Interval  # pyright: ignore[reportAttributeAccessIssue]
    assert types.Part is not genai.Part
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        types.Nothing  # type: ignore  # noqa: B018
