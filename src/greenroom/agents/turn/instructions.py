"""The system text of a request: instructions with their variables filled in, and who the agent is."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from greenroom.invocation.context import InvocationContext
from greenroom.invocation.template import inject_session_state
from greenroom.invocation.user_context import ReadonlyContext

if TYPE_CHECKING:
    from greenroom.agents.llm_agent import Instruction, LlmAgent


async def _resolve(instruction: Instruction, ctx: InvocationContext, agent_name: str) -> str:
    if isinstance(instruction, str):
        return await inject_session_state(instruction, ctx, agent_name=agent_name)
    text = instruction(ReadonlyContext(ctx))
    if inspect.isawaitable(text):
        text = await text
    return text


async def system_text(agent: LlmAgent, ctx: InvocationContext) -> str:
    """The instructions, the stable ones first so that providers' prompt caches hold, and who the agent is."""
    texts: list[str] = []
    if agent.shared_instruction:
        texts.append(await _resolve(agent.shared_instruction, ctx, agent.root_agent.name))
    if agent.static_instruction:
        texts.append(agent.static_instruction)
    if agent.instruction:
        texts.append(await _resolve(agent.instruction, ctx, agent.name))
    identity = f'You are the agent "{agent.name}".'
    if agent.description:
        identity += f" This is what you are for: {agent.description}"
    texts.append(identity)
    return "\n\n".join(filter(None, texts))
