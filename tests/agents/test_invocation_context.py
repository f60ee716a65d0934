"""Members of the contexts that agents written for ADK use (rows 2.2.2, 2.2.3, 2.2.11, 2.2.13, 2.2.14, 12.4, 12.7)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest

from greenroom.agents.agent import BaseAgent
from greenroom.agents.llm_agent import LlmAgent
from greenroom.agents.workflows import SequentialAgent
from greenroom.apps.app import App, ResumabilityConfig
from greenroom.errors import AgentConfigError, InvalidRequest, LlmCallsLimitExceeded
from greenroom.invocation.context import InvocationContext
from greenroom.invocation.user_context import Context, ToolContext
from greenroom.memory.in_memory import InMemoryMemoryService
from greenroom.plugins.plugin import BasePlugin, PluginManager
from greenroom.records.auth import AuthConfig, AuthCredential, AuthCredentialTypes, AuthScheme
from greenroom.records.content import FunctionCall, ModelContent, UserContent
from greenroom.records.event import Event, UiWidget
from greenroom.records.listings import MemoryEntry
from greenroom.records.run import RunConfig
from greenroom.runner.in_memory import InMemoryRunner
from greenroom.runner.runner import Runner
from greenroom.sessions.in_memory import InMemorySessionService
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.tools.functions.function_tool import FunctionTool, LongRunningFunctionTool

WHERE: dict[str, Any] = {"user_id": "ada", "session_id": "s"}


class Asking(BaseAgent):
    """Calls a function with its context, then yields three events, as far as it gets."""

    ask: Callable[[InvocationContext], Any]

    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event]:
        for number in range(3):
            if number == 1:
                self.ask(ctx)
            yield Event(author=self.name, content=ModelContent(f"{number}"))


async def run(agent: BaseAgent, *, is_resumable: bool = False, config: RunConfig | None = None) -> list[Event]:
    app = App(name="a", root_agent=agent, resumability_config=ResumabilityConfig(is_resumable=is_resumable))
    runner = InMemoryRunner(app=app)
    await runner.session_service.create_session(app_name="a", **WHERE)
    events = runner.run_async(**WHERE, new_message=UserContent("hi"), run_config=config)
    return [event async for event in events]


async def test_a_run_that_is_aborted_ends_after_its_next_event() -> None:
    def abort(ctx: InvocationContext) -> None:
        assert not ctx.is_aborted
        ctx.abort()
        assert Context(ctx).is_aborted

    last = Asking(name="last", ask=lambda ctx: None)
    events = await run(SequentialAgent(name="a", sub_agents=[Asking(name="first", ask=abort), last]))
    assert [event.content and event.content.text() for event in events] == ["0", "1", None]
    assert events[-1].error_code == "INVOCATION_ABORTED"


async def test_calls_of_an_aborted_run_are_answered() -> None:
    def before(callback_context: Context, llm_response: Any) -> None:
        callback_context.get_invocation_context().abort()

    agent = LlmAgent(
        name="a", model=ScriptedModel([FunctionCall(name="f")]), tools=[lambda: 1], after_model_callback=before
    )
    agent.tools = [FunctionTool(lambda: 1, name="f")]
    (call, aborted) = await run(agent)
    assert [r.id for r in aborted.get_function_responses()] == [call.get_function_calls()[0].id]
    assert aborted.error_code == "INVOCATION_ABORTED"


async def test_checkpoints_of_the_run_can_be_read_and_set() -> None:
    def ask(ctx: InvocationContext) -> None:
        assert ctx.agent_states == {"a": {"current_sub_agent": "child"}}
        assert ctx.end_of_agents == {"a": False}
        ctx.set_agent_state("child", agent_state={"step": 1})
        assert ctx.agent_states["child"] == {"step": 1}
        ctx.set_agent_state("child", end_of_agent=True)
        assert ctx.end_of_agents["child"]
        assert "child" not in ctx.agent_states
        ctx.model_copy(update={"agent": agent}).reset_sub_agent_states("a")
        assert "child" not in ctx.end_of_agents

    agent = SequentialAgent(name="a", sub_agents=[Asking(name="child", ask=ask)])
    assert (await run(agent))[-1].error_code is None


async def test_model_calls_of_ones_own_are_counted() -> None:
    agent = Asking(name="a", ask=lambda ctx: [ctx.increment_llm_call_count() for _ in range(3)])
    with pytest.raises(LlmCallsLimitExceeded):
        await run(agent, config=RunConfig(max_llm_calls=2))


async def test_an_open_long_running_call_pauses_resumable_apps_only() -> None:
    paused: dict[bool, list[bool]] = {True: [], False: []}

    class Watch(BaseAgent):
        async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event]:
            async for event in self.sub_agents[0].run_async(ctx):
                yield event
                paused[ctx.is_resumable].append(ctx.should_pause_invocation(event))

    for is_resumable in (True, False):
        model = ScriptedModel([FunctionCall(name="job"), "waits"])
        child = LlmAgent(name="child", model=model, tools=[LongRunningFunctionTool(lambda: None, name="job")])
        await run(Watch(name="a", sub_agents=[child]), is_resumable=is_resumable)
    assert paused[True][0]
    assert not any(paused[False])


async def test_a_granted_credential_is_found_by_its_key() -> None:
    found: list[Any] = []

    async def f(tool_context: ToolContext) -> None:
        assert tool_context.get_credential("k") is None
        config = AuthConfig(auth_scheme=AuthScheme(type="http", scheme="bearer"), credential_key="k")
        await tool_context.save_credential(
            config, AuthCredential(auth_type=AuthCredentialTypes.API_KEY, api_key="secret")
        )
        found.append(tool_context.get_credential("k"))

    await run(LlmAgent(name="a", model=ScriptedModel([FunctionCall(name="f"), "done"]), tools=[f]))
    assert found[0].api_key == "secret"


async def test_a_tool_shows_a_widget_once() -> None:
    def f(tool_context: ToolContext) -> None:
        tool_context.render_ui_widget(UiWidget(id="w", provider="mcp", payload={"resource_uri": "ui://x"}))
        with pytest.raises(InvalidRequest):
            tool_context.render_ui_widget(UiWidget(id="w", provider="mcp"))

    events = await run(LlmAgent(name="a", model=ScriptedModel([FunctionCall(name="f"), "done"]), tools=[f]))
    assert events[1].actions.render_ui_widgets == [
        {"id": "w", "provider": "mcp", "payload": {"resource_uri": "ui://x"}}
    ]


async def test_a_memory_is_deleted_by_its_id() -> None:
    memory = InMemoryMemoryService()

    async def f(tool_context: ToolContext) -> list[int]:
        await tool_context.add_memory(memories=[MemoryEntry(id="m", content=UserContent("pear"))])
        before = await tool_context.search_memory("pear")
        await tool_context.delete_memory("none")
        await tool_context.delete_memory("m")
        return [len(before.memories), len((await tool_context.search_memory("pear")).memories)]

    agent = LlmAgent(name="a", model=ScriptedModel([FunctionCall(name="f"), "done"]), tools=[f])
    sessions = InMemorySessionService()
    runner = Runner(agent=agent, app_name="a", session_service=sessions, memory_service=memory)
    await runner.session_service.create_session(app_name="a", **WHERE)
    events = [e async for e in runner.run_async(**WHERE, new_message=UserContent("hi"))]
    assert events[1].get_function_responses()[0].response == {"result": [1, 0]}


async def test_the_contexts_name_their_services_plugins_and_place() -> None:
    seen: dict[str, Any] = {}

    def ask(ctx: InvocationContext) -> None:
        seen.update(
            sessions=ctx.session_service,
            artifacts=ctx.artifact_service,
            memory=ctx.memory_service,
            path=ctx.node_path,
            scope=ctx.isolation_scope,
            plugin=ctx.plugin_manager.get_plugin("p"),
            metadata=Context(ctx).custom_metadata,
        )

    plugin = BasePlugin("p")
    runner = InMemoryRunner(Asking(name="a", ask=ask), app_name="a", plugins=[plugin])
    await runner.session_service.create_session(app_name="a", **WHERE)
    config = RunConfig(custom_metadata={"of": "the run"})
    assert [e async for e in runner.run_async(**WHERE, new_message=UserContent("hi"), run_config=config)]
    assert (seen["sessions"], seen["artifacts"]) == (runner.session_service, runner.artifact_service)
    assert (seen["path"], seen["scope"], seen["plugin"]) == (None, None, plugin)
    assert seen["metadata"] == {"of": "the run"}


def test_plugins_are_registered_by_name() -> None:
    manager = PluginManager()
    manager.register_plugin(BasePlugin("p"))
    assert [plugin.name for plugin in manager.plugins] == ["p"]
    assert manager.get_plugin("q") is None
    with pytest.raises(AgentConfigError):
        manager.register_plugin(BasePlugin("p"))
