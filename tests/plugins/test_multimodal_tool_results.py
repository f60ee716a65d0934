"""Tools that return content parts: models get to see them, once or for good."""

from __future__ import annotations

from typing import Any

import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.errors import AgentConfigError
from greenroom.plugins.multimodal_tool_results import RESPONSE_KEY, MultimodalToolResultsPlugin
from greenroom.records.content import Content, Part
from greenroom.records.model_exchange import LlmRequest
from greenroom.testing.scripted_model import ScriptedModel
from tests.agents.talk import call
from tests.plugins.watched import WatchedTalk

IMAGE = Part.from_bytes(data=b"png", mime_type="image/png")
PARTS = [Part(text="The map:"), IMAGE, Part.from_uri(file_uri="gs://maps/1.png", mime_type="image/png")]


def look() -> list[Part]:
    """Looks at the map."""
    return PARTS


def photo() -> Part:
    """Takes a photo."""
    return IMAGE


def names() -> list[str]:
    """Lists names."""
    return ["a", "b"]


def of(model: ScriptedModel, **settings: Any) -> WatchedTalk:
    agent = LlmAgent(name="guide", model=model, tools=[look, photo, names])
    return WatchedTalk(agent, MultimodalToolResultsPlugin(**settings))


def results(request: LlmRequest) -> list[Any]:
    return [p.function_response.response for c in request.contents for p in c.parts or () if p.function_response]


async def test_parts_are_shown_once_after_the_response() -> None:
    model = ScriptedModel([call("look", "c-1"), "A map.", "Bye."])
    talk = of(model)
    await talk.say("where?")
    await talk.say("bye")
    seen, later = model.requests[1:]
    assert seen.contents[-1] == Content(role="user", parts=PARTS)
    assert results(seen) == [{"result": "What the tool returned (3 parts) follows this response."}]
    assert not any(part.inline_data for content in later.contents for part in content.parts or ())
    assert results(later) == [{"result": "What the tool returned (3 parts) was shown right after this response."}]


async def test_parts_are_shown_in_all_later_requests_when_they_are_kept() -> None:
    model = ScriptedModel([call("photo", "c-1"), "Nice.", "Bye."])
    talk = of(model, retention="session")
    await talk.say("look")
    await talk.say("bye")
    for request in model.requests[1:]:
        assert request.contents[3] == Content(role="user", parts=[IMAGE])


async def test_the_parts_are_stored_with_the_response_and_the_log_is_not_changed() -> None:
    talk = of(ScriptedModel([call("photo", "c-1"), "Nice."]))
    await talk.say("look")
    (response,) = (await talk.log())[2].get_function_responses()
    assert response.response == {RESPONSE_KEY: [{"inlineData": {"data": "cG5n", "mimeType": "image/png"}}]}


async def test_other_results_are_left_as_they_are() -> None:
    model = ScriptedModel([call("names", "c-1"), "Two."])
    await of(model).say("who?")
    assert results(model.requests[1]) == [{"result": ["a", "b"]}]


def test_another_retention_is_refused() -> None:
    with pytest.raises(AgentConfigError, match="retention"):
        MultimodalToolResultsPlugin(retention="forever")  # pyright: ignore[reportArgumentType]
