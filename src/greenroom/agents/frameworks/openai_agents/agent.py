"""An agent of the OpenAI Agents SDK as an agent."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any, cast

from greenroom.agents.frameworks.hosted import HostedAgent, HostedTurn
from greenroom.errors import AgentConfigError, MissingExtra

try:
    from agents import Agent, RunConfig, Runner, RunResult
    from agents.exceptions import (
        InputGuardrailTripwireTriggered,
        OutputGuardrailTripwireTriggered,
        ToolInputGuardrailTripwireTriggered,
        ToolOutputGuardrailTripwireTriggered,
    )
    from agents.items import ToolApprovalItem
except ImportError as error:
    raise MissingExtra("openai-agents", "openai-agents") from error

from greenroom.agents.frameworks.model_call import ModelRefused
from greenroom.agents.frameworks.openai_agents.messages import output_text, to_items
from greenroom.agents.frameworks.openai_agents.progress import Progress, input_items
from greenroom.agents.frameworks.openai_agents.recorder import CountingProvider, Recorder, agents_from, check_tools
from greenroom.invocation.user_context import CallbackContext
from greenroom.records.base import JsonObject
from greenroom.records.content import Part
from greenroom.records.event import Event
from greenroom.records.model_exchange import LlmResponse

GUARDRAIL_TRIPWIRE = "GUARDRAIL_TRIPWIRE"

_TRIPWIRES = (
    InputGuardrailTripwireTriggered,
    OutputGuardrailTripwireTriggered,
    ToolInputGuardrailTripwireTriggered,
    ToolOutputGuardrailTripwireTriggered,
)


class OpenAIAgentsAgent(HostedAgent):
    """An agent of the OpenAI Agents SDK, with the agents that it hands over to.

    Its items are kept in the session's log, so that a run that was cut off continues with the calls of tools that
    hadn't returned. Tools that need an approval ask for it by a request; the run then waits. The agent that has the
    conversation at the end of a turn begins the next one. A guardrail's tripwire ends the run with the error
    GUARDRAIL_TRIPWIRE.

    agent: the agent that a conversation begins with.

    context: the run's context, or a function, which may be a coroutine, that makes it for each turn from the
    CallbackContext. What it changes in the context's state is stored with the next event.

    run_config: for each run. max_turns: of the SDK, in a run; None for no limit.

    tracing: whether the SDK traces, too. It sends its traces to OpenAI, unless the app sets other trace processors.
    """

    agent: Any = None
    context: Any = None
    run_config: Any = None
    max_turns: int | None = 10
    tracing: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        given: object = self.agent
        if not isinstance(given, Agent):
            raise AgentConfigError(
                f"{self.name}: agent must be an agent of the OpenAI Agents SDK, not {type(given).__name__}"
            )
        for agent in agents_from(self.agent).values():
            check_tools(agent, hosted_by=self.name)
        self._run_config: RunConfig = self.run_config or RunConfig()

    async def run_framework(self, turn: HostedTurn) -> None:
        progress = Progress(turn.states, is_continued=turn.is_continued)
        if not turn.is_continued:
            progress.begin(to_items(turn.messages))
        await _take_decisions(turn, progress)

        context = CallbackContext(turn.ctx)
        recorder = Recorder(turn, progress, context, root=self.agent, run_config=self._run_config)
        config = dataclasses.replace(
            self._run_config,
            model=None,
            model_provider=CountingProvider(turn, self._run_config.model_provider),
            tracing_disabled=self._run_config.tracing_disabled or not self.tracing,
        )
        try:
            result = await self._run(recorder, config, await self._make_context(context))
        except _TRIPWIRES as error:
            await _end_at_tripwire(turn, recorder, error)
            return
        if result is not None:
            items = [item.to_input_item() for item in result.new_items if not isinstance(item, ToolApprovalItem)]
            await recorder.end(cast("list[JsonObject]", items), _output_event(recorder, result.final_output))

    async def _run(self, recorder: Recorder, config: RunConfig, context: Any) -> RunResult | None:
        """Runs the agent. None if it waits for a person."""
        agent = recorder.first_agent
        progress = recorder.progress
        given: Any = input_items([*progress.history, *progress.input])
        while True:
            result = await Runner.run(agent, given, context=context, run_config=config, max_turns=self.max_turns)
            if not result.interruptions:
                return result

            undecided = [item for item in result.interruptions if item.call_id not in progress.decided]
            if undecided:
                await recorder.ask(undecided)
                return None

            given = result.to_state()
            for item in result.interruptions:
                refusal = recorder.refusal(item)
                if refusal is None:
                    given.approve(item)
                else:
                    given.reject(item, rejection_message=refusal)

    async def _make_context(self, context: CallbackContext) -> Any:
        if not inspect.isroutine(self.context):
            return self.context
        made = self.context(context)
        return await made if inspect.isawaitable(made) else made


async def _take_decisions(turn: HostedTurn, progress: Progress) -> None:
    """Stores the decisions that continue the turn as its progress: a later attempt begins after them."""
    decided: JsonObject = {}
    for call_id, decision in turn.decisions.items():
        is_confirmed = decision.answer is None or decision.answer.confirmed
        decided[call_id] = {"confirmed": is_confirmed, "args": decision.call.args or {}}

    if decided:
        progress.decided.update(decided)
        await turn.store(state={"decided": decided})


async def _end_at_tripwire(turn: HostedTurn, recorder: Recorder, error: Exception) -> None:
    given: Any = error
    guardrail = given.guardrail_result.guardrail if hasattr(given, "guardrail_result") else given.guardrail
    reply = LlmResponse(
        error_code=GUARDRAIL_TRIPWIRE,
        error_message=f"The guardrail {guardrail.get_name()!r} has ended the run",
        usage_metadata=recorder.drop_response(),
    )
    if isinstance(error, InputGuardrailTripwireTriggered):
        state: JsonObject = {"blocked": True}
    else:
        state = recorder.state_with_input({})
    await turn.end_with_error(ModelRefused(reply), state=state)


def _output_event(recorder: Recorder, output: object) -> Event | None:
    """The event of an output that no model has written, as that of a tool whose result is the output."""
    if output is None or not recorder.ends_with_calls:
        return None
    return recorder.turn.new_event(Part(text=output_text(output)))
