from __future__ import annotations

from pathlib import Path

import pytest

from greenroom import InMemoryRunner, LlmAgent, types
from greenroom.apps.app import App
from greenroom.apps.load_directory import DirectoryAppLoader
from greenroom.testing.scripted_model import ScriptedModel

EXAMPLES = Path(__file__).parents[2] / "examples"

LEAVE = types.FunctionCall(name="exit_loop", args={})


@pytest.fixture
def app() -> App:
    return DirectoryAppLoader(EXAMPLES).load("yaml_team")


def test_it_is_written_in_yaml_only() -> None:
    assert DirectoryAppLoader(EXAMPLES).language("yaml_team") == "yaml"
    assert {path.suffix for path in (EXAMPLES / "yaml_team").rglob("*") if path.is_file()} == {".yaml"}


async def write_story(app: App, critic: list[object]) -> tuple[ScriptedModel, list[str], dict[str, object]]:
    """The model, who spoke, and the state at the end."""
    script: dict[str, list[object]] = {
        "planner": ["A fox meets a lamp."],
        "writer": ["First draft.", "Second draft."],
        "critic": critic,
        "titler": ["The Fox"],
    }
    model = ScriptedModel(script)  # pyright: ignore[reportArgumentType]
    for agent in app.root_agent.walk():
        if isinstance(agent, LlmAgent):
            assert agent.model == "local/smollm2-135m"
            agent.model = model
    runner = InMemoryRunner(app=app)
    session = await runner.session_service.create_session(app_name="yaml_team", user_id="ada")
    message = types.UserContent("A story about a fox")
    run = runner.run_async(user_id="ada", session_id=session.id, new_message=message)
    authors = [event.author async for event in run if event.content is not None and event.content.role == "model"]
    stored = await runner.session_service.get_session(app_name="yaml_team", user_id="ada", session_id=session.id)
    assert stored is not None
    return model, authors, dict(stored.state)


async def test_the_critic_ends_the_loop(app: App) -> None:
    model, authors, state = await write_story(app, ["Too short.", LEAVE])
    assert authors == ["planner", "writer", "critic", "writer", "critic", "titler"]
    second = model.requests[3].config.system_text()
    for text in ("A fox meets a lamp.", "First draft.", "Too short."):
        assert text in second
    assert (state["draft"], state["title"]) == ("Second draft.", "The Fox")
    assert "Second draft." in model.requests[-1].config.system_text()


async def test_two_rounds_are_the_most(app: App) -> None:
    _, authors, state = await write_story(app, ["Too short.", "Too long."])
    assert authors == ["planner", *["writer", "critic"] * 2, "titler"]
    assert state["draft"] == "Second draft."


async def test_the_settings_reach_the_model(app: App) -> None:
    model, _, _ = await write_story(app, [LEAVE])
    planner, writer, critic, titler = (request.config for request in model.requests)
    assert [config.temperature for config in (planner, writer, critic, titler)] == [0.8, 0.8, 0, None]
    assert [config.max_output_tokens for config in (planner, writer, critic, titler)] == [200, 250, 100, 20]
