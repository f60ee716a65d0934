"""Apps for the tests of the inspector and the pages: a team with tools, state, artifacts, a transfer, parallel branches
and an approval; one that fails; one whose runs never end."""

from __future__ import annotations

import asyncio
from pathlib import Path

from greenroom.agents.agent import BaseAgent
from greenroom.agents.llm_agent import LlmAgent
from greenroom.agents.workflows import ParallelAgent
from greenroom.invocation.user_context import ToolContext
from greenroom.records.content import FunctionCall, Part
from greenroom.records.model_exchange import LlmRequest
from greenroom.testing.scripted_model import Said, ScriptedModel
from greenroom.tools.functions.function_tool import FunctionTool

PICTURE = b'<svg xmlns="http://www.w3.org/2000/svg" width="64" height="64"><circle cx="32" cy="32" r="30" fill="#1a7647"/></svg>'


async def get_weather(city: str, tool_context: ToolContext) -> dict[str, object]:
    """Looks up the weather of a city."""
    tool_context.state["city"] = city
    tool_context.state["visits"] = {"count": len(city), "cities": ["Bergen", city]}
    await tool_context.save_artifact("map.svg", Part.from_bytes(data=PICTURE, mime_type="image/svg+xml"))
    return {"city": city, "degrees": 7, "sky": "rain until the evening, then clear"}


def pay(to: str, amount: float) -> dict[str, object]:
    """Pays money."""
    return {"status": "paid", "to": to, "amount": amount}


def _front(request: LlmRequest) -> Said:
    last = request.contents[-1]
    parts = last.parts or []
    answered = next((part.function_response for part in parts if part.function_response), None)
    text = last.text()
    if answered is not None and answered.name == "get_weather":
        return f"It rains in {(answered.response or {})['city']}, and clears up in the evening."
    if answered is not None:
        return "Paid."
    if "pay" in text:
        return FunctionCall(name="pay", args={"to": "Roof Repairs", "amount": 4200.0})
    if "transfer" in text:
        return FunctionCall(name="transfer_to_agent", args={"agent_name": "research"})
    return FunctionCall(name="get_weather", args={"city": "Bergen" if "Bergen" in text else "Oslo"})


def _fails(request: LlmRequest) -> Said:
    raise RuntimeError("The provider answered 503 three times")


async def _waits(request: LlmRequest) -> Said:
    await asyncio.Event().wait()
    return ""


def inspected_apps() -> list[BaseAgent]:
    research = ParallelAgent(
        name="research",
        description="Asks two readers at once.",
        sub_agents=[
            LlmAgent(name="news_reader", model=ScriptedModel(lambda _: "No news today."), output_key="news"),
            LlmAgent(name="book_reader", model=ScriptedModel(lambda _: "Two books."), output_key="books"),
        ],
    )
    front = LlmAgent(
        name="front",
        description="Knows the weather and pays bills.",
        instruction="You are the front desk. Be brief.",
        model=ScriptedModel(_front),
        tools=[get_weather, FunctionTool(pay, require_confirmation=True)],
        sub_agents=[research],
    )
    return [
        front,
        LlmAgent(name="broken", description="Fails at its first model call.", model=ScriptedModel(_fails)),
        LlmAgent(name="endless", description="Waits for its model.", model=ScriptedModel(_waits)),
    ]


def write_apps(folder: Path) -> None:
    """A folder of apps: one in YAML, one that doesn't load, one without its package."""
    for name, file, text in (
        ("greeter", "root_agent.yaml", "name: greeter\ndescription: Greets.\nmodel: scripted\ninstruction: Greet.\n"),
        ("typo", "agent.py", "from greenroom import LlmAgent\n\nroot_agent = LlmAgent(name='typo', modle='x')\n"),
        ("wheels", "agent.py", "import a_package_that_is_not_there\n"),
    ):
        (folder / name).mkdir(parents=True)
        (folder / name / file).write_text(text)
