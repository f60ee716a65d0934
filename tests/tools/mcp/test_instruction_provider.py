"""An instruction that is a prompt of a real MCP server. Row 7.14."""

from __future__ import annotations

import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.tools.mcp.connection_params import ConnectionParams
from greenroom.tools.mcp.instruction_provider import McpInstructionProvider
from tests.agents.talk import Talk
from tests.tools.mcp.conftest import Log, Transport, each_transport


@each_transport
async def test_a_prompt_becomes_the_instruction_with_arguments_from_the_state(
    params: ConnectionParams, transport: Transport, log: Log
) -> None:
    model = ScriptedModel(["hi"], loop=True)
    agent = LlmAgent(name="clerk", model=model, instruction=McpInstructionProvider(params, "clerk"))
    talk = Talk(agent, state={"shop": "Faulks", "other": "left out"})
    await talk.say("hello")
    await talk.say("hello", state_delta={"mood": "brief"})
    await talk.runner.close()
    texts = [request.config.system_text() for request in model.requests]
    assert texts[0].startswith("You work at Faulks. Be friendly.\n")
    assert texts[1].startswith("You work at Faulks. Be brief.\n")
    if transport == "stdio":
        assert len(log.process_ids()) == 1


async def test_a_prompt_without_texts_fails_the_run(params: ConnectionParams) -> None:
    agent = LlmAgent(name="clerk", model=ScriptedModel([]), instruction=McpInstructionProvider(params, "picture"))
    talk = Talk(agent)
    with pytest.raises(ValueError, match=r"'picture' of MCP server .* has no text"):
        await talk.say("hello")
    await talk.runner.close()
