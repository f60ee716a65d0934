"""CPU that hosting adds to a turn of another framework: `python -m benchmarks.frameworks [ROUNDS]`.

A turn is a graph with one node that calls a model, which answers at once: bare with the framework's own saver in
memory, and hosted by a runner in memory. Both run in each round, so that the machine's other work concerns both, and
the median of the rounds counts. CPU time of the process, not the clock's.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

from greenroom.agents.frameworks.langgraph.agent import LangGraphAgent
from greenroom.records.content import Content, Part
from greenroom.runner.in_memory import InMemoryRunner

TURNS = 50
"""Turns of each kind in a round, each in a conversation of its own."""

ROUNDS = 20


class Echo(BaseChatModel):
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


def graph() -> Any:
    model = Echo()

    async def chat(state: MessagesState) -> Any:
        return {"messages": [await model.ainvoke(state["messages"])]}

    builder: Any = StateGraph(MessagesState)
    return builder.add_node("chat", chat).add_edge(START, "chat")


class Bare:
    def __init__(self) -> None:
        self._graph = graph().compile(checkpointer=InMemorySaver())
        self._count = 0

    async def turn(self) -> None:
        self._count += 1
        config = {"configurable": {"thread_id": str(self._count)}}
        async for _ in self._graph.astream({"messages": [("user", "hello")]}, config, durability="sync"):
            pass


class Hosted:
    def __init__(self) -> None:
        self._runner = InMemoryRunner(agent=LangGraphAgent(name="desk", graph=graph()), app_name="app")
        self._count = 0

    async def turn(self) -> None:
        self._count += 1
        session_id = str(self._count)
        await self._runner.session_service.create_session(app_name="app", user_id="u", session_id=session_id)
        message = Content(role="user", parts=[Part(text="hello")])
        async for _ in self._runner.run_async(user_id="u", session_id=session_id, new_message=message):
            pass


async def _milliseconds(turn: Callable[[], Awaitable[None]]) -> float:
    began = time.process_time()
    for _ in range(TURNS):
        await turn()
    return (time.process_time() - began) * 1000 / TURNS


async def measure(rounds: int = ROUNDS) -> tuple[float, float]:
    """CPU per turn in milliseconds, bare and hosted: medians of the rounds."""
    bare = Bare()
    hosted = Hosted()
    for _ in range(2):  # what is loaded on first use
        await _milliseconds(bare.turn)
        await _milliseconds(hosted.turn)

    measured: list[tuple[float, float]] = []
    for _ in range(rounds):
        measured.append((await _milliseconds(bare.turn), await _milliseconds(hosted.turn)))
    return statistics.median(one for one, _ in measured), statistics.median(one for _, one in measured)


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    bare, hosted = asyncio.run(measure(rounds))
    print(
        f"langgraph: bare {bare:.2f} ms, hosted {hosted:.2f} ms, added {hosted - bare:.2f} ms ({hosted / bare:.2f} x)"
    )


if __name__ == "__main__":
    main()
