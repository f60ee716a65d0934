"""Workflows as the root of an app: how they are given, and what plugins see of them (1.16)."""

from __future__ import annotations

from typing import Any

import pytest

from greenroom import Event as PublicEvent
from greenroom.agents.llm_agent import LlmAgent
from greenroom.agents.workflow.nodes import JoinNode
from greenroom.agents.workflow.workflow import Workflow
from greenroom.apps.app import App
from greenroom.plugins.plugin import BasePlugin
from greenroom.records.content import UserContent
from greenroom.records.event import Event
from greenroom.runner.in_memory import InMemoryRunner
from greenroom.runner.runner import Runner
from greenroom.sessions.in_memory import InMemorySessionService
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.tools.functions.function_tool import FunctionTool
from tests.agents.talk import shown
from tests.agents.workflow.walks import Walk, lines_of


def upper(node_input: str) -> str:
    """Writes it large."""
    return node_input.upper()


def desk() -> Workflow:
    return Workflow(name="desk", edges=[("START", upper)])


async def events_of(runner: Runner) -> list[Event]:
    session = await runner.session_service.create_session(app_name=runner.app_name, user_id="ada")
    run = runner.run_async(user_id="ada", session_id=session.id, new_message=UserContent("hi"))
    return [event async for event in run]


@pytest.mark.parametrize(
    ("runner", "app_name"),
    [
        pytest.param(lambda: InMemoryRunner(node=desk()), "desk", id="InMemoryRunner(node=)"),
        pytest.param(lambda: Runner(node=desk(), session_service=InMemorySessionService()), "desk", id="Runner(node=)"),
        pytest.param(lambda: InMemoryRunner(app=App(name="shop", root_agent=desk())), "shop", id="App(root_agent=)"),
    ],
)
async def test_a_runner_runs_a_workflow(runner: Any, app_name: str) -> None:
    """1.16.1."""
    made = runner()
    assert made.app_name == app_name
    assert lines_of(await events_of(made)) == ["upper@1 = 'HI'"]


class Seeing(BasePlugin):
    def __init__(self) -> None:
        super().__init__(name="seeing")
        self.seen: list[str] = []

    async def before_run_callback(self, **_: Any) -> None:
        self.seen.append("run")

    async def after_run_callback(self, **_: Any) -> None:
        self.seen.append("run ended")

    async def on_event_callback(self, *, event: Event, **_: Any) -> None:
        if not event.is_checkpoint():
            self.seen += [f"event {line}" for line in lines_of([event])]

    async def before_agent_callback(self, *, agent: Any, **_: Any) -> None:
        self.seen.append(f"agent {agent.name}")

    async def before_model_callback(self, *, callback_context: Any, **_: Any) -> None:
        self.seen.append(f"model of {callback_context.agent_name}")

    async def before_tool_callback(self, *, tool: Any, **_: Any) -> None:
        self.seen.append(f"tool {tool.name}")


async def test_plugins_see_the_run_its_events_tools_and_agents() -> None:
    """1.16.4: no hooks for nodes that are functions or joins; the root workflow is an agent here."""
    seeing = Seeing()

    def first(node_input: str) -> str:
        return node_input

    agent = LlmAgent(name="ag", model=ScriptedModel(["done"]))
    workflow = Workflow(name="desk", edges=[("START", first, FunctionTool(upper), JoinNode(name="j"), agent)])
    await events_of(InMemoryRunner(app=App(name="shop", root_agent=workflow, plugins=[seeing])))
    assert seeing.seen == [
        "run",
        "agent desk",
        "event first@1 = 'hi'",
        "tool upper",
        "event upper@1 = 'HI'",
        "event j@1 = {'upper': 'HI'}",
        "agent ag",
        "model of ag",
        "event ag@1 'done'",
        "run ended",
    ]


async def test_a_message_of_a_node_is_no_users_message_to_later_agents() -> None:
    """1.17.5."""

    async def says(node_input: Any) -> Any:
        yield PublicEvent(message="Working on it.")

    walk = Walk(Workflow(name="wf", edges=[("START", says)]))
    events = await walk.go("hi")
    assert events[0].content is not None
    assert events[0].content.role == "user"  # as ADK writes it; the prompt of later agents names the node
    model = ScriptedModel(["done"])
    sessions = walk.runner.session_service
    later = Runner(agent=LlmAgent(name="ag", model=model), app_name="wf", session_service=sessions)
    async for _ in later.run_async(user_id="ada", session_id="s-1", new_message=UserContent("and now?")):
        pass
    contents = shown(model.requests[0])
    assert "[wf] said: " in str(contents)
    assert "user: hi" in contents
    assert "user: Working on it." not in contents
