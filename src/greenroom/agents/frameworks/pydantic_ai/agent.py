"""An agent of Pydantic AI as an agent."""

from __future__ import annotations

import inspect
from typing import Any

from greenroom.agents.frameworks.hosted import HostedAgent, HostedTurn
from greenroom.errors import AgentConfigError, MissingExtra

try:
    from pydantic_ai.agent import AbstractAgent
except ImportError as error:
    raise MissingExtra("pydantic-ai", "pydantic-ai-slim") from error

from pydantic_core import to_json

from greenroom.agents.frameworks.pydantic_ai.messages import to_prompt
from greenroom.agents.frameworks.pydantic_ai.progress import Progress
from greenroom.agents.frameworks.pydantic_ai.recorder import Recorder, StreamingRecorder, TurnHalted
from greenroom.invocation.user_context import CallbackContext
from greenroom.records.base import JsonObject
from greenroom.records.content import Part
from greenroom.records.event import Event
from greenroom.records.run import StreamingMode


class PydanticAiAgent(HostedAgent):
    """An agent of Pydantic AI, with its tools, output and capabilities.

    Its message history is kept in the session's log, so that a run that was cut off continues with the calls of tools
    that hadn't returned. Tools that need an approval, or that a client executes, ask for it by a request; the run then
    waits. An output that isn't text is written as JSON.

    agent: the agent. It needs no `DeferredToolRequests` among its outputs.

    deps: the agent's dependencies, or a function, which may be a coroutine, that makes them for each turn from the
    CallbackContext. What it changes in the context's state is stored with the next event.
    """

    agent: Any = None
    deps: Any = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.agent, AbstractAgent):
            raise AgentConfigError(
                f"{self.name}: agent must be an agent of Pydantic AI, not {type(self.agent).__name__}"
            )

    async def run_framework(self, turn: HostedTurn) -> None:
        progress = Progress(turn.states)
        await _take_answers(turn, progress)

        context = CallbackContext(turn.ctx)
        streams = turn.ctx.run_config.streaming_mode is StreamingMode.SSE
        recorder = (StreamingRecorder if streams else Recorder)(turn, progress, context)
        prompt = to_prompt(turn.messages)
        history = progress.history(has_prompt=prompt is not None)
        try:
            result = await self.agent.run(
                prompt,
                message_history=history,
                deps=await self._make_deps(context),
                conversation_id=turn.ctx.session.id,
                capabilities=[recorder],
                infer_name=False,
            )
        except TurnHalted:
            return
        await recorder.end(result.all_messages(), _output_event(turn, result.output))

    async def _make_deps(self, context: CallbackContext) -> Any:
        if not inspect.isroutine(self.deps):
            return self.deps
        made = self.deps(context)
        return await made if inspect.isawaitable(made) else made


async def _take_answers(turn: HostedTurn, progress: Progress) -> None:
    """Stores the answers that continue the turn as its progress: a later attempt begins after them."""
    decided: JsonObject = {}
    for call_id, decision in turn.decisions.items():
        is_confirmed = decision.answer is None or decision.answer.confirmed
        decided[call_id] = {"confirmed": is_confirmed, "args": decision.call.args or {}}
    for call_id, response in turn.results.items():
        decided[call_id] = {"response": response.get("result", response)}
    for request_id, value in turn.inputs.items():
        decided[request_id.removesuffix("-answer")] = {"response": value}

    if decided:
        progress.decided.update(decided)
        await turn.store(state={"decided": decided})


def _output_event(turn: HostedTurn, output: object) -> Event | None:
    """The event of an output that isn't text."""
    if output is None or isinstance(output, str):
        return None
    return turn.new_event(Part(text=to_json(output, fallback=str).decode()))
