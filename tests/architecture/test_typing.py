"""Verdicts of type checkers: right use passes, wrong use fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

RIGHT = """
from collections.abc import AsyncIterator
from typing import assert_type

from greenroom import (
    App, AsyncClient, BaseAgent, BaseLlm, CallbackContext, Client, Event, EventActions, FunctionTool, InMemoryRunner,
    InvocationContext, LlmAgent, LlmRequest, LlmResponse, Session, ToolContext, types,
)
from greenroom.records.run import RunError

def remember(city: str, tool_context: ToolContext) -> str:
    tool_context.state["city"] = city
    return "noted"

def before(callback_context: CallbackContext) -> types.Content | None:
    return None

agent = LlmAgent(name="a", model="local/x", tools=[remember, FunctionTool(remember)], before_agent_callback=before)
assert_type(agent.name, str)
assert_type(agent.output_key, str | None)

class Repeater(BaseAgent):
    word: str
    times: int = 2

    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncIterator[Event]:
        yield Event(author=self.name, actions=EventActions(state_delta={"said": self.word * self.times}))

repeater = Repeater(name="r", word="hey", sub_agents=[agent])
assert_type(repeater.times, int)
app = App(name="x", root_agent=repeater)

class Parrot(BaseLlm):
    async def generate_content_async(self, llm_request: LlmRequest, stream: bool = False) -> AsyncIterator[LlmResponse]:
        yield LlmResponse(content=llm_request.contents[-1])

LlmAgent(name="p", model=Parrot(model="parrot"))

async def main() -> None:
    runner = InMemoryRunner(agent=agent, app_name="x")
    session = await runner.session_service.create_session(app_name="x", user_id="u")
    message = types.Content(role="user", parts=[types.Part.from_text(text="hi")])
    async for event in runner.run_async(user_id="u", session_id=session.id, new_message=message):
        assert_type(event, Event)
        assert_type(event.content, types.Content | None)

async def ask(client: AsyncClient) -> None:
    stream = await client.run(app_name="x", user_id="u", session_id="s", message="hi")
    async for event in stream:
        assert_type(event, Event)
    assert_type((await stream.wait()).error, RunError | None)
    assert_type(stream.requests, list[types.FunctionCall])

with Client("http://127.0.0.1:8000", api_key="k") as client:
    assert_type(client.list_apps(), list[str])
    assert_type(client.get_session(app_name="x", user_id="u", session_id="s"), Session)
    for event in client.run(app_name="x", user_id="u", session_id="s", message="hi"):
        assert_type(event, Event)
"""

PREAMBLE = """
from collections.abc import AsyncIterator
from greenroom import BaseAgent, BaseLlm, Event, InMemoryRunner, InvocationContext, LlmAgent, RunConfig, types

class Repeater(BaseAgent):
    word: str
    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncIterator[Event]:
        yield Event(author=self.name)

"""

WRONG = {
    "an agent without a name": "LlmAgent()",
    "a field that does not exist": 'LlmAgent(name="a", modle="x")',
    "a name that is no text": "LlmAgent(name=7)",
    "a positional field": 'LlmAgent("a")',
    "a declared field left out": 'Repeater(name="r")',
    "a declared field of the wrong type": 'Repeater(name="r", word=7)',
    "a strange value of a choice": 'LlmAgent(name="a", include_contents="some")',
    "a part without keyword": 'types.Part("hi")',
    "an event with a misspelt field": 'Event(autor="a")',
    "an event whose branch is no text": "Event(branch=3)",
    "a limit that is no number": 'RunConfig(max_llm_calls="many")',
    "an abstract agent": 'BaseAgent(name="a")',
}


@pytest.fixture(scope="module")
def faults(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Messages of pyright in strict mode, by file."""
    folder = tmp_path_factory.mktemp("typing")
    (folder / "right.py").write_text(RIGHT)
    for number, code in enumerate(WRONG.values()):
        (folder / f"wrong_{number}.py").write_text(f"{PREAMBLE}{code}\n")
    config = {
        "typeCheckingMode": "strict",
        "pythonVersion": "3.11",
        "extraPaths": [str(ROOT / "src")],
        "reportPrivateUsage": False,
        "reportUnusedExpression": False,
        "reportUnusedImport": False,
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(config))
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(folder)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"},
        check=False,
    )
    found: dict[str, list[str]] = {}
    for fault in json.loads(done.stdout)["generalDiagnostics"]:
        if fault["severity"] == "error":
            found.setdefault(Path(fault["file"]).stem, []).append(fault["message"])
    return found


def test_right_use_passes(faults: dict[str, list[str]]) -> None:
    assert faults.get("right", []) == []


@pytest.mark.parametrize("number", range(len(WRONG)), ids=list(WRONG))
def test_wrong_use_fails(number: int, faults: dict[str, list[str]]) -> None:
    assert faults.get(f"wrong_{number}", []) != []
