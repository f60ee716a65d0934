"""Code that an agent's model writes, and what an executor makes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

import msgspec

from greenroom.agents.llm_agent import LlmAgent
from greenroom.code_executors.executor import BaseCodeExecutor, CodeExecutionInput, CodeExecutionResult
from greenroom.environments.files import File
from greenroom.invocation.context import InvocationContext
from greenroom.records.content import Content, Part
from greenroom.runner.in_memory import InMemoryRunner
from greenroom.testing.scripted_model import ScriptedModel


class Coding:
    """Runs an agent with an executor in sessions that begin with these files."""

    def __init__(self, executor: BaseCodeExecutor, *files: File) -> None:
        self.results: list[CodeExecutionResult] = []
        self._files = files
        self._agent = LlmAgent(name="coder", model=ScriptedModel([]))
        self.runner = InMemoryRunner(self._agent, app_name="app")
        self.use(executor)

    def use(self, executor: BaseCodeExecutor) -> None:
        """Goes on with another executor, as another server has it."""
        self._agent.code_executor = _Watched(executor, self.results)

    async def run(self, *codes: str, session_id: str = "s-1", user_id: str = "ada") -> CodeExecutionResult:
        """The outcome of the last code of a run."""
        service = self.runner.session_service
        if await service.get_session(app_name="app", user_id=user_id, session_id=session_id) is None:
            state = {"_code_executor_input_files": [msgspec.to_builtins(file) for file in self._files]}
            await service.create_session(app_name="app", user_id=user_id, session_id=session_id, state=state)

        self._agent.model = ScriptedModel([*(Part.from_executable_code(code=code) for code in codes), "Done."])
        message = Content(role="user", parts=[Part(text="go")])
        async with asyncio.timeout(20):
            run = self.runner.run_async(user_id=user_id, session_id=session_id, new_message=message)
            async with aclosing(run) as events:
                shown = [event async for event in events]
        assert [event.author for event in shown] == ["coder"] * (2 * len(codes) + 1)
        return self.results[-1]

    async def state(self, session_id: str = "s-1") -> dict[str, Any]:
        """The stored state of a session."""
        service = self.runner.session_service
        session = await service.get_session(app_name="app", user_id="ada", session_id=session_id)
        assert session is not None
        return session.state


class _Watched(BaseCodeExecutor):
    """Another executor; notes what came back of the code."""

    def __init__(self, executor: BaseCodeExecutor, results: list[CodeExecutionResult]) -> None:
        super().__init__(stateful=executor.stateful, timeout_seconds=executor.timeout_seconds)
        self._executor = executor
        self._results = results

    async def execute_code(
        self, invocation_context: InvocationContext, code_execution_input: CodeExecutionInput
    ) -> CodeExecutionResult:
        result: Any = self._executor.execute_code(invocation_context, code_execution_input)
        self._results.append(await result)
        return self._results[-1]


def names(files: Sequence[File]) -> list[str]:
    return [file.name for file in files]
