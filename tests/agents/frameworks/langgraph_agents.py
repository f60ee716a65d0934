"""Makes graphs of LangGraph with a scripted model."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import wraps
from typing import Any, cast

from langchain_core.tools import StructuredTool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import interrupt

from greenroom.agents.frameworks.langgraph.agent import LangGraphAgent
from greenroom.agents.frameworks.langgraph.chat_model import ChatGreenroom
from greenroom.records.answer_metadata import GenerateContentResponseUsageMetadata
from greenroom.records.content import Content, FunctionCall, Part
from greenroom.records.event import Event
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from greenroom.testing.scripted_model import ScriptedModel
from tests.agents.frameworks.contract import Script, Step, Tool
from tests.agents.talk import answer


class LangGraphFramework:
    def __init__(self) -> None:
        self.prompts: list[list[str]] = []

    def model(self, *script: Script) -> ChatGreenroom:
        replies = iter(script)

        def reply(request: LlmRequest) -> Any:
            texts = _texts(request)
            self.prompts.append(texts)
            step = script[0] if callable(script[0]) else next(replies)
            return _with_usage(step(texts) if callable(step) else step)

        return ChatGreenroom(model=ScriptedModel(reply))

    def agent(self, *script: Script, tools: Sequence[Tool] = (), asks: Collection[str] = ()) -> LangGraphAgent:
        wrapped = [
            StructuredTool.from_function(coroutine=_asking(tool) if tool.__name__ in asks else tool) for tool in tools
        ]
        model = self.model(*script).bind_tools(wrapped)

        async def chat(state: MessagesState) -> Any:
            return {"messages": [await model.ainvoke(state["messages"])]}

        graph = StateGraph(MessagesState)
        graph.add_node("chat", chat)
        graph.add_node("tools", ToolNode(wrapped))
        graph.add_edge(START, "chat")
        graph.add_conditional_edges("chat", tools_condition)
        graph.add_edge("tools", "chat")
        return LangGraphAgent(name="desk", graph=graph)

    def answer(self, request: Event, *, approved: bool) -> Content:
        [call] = request.get_function_calls()
        assert call.args is not None
        assert call.args["payload"] == {"question": "May pay be called?"}
        return answer("adk_request_input", call.id, {"result": approved})


def _asking(tool: Tool) -> Tool:
    @wraps(tool)
    async def asking(**arguments: Any) -> str:
        if not interrupt({"question": f"May {tool.__name__} be called?"}):
            return "refused"
        return await tool(**arguments)

    return asking


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


def make() -> LangGraphFramework:
    return LangGraphFramework()
