"""A user whose agent controls a computer as each message says."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from greenroom.agents.llm_agent import LlmAgent
from greenroom.records.base import JsonObject
from greenroom.records.content import FunctionCall, UserContent
from greenroom.records.model_exchange import LlmRequest
from greenroom.runner.in_memory import InMemoryRunner
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.tools.computer_use.computer import BaseComputer
from greenroom.tools.computer_use.toolset import ComputerUseToolset


class User:
    """A user whose agent makes the calls that each message names."""

    def __init__(self, runner: InMemoryRunner, session_id: str) -> None:
        self._runner, self._session_id = runner, session_id

    async def does(self, name: str, **args: Any) -> JsonObject:
        sessions = self._runner.session_service
        where: dict[str, Any] = {"app_name": "app", "user_id": "ada", "session_id": self._session_id}
        if await sessions.get_session(**where) is None:
            await sessions.create_session(**where)
        run = self._runner.run_async(
            user_id="ada",
            session_id=self._session_id,
            new_message=UserContent("go"),
            state_delta={"next": [name, args]},
        )
        responses = [response async for event in run for response in event.get_function_responses()]
        return responses[-1].response or {}


@asynccontextmanager
async def runner_with(computer: BaseComputer) -> AsyncGenerator[InMemoryRunner]:
    """The runner of the agent, which is closed with the computer."""
    calls: list[FunctionCall] = []

    def reply(request: LlmRequest) -> Any:
        parts = request.contents[-1].parts or []
        return "Done." if parts[0].function_response is not None else calls.pop()

    def take_call(callback_context: Any) -> None:
        name, args = callback_context.state["next"]
        calls.append(FunctionCall(name=name, args=args))

    model = ScriptedModel(reply, model="gemini-3-pro")
    toolset = ComputerUseToolset(computer=computer, allow_private_network_access=True)
    agent = LlmAgent(name="agent", model=model, tools=[toolset], before_agent_callback=take_call)
    runner = InMemoryRunner(agent, app_name="app")
    try:
        yield runner
    finally:
        await runner.close()


def virtual(size: tuple[int, int], x: int, y: int) -> dict[str, int]:
    """Pixels as the model's coordinates."""
    return {"x": round(x / size[0] * 1000), "y": round(y / size[1] * 1000)}
