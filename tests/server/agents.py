"""Agents for server tests: what they say is scripted, when they say it is the test's to decide."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from greenroom.agents.llm_agent import LlmAgent
from greenroom.models.model import BaseLlm
from greenroom.records.content import Content, FunctionCall, Part
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from greenroom.testing.scripted_model import Script, ScriptedModel
from greenroom.tools.builtin.run_control import request_input


def scripted(name: str, script: Script, *, tools: Any = (), **more: Any) -> LlmAgent:
    return LlmAgent(name=name, model=ScriptedModel(script, **more), tools=tools)


def last_text(request: LlmRequest) -> str:
    return request.contents[-1].text()


def echo(name: str = "echo") -> LlmAgent:
    """Repeats the message, word by word when it streams."""
    return scripted(name, lambda request: f"You said {last_text(request)}")


def asking_echo() -> LlmAgent:
    """Repeats the message, and asks a person for input if it begins with "ask"."""

    def answer(request: LlmRequest) -> str | FunctionCall:
        text = last_text(request)
        if text.startswith("ask"):
            return FunctionCall(name="adk_request_input", args={"message": text})
        return f"You said {text}"

    return scripted("echo", answer, tools=[request_input])


class HeldModel(BaseLlm):
    """Streams its words one by one, each when `let_go` has been called for it; counts the calls that are open."""

    def __init__(self, text: str = "one two three four ") -> None:
        super().__init__(model="held")
        self._words = [word + " " for word in text.split()]
        self._let_go = asyncio.Semaphore(0)
        self.calls = 0
        self.closed = 0

    def let_go(self, words: int | None = None) -> None:
        for _ in range(len(self._words) + 1 if words is None else words):
            self._let_go.release()

    async def generate_content_async(self, llm_request: LlmRequest, stream: bool = False) -> AsyncIterator[LlmResponse]:
        self.calls += 1
        try:
            for word in self._words if stream else ():
                await self._let_go.acquire()
                yield LlmResponse(content=Content(role="model", parts=[Part(text=word)]), partial=True)
            await self._let_go.acquire()
            yield LlmResponse(content=Content(role="model", parts=[Part(text="".join(self._words))]))
        finally:
            self.closed += 1


class Gate:
    """A tool that waits until the test opens the gate."""

    def __init__(self) -> None:
        self.entered = 0
        self._open = asyncio.Event()

    def open(self) -> None:
        self._open.set()

    async def wait_at_gate(self) -> dict[str, str]:
        """Wait for the gate."""
        self.entered += 1
        await self._open.wait()
        return {"gate": "open"}


def gated(gate: Gate, name: str = "gated") -> LlmAgent:
    """Calls the gate's tool, then says that it is through."""

    def answer(request: LlmRequest) -> str | FunctionCall:
        parts = request.contents[-1].parts or []
        is_answered = any(part.function_response is not None for part in parts)
        return "through" if is_answered else FunctionCall(name="wait_at_gate", args={})

    return scripted(name, answer, tools=[gate.wait_at_gate])
