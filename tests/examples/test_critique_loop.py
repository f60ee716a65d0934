from __future__ import annotations

from pathlib import Path

import pytest

from greenroom import InMemoryRunner, types
from greenroom.agents.llm_agent import LlmAgent
from greenroom.apps.app import App
from greenroom.apps.load_directory import DirectoryAppLoader
from greenroom.testing.scripted_model import ScriptedModel

EXAMPLES = Path(__file__).parents[2] / "examples"
LONG = "The best and most revolutionary umbrella that you will ever own"


@pytest.fixture
def app() -> App:
    return DirectoryAppLoader(EXAMPLES / "critique_loop").load("critique_loop")


def call(name: str) -> types.FunctionCall:
    return types.FunctionCall(name=name, args={})


async def polish(app: App, script: dict[str, list[object]]) -> tuple[list[str], list[object], dict[str, object]]:
    """The messages with their authors, the tool's results, and the state at the end."""
    model = ScriptedModel(script)  # pyright: ignore[reportArgumentType]
    for agent in app.root_agent.walk():
        if isinstance(agent, LlmAgent):
            agent.model = model
    runner = InMemoryRunner(app=app)
    session = await runner.session_service.create_session(app_name="critique_loop", user_id="ada")
    message = types.Content(role="user", parts=[types.Part.from_text(text="An umbrella.")])
    run = runner.run_async(user_id="ada", session_id=session.id, new_message=message)
    events = [event async for event in run]
    stored = await runner.session_service.get_session(app_name="critique_loop", user_id="ada", session_id=session.id)
    assert stored is not None
    said = [f"{event.author}: {event.content.text()}" for event in events if event.content and event.content.text()]
    measured = [r.response for event in events for r in event.get_function_responses() if r.name == "measure"]
    return said, list(measured), stored.state


async def test_a_slogan_is_rewritten_until_the_critic_leaves_the_loop(app: App) -> None:
    said, measured, state = await polish(
        app,
        {
            "writer": [LONG],
            "critic": [call("measure"), "Shorter, and nothing worn out.", call("measure"), call("exit_loop")],
            "editor": ["Rain? Lovely."],
        },
    )
    assert said == [f"writer: {LONG}", "critic: Shorter, and nothing worn out.", "editor: Rain? Lovely."]
    assert measured == [
        {
            "slogan": LONG,
            "words": 11,
            "problems": ["It has 11 words; 8 are the most.", "These words are worn out: best, revolutionary."],
            "is_good": False,
        },
        {"slogan": "Rain? Lovely.", "words": 2, "problems": [], "is_good": True},
    ]
    assert state["slogan"] == "Rain? Lovely."


async def test_a_critic_who_is_never_content_is_heard_three_times(app: App) -> None:
    said, _, state = await polish(
        app, {"writer": ["One."], "critic": ["No.", "No!", "Still no."], "editor": ["Two.", "Three.", "Four."]}
    )
    assert said[-2:] == ["critic: Still no.", "editor: Four."]
    assert len(said) == 7
    assert state["slogan"] == "Four."
