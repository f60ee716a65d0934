"""CPU that hosting adds to a turn of another framework: `python -m benchmarks.frameworks [ROUNDS]`.

A turn calls a model once, which answers at once: bare, as the framework runs it with its own history in memory, and
hosted by a runner in memory. Both run in each round, so that the machine's other work concerns both, and the median of
the rounds counts. CPU time of the process, not the clock's.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any, TypeAlias

import agents
from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from openai.types.responses import ResponseOutputMessage, ResponseOutputText
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from greenroom.agents.agent import BaseAgent
from greenroom.agents.frameworks.langgraph.agent import LangGraphAgent
from greenroom.agents.frameworks.openai_agents.agent import OpenAIAgentsAgent
from greenroom.agents.frameworks.pydantic_ai.agent import PydanticAiAgent
from greenroom.records.content import Content, Part
from greenroom.runner.in_memory import InMemoryRunner

TURNS = 50
"""Turns of each kind in a round, each in a conversation of its own."""

ROUNDS = 20

Turn: TypeAlias = Callable[[], Awaitable[None]]


class EchoChatModel(BaseChatModel):
    @property
    def _llm_type(self) -> str:
        return "echo"

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=AIMessage(messages[-1].text))])

    async def _agenerate(self, messages: list[BaseMessage], *arguments: Any, **options: Any) -> ChatResult:
        return self._generate(messages)


def langgraph() -> tuple[Turn, BaseAgent]:
    model = EchoChatModel()

    async def chat(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    builder: Any = StateGraph(MessagesState)
    builder.add_node("chat", chat).add_edge(START, "chat")
    graph = builder.compile(checkpointer=InMemorySaver())
    threads = count()

    async def turn() -> None:
        config = {"configurable": {"thread_id": str(next(threads))}}
        async for _ in graph.astream({"messages": [("user", "hello")]}, config, durability="sync"):
            pass

    return turn, LangGraphAgent(name="desk", graph=builder)


def pydantic_ai() -> tuple[Turn, BaseAgent]:
    async def echo(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse([TextPart("hello")])

    agent = Agent(FunctionModel(echo))

    async def turn() -> None:
        await agent.run("hello")

    return turn, PydanticAiAgent(name="desk", agent=agent)


class EchoModel(agents.Model):
    async def get_response(self, *args: Any, **kwargs: Any) -> agents.ModelResponse:
        text = ResponseOutputText(type="output_text", text="hello", annotations=[])
        message = ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[text])
        return agents.ModelResponse([message], agents.Usage(requests=1), response_id=None)

    def stream_response(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError


def openai_agents() -> tuple[Turn, BaseAgent]:
    agent = agents.Agent(name="Desk", model=EchoModel())
    config = agents.RunConfig(tracing_disabled=True)

    async def turn() -> None:
        await agents.Runner.run(agent, "hello", run_config=config)

    return turn, OpenAIAgentsAgent(name="desk", agent=agent)


FRAMEWORKS = (langgraph, pydantic_ai, openai_agents)
"""Functions that return a turn of the bare framework, and the agent that hosts the same."""


def hosted_turn(agent: BaseAgent) -> Turn:
    runner = InMemoryRunner(agent=agent, app_name="app")
    sessions = count()

    async def turn() -> None:
        session_id = str(next(sessions))
        await runner.session_service.create_session(app_name="app", user_id="u", session_id=session_id)
        message = Content(role="user", parts=[Part(text="hello")])
        async for _ in runner.run_async(user_id="u", session_id=session_id, new_message=message):
            pass

    return turn


async def _milliseconds(turn: Turn) -> float:
    began = time.process_time()
    for _ in range(TURNS):
        await turn()
    return (time.process_time() - began) * 1000 / TURNS


async def measure(bare: Turn, hosted: Turn, rounds: int = ROUNDS) -> tuple[float, float]:
    """CPU per turn in milliseconds, bare and hosted: medians of the rounds."""
    for _ in range(2):  # what is loaded on first use
        await _milliseconds(bare)
        await _milliseconds(hosted)

    measured: list[tuple[float, float]] = []
    for _ in range(rounds):
        measured.append((await _milliseconds(bare), await _milliseconds(hosted)))
    return statistics.median(one for one, _ in measured), statistics.median(one for _, one in measured)


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    for framework in FRAMEWORKS:
        turn, agent = framework()
        bare, hosted = asyncio.run(measure(turn, hosted_turn(agent), rounds))
        print(
            f"{framework.__name__}: bare {bare:.2f} ms, hosted {hosted:.2f} ms, "
            f"added {hosted - bare:.2f} ms ({hosted / bare:.2f} x)"
        )


if __name__ == "__main__":
    main()
