"""Makes agents of Pydantic AI with a scripted model."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Collection, Sequence
from typing import Any, cast

from pydantic_ai import Agent
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.tools import Tool as PydanticTool
from pydantic_ai.usage import RequestUsage

from greenroom.agents.frameworks.pydantic_ai.agent import PydanticAiAgent
from greenroom.records.content import Content, FunctionCall
from greenroom.records.event import Event
from tests.agents.frameworks.contract import Script, Tool
from tests.agents.talk import answer


class PydanticAiFramework:
    def __init__(self) -> None:
        self.prompts: list[list[str]] = []

    def model(self, *script: Script) -> FunctionModel:
        replies = iter(script)

        def next_reply(messages: list[ModelMessage]) -> list[Any]:
            texts = _texts(messages)
            self.prompts.append(texts)
            scripted = script[0] if callable(script[0]) else next(replies)
            step = scripted(texts) if callable(scripted) else scripted
            if isinstance(step, Exception):
                raise step
            return cast("list[Any]", [step] if isinstance(step, (str, FunctionCall)) else list(cast("Any", step)))

        def reply(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
            parts = [
                TextPart(item) if isinstance(item, str) else ToolCallPart(item.name, item.args, item.id)
                for item in next_reply(messages)
            ]
            return ModelResponse(parts=parts, usage=RequestUsage(input_tokens=10, output_tokens=5))

        async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
            for index, item in enumerate(next_reply(messages)):
                if isinstance(item, str):
                    for word in item.split(" "):
                        yield word if item.startswith(word) else f" {word}"
                else:
                    args = json.dumps(item.args)
                    yield {index: DeltaToolCall(name=item.name, json_args=args, tool_call_id=item.id)}

        return FunctionModel(reply, stream_function=stream, model_name="scripted")

    def agent(self, *script: Script, tools: Sequence[Tool] = (), asks: Collection[str] = ()) -> PydanticAiAgent:
        wrapped = [PydanticTool(tool, requires_approval=tool.__name__ in asks) for tool in tools]
        return PydanticAiAgent(name="desk", agent=Agent(self.model(*script), tools=wrapped))

    def answer(self, request: Event, *, approved: bool) -> Content:
        [call] = request.get_function_calls()
        assert call.name == "adk_request_confirmation"
        return answer("adk_request_confirmation", call.id, {"confirmed": approved})


def _texts(messages: Sequence[ModelMessage]) -> list[str]:
    texts: list[str] = []
    for message in messages:
        for part in message.parts:
            if isinstance(message, ModelRequest) and isinstance(part, UserPromptPart):
                texts += [part.content] if isinstance(part.content, str) else [str(item) for item in part.content]
            elif isinstance(part, ToolReturnPart):
                texts.append(part.model_response_str())
            elif isinstance(part, TextPart):
                texts.append(part.content)
    return texts


def make() -> PydanticAiFramework:
    return PydanticAiFramework()
