"""What an agent is told in a request: instructions with their variables filled in, and who it is."""

from __future__ import annotations

import inspect
from collections.abc import MutableSequence, Sequence

from greenroom.agents.base_llm_agent import BaseLlmAgent, Instruction, static_parts
from greenroom.invocation.context import InvocationContext
from greenroom.invocation.template import inject_session_state
from greenroom.invocation.user_context import ReadonlyContext
from greenroom.records.content import INSTRUCTIONS_PREFIX, Content, Part


async def _resolve(instruction: Instruction, ctx: InvocationContext, agent_name: str) -> str:
    if isinstance(instruction, str):
        return await inject_session_state(instruction, ctx, agent_name=agent_name)
    text = instruction(ReadonlyContext(ctx))
    if inspect.isawaitable(text):
        text = await text
    return text


async def system_text(agent: BaseLlmAgent, ctx: InvocationContext) -> str:
    """The instructions, the stable ones first so that providers' prompt caches hold, and who the agent is."""
    texts: list[str] = []
    if agent.shared_instruction:
        texts.append(await _resolve(agent.shared_instruction, ctx, agent.root_agent.name))
    if agent.static_instruction:
        media = 0
        for part in static_parts(agent.static_instruction):
            if part.text is None:
                media += 1
            texts.append(part.text if part.text is not None else f"(See {_media_name(media)} in the first message.)")
    if agent.instruction and not _is_among_contents(agent, ctx):
        texts.append(await _resolve(agent.instruction, ctx, agent.name))
    identity = f'You are the agent "{agent.name}".'
    if agent.description:
        identity += f" This is what you are for: {agent.description}"
    texts.append(identity)
    return "\n\n".join(filter(None, texts))


async def put_among_contents(agent: BaseLlmAgent, ctx: InvocationContext, contents: MutableSequence[Content]) -> None:
    """Puts the media of a static instruction before all messages, and the other instruction before the newest ones, so
    that it can change from turn to turn while the system text stays as it is. Source: ADK."""
    media = [part for part in static_parts(agent.static_instruction) if part.text is None]
    if media:
        named = ((Part(text=f"{_media_name(number)}:"), part) for number, part in enumerate(media, 1))
        contents.insert(0, Content(role="user", parts=[part for pair in named for part in pair]))
    if not agent.instruction or not _is_among_contents(agent, ctx):
        return
    text = await _resolve(agent.instruction, ctx, agent.name)
    if text:
        fenced = f"<instructions>\n{text}\n</instructions>"
        told = Content(role="user", parts=[Part(text=INSTRUCTIONS_PREFIX), Part(text=fenced)])
        contents.insert(_newest_messages_at(contents), told)


def _media_name(number: int) -> str:
    return f"attachment {number} of the instructions"


def _is_among_contents(agent: BaseLlmAgent, ctx: InvocationContext) -> bool:
    """Not in a live run, which sends its system text once."""
    return bool(agent.static_instruction) and ctx.live_request_queue is None


def _newest_messages_at(contents: Sequence[Content]) -> int:
    """Function responses are a user's contents too, but stay with their calls."""
    for index in range(len(contents) - 1, -1, -1):
        content = contents[index]
        if content.role != "user" or any(part.function_response is not None for part in content.parts or ()):
            return index + 1
    return 0
