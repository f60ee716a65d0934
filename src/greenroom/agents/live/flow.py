"""The live flow of an LLM agent: passes the client's messages to the model, and makes events of the model's.

Source: ADK's live flow.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import cast

from greenroom.agents.base_llm_agent import BaseLlmAgent
from greenroom.agents.live.conversation import LiveConversation
from greenroom.agents.live.input import ClientInput
from greenroom.agents.live.output import ModelOutput
from greenroom.agents.live.spans import ModelSpans
from greenroom.agents.live.tools import ToolCalls
from greenroom.agents.turn.output import save_output
from greenroom.invocation.context import InvocationContext
from greenroom.records.event import Event


async def run_live_flow(agent: BaseLlmAgent, ctx: InvocationContext) -> AsyncGenerator[Event]:
    """The agent's events until the client or the model closes the conversation; after a transfer,
    the other agent's.
    """
    conversation = LiveConversation(agent, ctx)
    async with aclosing(conversation.channel.run(_run(conversation))) as events:
        async for event in events:
            save_output(agent, event)
            yield event

    if conversation.successor is not None:
        async with aclosing(conversation.successor.run_live(ctx)) as events:
            async for event in events:
                yield event


async def _run(conversation: LiveConversation) -> None:
    """Runs the conversation from the first connection to the end. Raises the error that ended it."""
    spans = ModelSpans(
        conversation.ctx.span,
        agent_name=conversation.agent.name,
        model=conversation.model,
    )

    group = asyncio.TaskGroup()
    calls = ToolCalls(conversation, group.create_task)
    output = ModelOutput(conversation, calls, spans)
    try:
        async with group:
            talking = group.create_task(output.receive())
            listening = group.create_task(ClientInput(conversation, calls).forward())
            end = group.create_task(conversation.over.wait())
            await asyncio.wait((talking, end), return_when=asyncio.FIRST_COMPLETED)
            listening.cancel()
            conversation.connection.end()
            await calls.settle()
            async with calls.storing:  # a call that is being stored is made, too
                talking.cancel()
            end.cancel()
            await calls.settle()
    except BaseExceptionGroup as failures:
        await output.end()
        await conversation.save(conversation.user_audio, conversation.agent_audio)
        error = _innermost(failures)
        if isinstance(error, Exception):
            spans.lose(error)
        raise error from None

    await output.end()
    await conversation.save(conversation.user_audio, conversation.agent_audio)


def _innermost(group: BaseExceptionGroup[BaseException]) -> BaseException:
    first = group.exceptions[0]
    if isinstance(first, BaseExceptionGroup):
        return _innermost(cast("BaseExceptionGroup[BaseException]", first))
    return first
