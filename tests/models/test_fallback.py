"""A list of models: the next answers when one is down, and no client gets halves of two answers."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.errors import AgentConfigError, ModelError, ModelErrorCategory
from greenroom.models.fallback import FallbackModel
from greenroom.models.model import BaseLlm
from greenroom.models.model_errors import new_model_error
from greenroom.records.content import Content, Part, UserContent
from greenroom.records.generation import GenerateContentConfig
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from greenroom.testing.scripted_model import Fails, ScriptedModel


def failure(status: int | None = 503) -> ModelError:
    category = ModelErrorCategory.SERVER_ERROR if status else ModelErrorCategory.NETWORK_ERROR
    return new_model_error("down", model="first", category=category, http_status=status)


def request() -> LlmRequest:
    return LlmRequest(model="first", contents=[UserContent("Hi")], previous_interaction_id="r1")


async def replies(model: BaseLlm, *, stream: bool = False) -> list[LlmResponse]:
    return [reply async for reply in model.generate_content_async(request(), stream)]


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504, None])
@pytest.mark.parametrize("stream", [False, True])
async def test_the_next_one_answers_and_says_so(status: int | None, stream: bool) -> None:
    first, second = ScriptedModel([failure(status)], model="first"), ScriptedModel(["Hello."], model="second")
    *_, whole = await replies(FallbackModel([first, second]), stream=stream)
    assert whole.content is not None
    assert whole.content.text() == "Hello."
    assert whole.custom_metadata == {"fallback": {"model": "second", "after": [{"model": "first", "error": "down"}]}}
    assert second.requests[0].model == "second"
    assert second.requests[0].previous_interaction_id is None


async def test_the_first_one_answers_alone() -> None:
    first, second = ScriptedModel(["Hello."], model="first"), ScriptedModel([], model="second")
    [whole] = await replies(FallbackModel([first, second]))
    assert whole.custom_metadata is None
    assert first.requests[0].previous_interaction_id == "r1"
    assert not second.requests


@pytest.mark.parametrize("status", [400, 401, 404])
async def test_a_request_that_is_refused_is_not_sent_elsewhere(status: int) -> None:
    refused = new_model_error("no", model="first", category=ModelErrorCategory.CLIENT_ERROR, http_status=status)
    second = ScriptedModel(["Never said."], model="second")
    with pytest.raises(ModelError, match="no"):
        await replies(FallbackModel([ScriptedModel([refused], model="first"), second]))
    assert not second.requests


async def test_after_the_first_words_an_error_is_the_callers() -> None:
    first = ScriptedModel([Fails(error=failure(), after_chunks=1)], model="first")
    second = ScriptedModel(["Never said."], model="second")
    shown: list[LlmResponse] = []
    with pytest.raises(ModelError, match="down"):
        async for reply in FallbackModel([first, second]).generate_content_async(request(), True):
            shown.append(reply)
    assert shown
    assert not second.requests


async def test_when_all_are_down_the_last_error_is_raised() -> None:
    models = [ScriptedModel([failure()], model=name) for name in ("a", "b", "c")]
    with pytest.raises(ModelError, match="down"):
        await replies(FallbackModel(models))
    assert [len(model.requests) for model in models] == [1, 1, 1]


async def test_a_model_that_keeps_failing_is_spared_for_a_while() -> None:
    now = [100.0]
    first = ScriptedModel([failure(), failure(), "Back again."], model="first")
    second = ScriptedModel(["One.", "Two.", "Three."], model="second")
    model = FallbackModel([first, second], failure_threshold=2, recovery_seconds=30, clock=lambda: now[0])
    texts: list[str] = []
    for at in (100.0, 101.0, 102.0, 140.0):
        now[0] = at
        [whole] = await replies(model)
        assert whole.content is not None
        texts.append(whole.content.text())
    assert texts == ["One.", "Two.", "Three.", "Back again."]


class Settings(BaseLlm):
    """Keeps the settings that it is asked with."""

    async def generate_content_async(self, llm_request: LlmRequest, stream: bool = False) -> AsyncIterator[LlmResponse]:
        seen.append((self.model, llm_request.config.http_options))
        if self.model == "first":
            raise failure()
        yield LlmResponse(content=Content(role="model", parts=[Part(text="Hello.")]))


seen: list[tuple[str, object]] = []


async def test_sdks_retry_only_with_the_last_one() -> None:
    seen.clear()
    asked = LlmRequest(contents=[UserContent("Hi")], config=GenerateContentConfig(http_options={"timeout": 5000}))
    model = FallbackModel([Settings(model="first"), Settings(model="second")])
    assert [reply async for reply in model.generate_content_async(asked)]
    assert seen == [("first", {"timeout": 5000, "retry_options": {"attempts": 1}}), ("second", {"timeout": 5000})]
    assert asked.config.http_options == {"timeout": 5000}


def test_an_agent_takes_a_list_of_models() -> None:
    agent = LlmAgent(name="desk", model=["local/a", ScriptedModel([], model="b")])
    assert isinstance(agent.model, FallbackModel)
    assert agent.model.model == "local/a"
    with pytest.raises(AgentConfigError, match="at least one"):
        FallbackModel([])
