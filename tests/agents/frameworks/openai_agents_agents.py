"""Makes agents of the OpenAI Agents SDK with a scripted model."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, cast

from agents import Agent, function_tool

from greenroom.agents.frameworks.openai_agents.agent import OpenAIAgentsAgent
from greenroom.agents.frameworks.openai_agents.model import OpenAIAgentsModel
from greenroom.records.answer_metadata import GenerateContentResponseUsageMetadata
from greenroom.records.content import Content, FunctionCall, Part
from greenroom.records.event import Event
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from greenroom.testing.scripted_model import ScriptedModel
from tests.agents.frameworks.contract import Script, Step, Tool
from tests.agents.talk import answer


class OpenAIAgentsFramework:
    def __init__(self) -> None:
        self.prompts: list[list[str]] = []
        self.requests: list[LlmRequest] = []

    def model(self, *script: Script) -> OpenAIAgentsModel:
        replies = iter(script)

        def reply(request: LlmRequest) -> Any:
            texts = _texts(request)
            self.prompts.append(texts)
            self.requests.append(request)
            step = script[0] if callable(script[0]) else next(replies)
            return _with_usage(step(texts) if callable(step) else step)

        return OpenAIAgentsModel(ScriptedModel(reply))

    def agent(self, *script: Script, tools: Sequence[Tool] = (), asks: Collection[str] = ()) -> OpenAIAgentsAgent:
        wrapped = [
            function_tool(tool, needs_approval=tool.__name__ in asks, failure_error_function=None) for tool in tools
        ]
        agent = Agent(name="Desk", model=self.model(*script), tools=cast("Any", wrapped))
        return OpenAIAgentsAgent(name="desk", agent=agent)

    def answer(self, request: Event, *, approved: bool) -> Content:
        [call] = request.get_function_calls()
        assert call.name == "adk_request_confirmation"
        return answer("adk_request_confirmation", call.id, {"confirmed": approved})


def _texts(request: LlmRequest) -> list[str]:
    texts: list[str] = []
    for content in request.contents:
        for part in content.parts or ():
            if part.text:
                texts.append(part.text)
            elif part.function_response is not None:
                texts.append(str((part.function_response.response or {})["result"]))
    return texts


def _with_usage(step: Step) -> Any:
    if isinstance(step, Exception):
        return step
    parts: list[Part] = []
    for item in cast("Sequence[Any]", [step] if isinstance(step, (str, FunctionCall)) else step):
        parts.append(Part(text=item) if isinstance(item, str) else Part(function_call=item))
    usage = GenerateContentResponseUsageMetadata(prompt_token_count=10, candidates_token_count=5)
    return LlmResponse(content=Content(role="model", parts=parts), usage_metadata=usage)


def make() -> OpenAIAgentsFramework:
    return OpenAIAgentsFramework()
