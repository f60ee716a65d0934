from __future__ import annotations

from pathlib import Path

from greenroom.agents.llm_agent import LlmAgent
from greenroom.apps.load_directory import DirectoryAppLoader
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.tools.mcp.toolset import McpToolset
from tests.agents.talk import Talk, call, shown

EXAMPLES = Path(__file__).parents[2] / "examples"


async def test_the_librarian_finds_and_reserves_books_at_the_server() -> None:
    agent = DirectoryAppLoader(EXAMPLES / "mcp_library").load("mcp_library").root_agent
    assert isinstance(agent, LlmAgent)
    (toolset,) = agent.tools
    assert isinstance(toolset, McpToolset)
    agent.model = model = ScriptedModel(
        [
            call("search_books", words="le guin"),
            [call("reserve_book", number="B-2", reader="Ada"), call("reserve_book", number="B-3", reader="Ada")],
            call("load_mcp_resource", resource_names=["opening_hours"]),
            "The Left Hand of Darkness is yours.",
        ]
    )
    await toolset.get_tools()  # a process takes its time to start
    talk = Talk(agent, state={"user:name": "Ada"})
    try:
        events = await talk.say("Something by Le Guin, and Emma.")
    finally:
        await talk.runner.close()
    found, reserved, lent, _ = [response.response or {} for e in events for response in e.get_function_responses()]
    assert sorted(found["structuredContent"]) == ["B-1", "B-2"]
    assert reserved["content"][0]["text"] == "The Left Hand of Darkness is reserved for Ada."
    assert lent["isError"] is True
    assert "All copies of Emma are lent." in lent["content"][0]["text"]
    assert shown(model.requests[-1])[-1] == "user: Monday to Friday, nine to six."
    assert "for the reader Ada" in model.requests[0].config.system_text()
