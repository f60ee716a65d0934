"""The client that MCP's conformance suite drives: `python -m tests.tools.mcp.conformance_client URL`.

An agent calls each tool of the server once, and a person accepts each question without filling in anything.
"""

from __future__ import annotations

import asyncio
import sys

from greenroom.agents.llm_agent import LlmAgent
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.tools.mcp.toolset import McpToolset, StreamableHTTPConnectionParams
from tests.agents.human_input.approvals import decide, request_ids
from tests.agents.talk import Talk, call

ARGUMENTS = {"add_numbers": {"a": 2, "b": 3}}


async def main(url: str) -> None:
    toolset = McpToolset(connection_params=StreamableHTTPConnectionParams(url, timeout=20))
    try:
        names = [tool.name for tool in await toolset.get_tools()]
        turns = [call(name, f"c-{name}", **ARGUMENTS.get(name, {})) for name in names]
        talk = Talk(LlmAgent(name="a", model=ScriptedModel([*turns, "done"]), tools=[toolset]))
        events = await talk.say("go")
        while asked := request_ids(events):
            events = await talk.say(decide(*asked))
    finally:
        await toolset.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[-1]))
