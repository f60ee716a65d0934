"""The snippets of the public API run as they stand, with the names that they presuppose."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from greenroom import BaseAgent, InMemoryRunner, LlmAgent, LLMRegistry, types
from greenroom.testing import ScriptedModel

AN_AGENT = '''
from greenroom import LlmAgent, ToolContext

def get_weather(city: str, unit: str = "celsius") -> dict:
    """Current weather of a city.

    Args:
        city: Name of the city.
        unit: "celsius" or "fahrenheit".
    """
    return {"city": city, "temp": 18, "unit": unit}

def remember_city(city: str, tool_context: ToolContext) -> str:
    """Remembers the user's home city."""
    tool_context.state["user:home"] = city
    return "noted"

root_agent = LlmAgent(
    name="weather",
    model="local/smollm2-135m",            # or "gemini-…", "claude-…", "openai/…", or any BaseLlm
    instruction="Answer questions about the weather. The user's home is {user:home?}.",
    tools=[get_weather, remember_city],
)
'''

RUNNING = """
import asyncio
from greenroom import InMemoryRunner, types

async def main():
    runner = InMemoryRunner(agent=root_agent, app_name="weather")
    session = await runner.session_service.create_session(app_name="weather", user_id="ada")
    message = types.Content(role="user", parts=[types.Part.from_text(text="How is the weather in Oslo?")])
    async for event in runner.run_async(user_id="ada", session_id=session.id, new_message=message):
        if event.is_final_response():
            print(event.content.parts[0].text)

asyncio.run(main())
"""

OWN_MODEL = """
from collections.abc import AsyncIterator
from greenroom import BaseLlm, LlmRequest, LlmResponse, types

class Parrot(BaseLlm):
    async def generate_content_async(self, llm_request: LlmRequest, stream: bool = False) -> AsyncIterator[LlmResponse]:
        text = llm_request.contents[-1].parts[-1].text or ""
        if stream:
            for word in text.split():
                yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text=word + " ")]), partial=True)
        yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text=text)]))

agent = LlmAgent(name="parrot", model=Parrot(model="parrot"))
"""

TOOLS = '''
from greenroom import AgentTool, FunctionTool, LongRunningFunctionTool, McpToolset, StdioServerParameters

def pay(amount: int) -> dict:
    """Pays an amount."""
    return {"status": "paid", "amount": amount}

tools = [
    FunctionTool(pay, require_confirmation=True),           # or a predicate on the arguments; on_interrupt="report" | "retry"
    LongRunningFunctionTool(start_job),
    AgentTool(agent=researcher),
    McpToolset(connection_params=StdioServerParameters(command="npx", args=["-y", "some-server"]), tool_filter=["read_file"]),
]
'''

TEAMS = """
from greenroom import BaseAgent, Event, InvocationContext, LoopAgent, ParallelAgent, SequentialAgent

team = SequentialAgent(name="team", sub_agents=[ParallelAgent(name="research", sub_agents=[web, papers]), LoopAgent(name="polish", sub_agents=[writer, critic], max_iterations=3)])

class Router(BaseAgent):
    async def _run_async_impl(self, ctx: InvocationContext):
        chosen = self.find_agent("night" if ctx.session.state.get("late") else "day")
        async for event in chosen.run_async(ctx):
            yield event
"""

SERVER = """
from greenroom import SqliteSessionService
from greenroom.server import create_app

asgi = create_app(agents_dir="agents", session_service=SqliteSessionService("greenroom.db"))   # mount it in any ASGI application
"""


@pytest.fixture(autouse=True)
def local_model() -> Any:
    factories, models = LLMRegistry._factories, LLMRegistry._models
    LLMRegistry._factories, LLMRegistry._models = dict(factories), {}
    model = ScriptedModel(lambda _: "It is 18 degrees.")
    LLMRegistry.register(r"local/.+", lambda _: model)
    yield model
    LLMRegistry._factories, LLMRegistry._models = factories, models


def run(snippet: str, **presupposed: Any) -> dict[str, Any]:
    module = sys.modules["api_snippet"] = ModuleType("api_snippet")
    vars(module).update(presupposed)
    exec(snippet, vars(module))
    return vars(module)


def agent(name: str) -> LlmAgent:
    return LlmAgent(name=name, model=ScriptedModel(lambda _: f"{name} is done."))


async def said(root: BaseAgent, **state: Any) -> list[str]:
    runner = InMemoryRunner(agent=root, app_name="app")
    session = await runner.session_service.create_session(app_name="app", user_id="ada", state=state)
    events = runner.run_async(user_id="ada", session_id=session.id, new_message=types.UserContent("hello there"))
    return [event.content.text() async for event in events if event.is_final_response() and event.content is not None]


def test_an_agent_runs_without_a_server(capsys: pytest.CaptureFixture[str]) -> None:
    run(RUNNING, root_agent=run(AN_AGENT)["root_agent"])
    assert capsys.readouterr().out == "It is 18 degrees.\n"


def test_every_final_response_of_a_team_has_text(capsys: pytest.CaptureFixture[str]) -> None:
    names = {name: agent(name) for name in ("web", "papers", "writer", "critic")}
    run(RUNNING, root_agent=run(TEAMS, **names)["team"])
    lines = capsys.readouterr().out.splitlines()
    assert sorted(lines[:2]) == ["papers is done.", "web is done."]
    assert lines[2:] == ["writer is done.", "critic is done."] * 3


async def test_a_model_of_ones_own_repeats_what_it_hears() -> None:
    assert await said(run(OWN_MODEL, LlmAgent=LlmAgent)["agent"]) == ["hello there"]


def test_the_tools_can_be_made() -> None:
    def start_job(what: str) -> None:
        """Starts a job."""

    tools = run(TOOLS, start_job=start_job, researcher=agent("researcher"))["tools"]
    assert [getattr(tool, "name", None) for tool in tools[:3]] == ["pay", "start_job", "researcher"]
    LlmAgent(name="a", tools=tools)


async def test_a_router_asks_the_agent_that_it_chose() -> None:
    names = {name: agent(name) for name in ("web", "papers", "writer", "critic")}
    router = run(TEAMS, **names)["Router"]
    assert await said(router(name="router", sub_agents=[agent("day"), agent("night")]), late=True) == ["night is done."]


async def test_the_server_can_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "agents").mkdir()
    monkeypatch.chdir(tmp_path)
    await run(SERVER)["asgi"].engine.close()
