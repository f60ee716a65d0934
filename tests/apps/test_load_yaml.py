"""Every key that a file may have, by what a run makes of it."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from typing import Any, cast

import pytest

from greenroom import BaseTool, BaseToolset, LlmAgent, LoopAgent, ParallelAgent, SequentialAgent, types
from greenroom.agents.agent import BaseAgent
from greenroom.agents.agent_tool import AgentTool
from greenroom.agents.base_llm_agent import static_parts
from greenroom.agents.planning import BuiltInPlanner, PlanReActPlanner
from greenroom.apps.component_registry import ComponentRegistry
from greenroom.apps.load_directory import DirectoryAppLoader
from greenroom.apps.load_yaml import load_agent
from greenroom.apps.yaml_config.keys import camel
from greenroom.code_executors.agent_engine import AgentEngineSandboxCodeExecutor
from greenroom.code_executors.cloud_run import CloudRunSandboxCodeExecutor
from greenroom.code_executors.container import ContainerCodeExecutor
from greenroom.code_executors.executor import BaseCodeExecutor, BuiltInCodeExecutor
from greenroom.code_executors.gke import GkeCodeExecutor
from greenroom.code_executors.sandboxed import SandboxCodeExecutor
from greenroom.code_executors.unsafe_local import UnsafeLocalCodeExecutor
from greenroom.code_executors.vertex import VertexAiCodeExecutor
from greenroom.errors import AgentConfigError
from greenroom.records import wire
from greenroom.records.base import JsonObject
from greenroom.records.content import Part
from greenroom.records.generation import GenerateContentConfig, SafetySetting, ThinkingConfig
from tests.apps.conftest import AgentsDir
from tests.apps.yaml_apps import call, events_of, load, load_llm, request_of, said, scripted

ROOT = "shop/root_agent.yaml"

PLAIN = "name: shop\nmodel: scripted\ninstruction: Sell.\n"

CUSTOM = """
from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from greenroom import BaseAgent, BaseLlm, Event, LlmAgent, types

if TYPE_CHECKING:
    from collections.abc import Callable


class TicketAgent(BaseAgent):
    queue_limit: int = 1
    opening_hours: dict[str, list[int]] = field(default_factory=dict)
    answer: object = None
    on_full_callback: object = None

    async def _run_async_impl(self, ctx):
        text = f"{self.queue_limit} {self.opening_hours} {self.answer} {self.on_full_callback}"
        yield Event(author=self.name, content=types.ModelContent(text))


class Host(LlmAgent):
    instruction: str = "Be a host."
    house: str = ""


def later(**_):
    return None


ANSWER = "forty-two"
"""


@pytest.fixture(autouse=True)
def registry() -> Iterator[ComponentRegistry]:
    fresh = ComponentRegistry()
    ComponentRegistry.set_instance(fresh)
    yield fresh
    ComponentRegistry.set_instance(None)


# 1.1: files and keys


async def test_an_agent_in_yaml_answers(agents_dir: AgentsDir) -> None:
    agents_dir.write(ROOT, PLAIN)
    assert await said(load(agents_dir.path), ["Hello."]) == [("shop", "Hello.")]


def test_a_file_may_be_written_in_json(agents_dir: AgentsDir) -> None:
    agents_dir.write(ROOT, '{"name": "shop",\n"instruction": "x", "generateContentConfig": {"temperature": 1e-1}}')
    config = load_llm(agents_dir.path).generate_content_config
    assert config is not None
    assert config.temperature == 0.1


async def test_files_with_a_byte_order_mark_are_read(agents_dir: AgentsDir) -> None:
    path = agents_dir.write(ROOT, "")
    path.write_bytes(PLAIN.replace("Sell.", "Käse").encode("utf-8-sig"))
    assert (await request_of(load(agents_dir.path))).config.system_text().startswith("Käse")


@pytest.mark.parametrize("keys", ["snake", "camel"])
def test_keys_are_taken_in_both_styles(agents_dir: AgentsDir, keys: str) -> None:
    text = """
    agent_class: LlmAgent
    name: shop
    instruction: x
    output_key: last
    include_contents: none
    disallow_transfer_to_parent: true
    disallow_transfer_to_peers: true
    max_steps: 3
    generate_content_config: {max_output_tokens: 7, thinking_config: {include_thoughts: true}}
    sub_agents: [{config_path: loop.yaml}]
    """
    loop = "agent_class: LoopAgent\nname: loop\nmax_iterations: 2"
    if keys == "camel":
        text, loop = (_in_camel(one) for one in (text, loop))
    agents_dir.write(ROOT, text)
    agents_dir.write("shop/loop.yaml", loop)
    agent = load_llm(agents_dir.path)
    assert (agent.output_key, agent.include_contents, agent.max_steps) == ("last", "none", 3)
    assert agent.disallow_transfer_to_parent
    assert agent.disallow_transfer_to_peers
    assert agent.generate_content_config == GenerateContentConfig(
        max_output_tokens=7, thinking_config=ThinkingConfig(include_thoughts=True)
    )
    (child,) = agent.sub_agents
    assert isinstance(child, LoopAgent)
    assert child.max_iterations == 2


def _in_camel(text: str) -> str:
    words = text.split("_")
    return words[0] + "".join(word[:1].upper() + word[1:] for word in words[1:])


@pytest.mark.parametrize("word", ["none", "NONE", "None"])
def test_words_are_taken_in_any_case(agents_dir: AgentsDir, word: str) -> None:
    agents_dir.write(ROOT, PLAIN + f"include_contents: {word}")
    assert load_llm(agents_dir.path).include_contents == "none"


def test_keys_of_ones_own_are_never_rewritten(agents_dir: AgentsDir) -> None:
    agents_dir.write(
        "shop/tools.py",
        "from greenroom import FunctionTool\ndef f(): 'x'\ndef make(args):\n"
        "    return FunctionTool(f, custom_metadata=args['env'])",
    )
    agents_dir.write(ROOT, PLAIN + "tools: [{name: .tools.make, args: {env: {API_KEY: k, someKey: v}}}]")
    (tool,) = load_llm(agents_dir.path).tools
    assert isinstance(tool, BaseTool)
    assert tool.custom_metadata == {"API_KEY": "k", "someKey": "v"}


def test_anchors_and_merge_keys_are_resolved(agents_dir: AgentsDir) -> None:
    agents_dir.write(
        ROOT,
        """
        name: shop
        instruction: &words Sell.
        static_instruction: *words
        generate_content_config: {<<: &warm {temperature: 1}, top_k: 2}
        """,
    )
    agent = load_llm(agents_dir.path)
    assert agent.static_instruction == "Sell."
    assert agent.generate_content_config == GenerateContentConfig(temperature=1, top_k=2)


def test_dates_stay_text(agents_dir: AgentsDir) -> None:
    agents_dir.write(ROOT, "name: shop\ninstruction: 2024-01-31")
    assert load_llm(agents_dir.path).instruction == "2024-01-31"


# 1.2: every agent


async def test_agent_callbacks_are_asked_in_order(agents_dir: AgentsDir) -> None:
    agents_dir.write(
        "shop/hooks.py",
        """
        from greenroom import types
        def first(callback_context): callback_context.state["asked"] = "first"
        def closed(callback_context): return types.ModelContent(f"Closed, {callback_context.state['asked']}.")
        def never(callback_context): raise RuntimeError("must not be asked")
        def bye(callback_context): return types.ModelContent("Bye.")
        """,
    )
    before = "before_agent_callbacks: [{name: shop.hooks.first}, {name: .hooks.closed}, {name: hooks.never}]\n"
    agents_dir.write(ROOT, PLAIN + before)
    assert await said(load(agents_dir.path), []) == [("shop", "Closed, first.")]
    agents_dir.write(ROOT, PLAIN + "after_agent_callbacks: [{name: shop.hooks.bye}]")
    assert await said(load(agents_dir.path), ["Hello."]) == [("shop", "Hello."), ("shop", "Bye.")]


async def test_the_description_is_given_to_agents_that_may_transfer(agents_dir: AgentsDir) -> None:
    agents_dir.write(ROOT, PLAIN + "sub_agents: [{config_path: cook.yaml}]")
    agents_dir.write("shop/cook.yaml", "name: cook\ninstruction: x\ndescription: Knows the menu.")
    request = await request_of(load(agents_dir.path))
    assert "Knows the menu." in request.config.system_text()


# 1.3: agent classes


@pytest.mark.parametrize(
    "name",
    ["LlmAgent", "Agent", "greenroom.agents.llm_agent.LlmAgent", "greenroom.LlmAgent", "google.adk.agents.LlmAgent",
     "google.adk.agents.llm_agent.LlmAgent", "com.google.adk.agents.LlmAgent"],
)  # fmt: skip
def test_names_of_the_llm_agent(agents_dir: AgentsDir, name: str) -> None:
    agents_dir.write(ROOT, f"agent_class: {name}\n{PLAIN}")
    assert type(load(agents_dir.path)) is LlmAgent


async def test_a_sequence_of_agents(agents_dir: AgentsDir) -> None:
    agents_dir.write(
        ROOT, "agent_class: SequentialAgent\nname: shop\nsub_agents: [{config_path: a.yaml}, {config_path: b.yaml}]"
    )
    for name in "ab":
        agents_dir.write(f"shop/{name}.yaml", f"name: {name}\nmodel: scripted\ninstruction: x")
    agent = load(agents_dir.path)
    assert type(agent) is SequentialAgent
    assert await said(agent, ["one", "two"]) == [("a", "one"), ("b", "two")]


async def test_agents_side_by_side(agents_dir: AgentsDir) -> None:
    agents_dir.write(
        ROOT,
        "agent_class: ParallelAgent\nname: shop\nstate_reducers: {found: append, best: .own.best}\n"
        "sub_agents: [{config_path: a.yaml}, {config_path: b.yaml}]",
    )
    agents_dir.write("shop/own.py", "def best(values): return max(values)")
    for name in "ab":
        agents_dir.write(f"shop/{name}.yaml", f"name: {name}\nmodel: scripted\ninstruction: x")
    agent = load(agents_dir.path)
    assert isinstance(agent, ParallelAgent)
    assert agent.state_reducers["found"] == "append"
    assert agent.state_reducers["best"]([1, 3, 2]) == 3  # pyright: ignore[reportCallIssue]
    lines = await said(agent, {"a": ["one"], "b": ["two"]})
    assert sorted(lines) == [("a", "one"), ("b", "two")]


async def test_a_loop_ends_by_its_limit_or_by_exit_loop(agents_dir: AgentsDir) -> None:
    agents_dir.write(ROOT, "agent_class: LoopAgent\nname: shop\nmax_iterations: 2\nsub_agents: [{config_path: a.yaml}]")
    agents_dir.write("shop/a.yaml", "name: a\nmodel: scripted\ninstruction: x\ntools: [{name: exit_loop}]")
    assert await said(load(agents_dir.path), ["one", "two", "three"]) == [("a", "one"), ("a", "two")]
    assert await said(load(agents_dir.path), [call("exit_loop")]) == [
        ("a", "calls exit_loop"),
        ("a", "gets {'result': None}"),
    ]


async def test_a_loop_without_a_limit_continues(agents_dir: AgentsDir) -> None:
    agents_dir.write(ROOT, "agent_class: LoopAgent\nname: shop\nsub_agents: [{config_path: a.yaml}]")
    agents_dir.write("shop/a.yaml", "name: a\nmodel: scripted\ninstruction: x\ntools: [{name: exit_loop}]")
    agent = load(agents_dir.path)
    assert isinstance(agent, LoopAgent)
    assert agent.max_iterations is None
    lines = await said(agent, [*(str(n) for n in range(7)), call("exit_loop")])
    assert len(lines) == 9


async def test_a_class_of_ones_own_gets_its_own_keys(agents_dir: AgentsDir) -> None:
    agents_dir.write("shop/agents.py", CUSTOM)
    agents_dir.write(
        ROOT,
        """
        agent_class: shop.agents.TicketAgent
        name: tickets
        queueLimit: 12
        opening_hours: {someDay: [9, 17]}
        answer_code: shop.agents.ANSWER
        """,
    )
    assert await said(load(agents_dir.path), []) == [("tickets", "12 {'someDay': [9, 17]} forty-two None")]


async def test_a_class_of_ones_own_may_have_names_in_camel_case_and_sub_agents_in_short(agents_dir: AgentsDir) -> None:
    text = """
    from greenroom import BaseAgent, Event, LlmAgent, types

    class Team(BaseAgent):
        maxVotes: int = 1
        judge: BaseAgent
        clerk: BaseAgent

        async def _run_async_impl(self, ctx):
            names = [agent.name for agent in (*self.sub_agents, self.judge, self.clerk)]
            yield Event(author=self.name, content=types.ModelContent(f"{self.maxVotes} {names}"))

    PORTER = LlmAgent(name="porter")
    """
    agents_dir.write("shop/agents.py", text)
    for kind, document in (("yaml", "name: a\ninstruction: x"), ("yml", "name: b\ninstruction: x")):
        agents_dir.write(f"shop/one.{kind}", document)
    agents_dir.write("shop/one.json", '{"name": "c", "instruction": "x"}')
    agents_dir.write(
        ROOT,
        "agent_class: .agents.Team\nname: team\nmaxVotes: 3\nsub_agents: [one.yaml, one.yml]\n"
        "judge: one.json\nclerk: .agents.PORTER",
    )
    assert await said(load(agents_dir.path), []) == [("team", "3 ['a', 'b', 'c', 'porter']")]


def test_callbacks_of_a_class_of_ones_own_go_to_its_field(agents_dir: AgentsDir) -> None:
    agents_dir.write("shop/agents.py", CUSTOM)
    agents_dir.write(ROOT, "agent_class: .agents.TicketAgent\nname: t\non_full_callbacks: [{name: .agents.later}]")
    agent: Any = load(agents_dir.path)
    assert [callback.__name__ for callback in agent.on_full_callback] == ["later"]


def test_keys_that_a_class_of_ones_own_does_not_take_are_left_out(
    agents_dir: AgentsDir, caplog: pytest.LogCaptureFixture
) -> None:
    agents_dir.write("shop/agents.py", CUSTOM)
    agents_dir.write(ROOT, "agent_class: shop.agents.TicketAgent\nname: t\nqueue_limitt: 12")
    agent: Any = load(agents_dir.path)
    assert agent.queue_limit == 1
    assert caplog.messages == [
        "shop/root_agent.yaml:3: queue_limitt: left out: no such key of a TicketAgent; did you mean 'queue_limit'?"
    ]


async def test_a_class_of_ones_own_below_the_llm_agent_has_its_keys_too(agents_dir: AgentsDir) -> None:
    agents_dir.write("shop/agents.py", CUSTOM)
    agents_dir.write(
        ROOT,
        "agent_class: shop.agents.Host\nname: host\nmodel: scripted\nhouse: red\noutput_key: k\nsub_agents: [a.yaml]",
    )
    agents_dir.write("shop/a.yaml", PLAIN.replace("shop", "a"))
    agent: Any = load(agents_dir.path)
    assert (agent.house, agent.output_key, agent.instruction) == ("red", "k", "Be a host.")
    assert [child.name for child in agent.sub_agents] == ["a"], "a text stands for a file in classes of one's own"
    assert await said(agent, ["Hello."]) == [("host", "Hello.")]


def test_a_class_may_read_its_file_itself(agents_dir: AgentsDir) -> None:
    agents_dir.write(
        "shop/agents.py",
        """
        from greenroom import LlmAgent
        class Own(LlmAgent):
            @classmethod
            def from_config(cls, config, config_abs_path):
                return cls(name=config.name, instruction=f"{config['words']} {config_abs_path}")
        """,
    )
    path = agents_dir.write(ROOT, "agent_class: shop.agents.Own\nname: own\nwords: hey")
    assert load_llm(agents_dir.path).instruction == f"hey {path}"


def test_a_registered_class_is_found_by_its_name(agents_dir: AgentsDir, registry: ComponentRegistry) -> None:
    class Quiet(LlmAgent):
        pass

    registry.register("Quiet", Quiet)
    agents_dir.write(ROOT, f"agent_class: Quiet\n{PLAIN}")
    assert type(load(agents_dir.path)) is Quiet


# 1.4: LLM agents


def test_the_model_of_the_agent_above_is_taken(agents_dir: AgentsDir) -> None:
    agents_dir.write(ROOT, PLAIN + "sub_agents: [{config_path: cook.yaml}]")
    agents_dir.write("shop/cook.yaml", "name: cook\ninstruction: x")
    child = load(agents_dir.path).sub_agents[0]
    assert isinstance(child, LlmAgent)
    with scripted([]) as model:
        assert child.canonical_model is model


async def test_a_model_in_code(agents_dir: AgentsDir) -> None:
    agents_dir.write("shop/own.py", "from greenroom.testing import ScriptedModel\nmodel = ScriptedModel(['Mine.'])")
    agents_dir.write(ROOT, "name: shop\ninstruction: x\nmodel_code: {name: .own.model}")
    assert await said(load(agents_dir.path), []) == [("shop", "Mine.")]


async def test_a_model_class_is_made_with_arguments(agents_dir: AgentsDir) -> None:
    agents_dir.write(
        ROOT,
        "name: shop\ninstruction: x\nmodel_code:\n  name: greenroom.testing.ScriptedModel\n"
        "  args: {script: [Made.], model: mine}",
    )
    agent = load_llm(agents_dir.path)
    assert agent.canonical_model.model == "mine"
    assert await said(agent, []) == [("shop", "Made.")]


async def test_the_instructions_are_sent_to_the_model(agents_dir: AgentsDir) -> None:
    agents_dir.write(
        ROOT,
        "name: shop\nmodel: scripted\ninstruction: Today is {special?}.\n"
        "static_instruction: Never lie.\nglobal_instruction: Be brief.",
    )
    request = await request_of(load(agents_dir.path), state={"special": "soup"})
    everything = request.config.system_text() + "".join(content.text() for content in request.contents)
    for text in ("Today is soup.", "Never lie.", "Be brief."):
        assert text in everything


@pytest.mark.parametrize(
    "written",
    ["Never lie.", "{text: Never lie.}", "{role: user, parts: [{text: Nev}, {text: er lie.}]}", "[Never lie.]"],
)
def test_forms_of_the_static_instruction(agents_dir: AgentsDir, written: str) -> None:
    agents_dir.write(ROOT, PLAIN + f"static_instruction: {written}")
    assert static_parts(load_llm(agents_dir.path).static_instruction) == [Part(text="Never lie.")]


async def test_only_what_came_in_last_is_shown(agents_dir: AgentsDir) -> None:
    for shown, expected in (("default", ["hi", "For context:"]), ("none", ["For context:"])):
        agents_dir.write(
            ROOT, "agent_class: SequentialAgent\nname: shop\nsub_agents: [{config_path: a.yaml}, {config_path: b.yaml}]"
        )
        agents_dir.write("shop/a.yaml", "name: a\nmodel: scripted\ninstruction: x")
        agents_dir.write("shop/b.yaml", f"name: b\nmodel: scripted\ninstruction: x\ninclude_contents: {shown}")
        with scripted(["one", "two"]) as model:
            await events_of(load(agents_dir.path))
        assert [content.text()[:12] for content in model.requests[1].contents] == expected


async def test_the_answer_goes_into_the_state(agents_dir: AgentsDir) -> None:
    agents_dir.write(ROOT, PLAIN + "output_key: last_reply")
    with scripted(["Sold."]):
        events = await events_of(load(agents_dir.path))
    assert events[-1].actions.state_delta == {"last_reply": "Sold."}


@pytest.mark.parametrize("written", ["{name: shop.types.Order}", ".types.Order", "{type: object, required: [item]}"])
async def test_forms_of_a_schema(agents_dir: AgentsDir, written: str) -> None:
    agents_dir.write("shop/types.py", "import msgspec\nclass Order(msgspec.Struct):\n    item: str")
    agents_dir.write(ROOT, PLAIN + f"output_schema: {written}\ninput_schema: {written}")
    request = await request_of(load(agents_dir.path))
    assert "item" in str(request.config.response_schema) or "Order" in str(request.config.response_schema)
    assert load_llm(agents_dir.path).input_schema is not None


async def test_transfers_can_be_ruled_out(agents_dir: AgentsDir) -> None:
    flags = {
        "": ["peer", "shop"],
        "disallow_transfer_to_parent: true": ["peer"],
        "disallow_transfer_to_peers: yes": ["shop"],
    }
    for flag, targets in flags.items():
        agents_dir.write(ROOT, PLAIN + "sub_agents: [{config_path: a.yaml}, {config_path: b.yaml}]")
        agents_dir.write("shop/a.yaml", f"name: a\nmodel: scripted\ninstruction: x\n{flag}")
        agents_dir.write("shop/b.yaml", "name: peer\nmodel: scripted\ninstruction: x")
        with scripted([call("transfer_to_agent", agent_name="a"), "ok"]) as model:
            await events_of(load(agents_dir.path))
        declared = str([tool.parameters_json_schema for tool in model.requests[1].function_declarations()])
        assert [name for name in ("peer", "shop") if f"'{name}'" in declared] == targets


async def test_a_turn_has_a_limit(agents_dir: AgentsDir) -> None:
    agents_dir.write("shop/tools.py", "def again() -> str:\n    '''Again.'''\n    return 'more'")
    agents_dir.write(ROOT, PLAIN + "max_steps: 2\ntools: [{name: .tools.again}]")
    with scripted([call("again"), call("again"), "never"]) as model:
        await events_of(load(agents_dir.path))
    assert len(model.requests) == 2


async def test_model_and_tool_callbacks(agents_dir: AgentsDir) -> None:
    agents_dir.write(
        "shop/hooks.py",
        """
        log = []
        def before_model(callback_context, llm_request): log.append("before model")
        def after_model(callback_context, llm_response): log.append("after model")
        def before_tool(tool, args, tool_context): log.append("before tool")
        def after_tool(tool, args, tool_context, tool_response): return {**tool_response, "seen": True}
        def on_tool_error(tool, args, tool_context, error): return {"mended": str(error)}
        def on_model_error(callback_context, llm_request, error):
            from greenroom import LlmResponse, types
            return LlmResponse(content=types.ModelContent(f"mended {error}"))
        def price(item: str):
            '''A price.'''
            if item == "air": raise KeyError(item)
            return {"log": list(log)}
        """,
    )
    agents_dir.write(
        ROOT,
        PLAIN
        + "tools: [{name: .hooks.price}]\n"
        + "".join(f"{key}_callbacks: [{{name: .hooks.{key}}}]\n" for key in
                  ("before_model", "after_model", "before_tool", "after_tool", "on_tool_error", "on_model_error")),
    )  # fmt: skip
    lines = await said(
        load(agents_dir.path), [call("price", item="tea"), call("price", item="air"), ValueError("boom")]
    )
    assert [text for _, text in lines] == [
        "calls price",
        "gets {'log': ['before model', 'after model', 'before tool'], 'seen': True}",
        "calls price",
        "gets {'mended': \"'air'\", 'seen': True}",
        "mended boom",
    ]


def test_a_code_executor(agents_dir: AgentsDir) -> None:
    agents_dir.write("shop/own.py", "from greenroom import BuiltInCodeExecutor\nnative = BuiltInCodeExecutor()")
    engine = "projects/p/locations/l/reasoningEngines/7"
    local = "{name: UnsafeLocalCodeExecutor, args: {timeoutSeconds: 9, code_block_delimiters: [[<run>, </run>]]}}"
    forms: dict[str, type[BaseCodeExecutor]] = {
        f"code_executor: {local}": UnsafeLocalCodeExecutor,
        "code_executor: {name: SandboxCodeExecutor, args: {stateful: true}}": SandboxCodeExecutor,
        "code_executor: {name: ContainerCodeExecutor, args: {image: python, networkEnabled: true}}": ContainerCodeExecutor,
        "code_executor: {name: GkeCodeExecutor, args: {namespace: code, memLimit: 1Gi}}": GkeCodeExecutor,
        "code_executor: {name: VertexAiCodeExecutor}": VertexAiCodeExecutor,
        f"code_executor: {{name: AgentEngineSandboxCodeExecutor, args: {{agentEngineResourceName: {engine}}}}}": (
            AgentEngineSandboxCodeExecutor
        ),
        "code_executor: {name: CloudRunSandboxCodeExecutor, args: {allow_egress: true}}": CloudRunSandboxCodeExecutor,
        "code_executor: {name: google.adk.code_executors.BuiltInCodeExecutor}": BuiltInCodeExecutor,
        "codeExecutorCode: .own.native": BuiltInCodeExecutor,
    }
    for text, kind in forms.items():
        agents_dir.write("shop/root_agent.yaml", f"name: shop\ninstruction: Sell.\n{text}")
        executor = load_llm(agents_dir.path).code_executor
        assert type(executor) is kind
        if isinstance(executor, UnsafeLocalCodeExecutor):
            assert executor.timeout_seconds == 9
            assert executor.code_block_delimiters == (("<run>", "</run>"),)


def test_a_planner(agents_dir: AgentsDir) -> None:
    agents_dir.write(
        "shop/own.py", "from greenroom.agents.planning import PlanReActPlanner\nplanner = PlanReActPlanner()"
    )
    forms = {
        "planner: {name: BuiltInPlanner, args: {thinking_config: {thinking_budget: 5, thinking_level: low}}}": BuiltInPlanner,
        "planner: {name: google.adk.planners.PlanReActPlanner}": PlanReActPlanner,
        "planner: {name: PlanReActPlanner, args: }": PlanReActPlanner,
        "planner_code: .own.planner": PlanReActPlanner,
    }
    for written, kind in forms.items():
        agents_dir.write(ROOT, PLAIN + written)
        planner = load_llm(agents_dir.path).planner
        assert type(planner) is kind
        if isinstance(planner, BuiltInPlanner):
            assert planner.thinking_config == ThinkingConfig(thinking_budget=5, thinking_level="LOW")


# 1.9: generation


def test_how_the_model_generates(agents_dir: AgentsDir) -> None:
    agents_dir.write(
        ROOT,
        PLAIN
        + """
generate_content_config:
  temperature: 1
  top_p: 0.5
  topK: 4
  stop_sequences: [END]
  seed: 7
  responseModalities: [text]
  safety_settings:
    - {category: harm_category_harassment, threshold: OFF}
    - {category: HARM_CATEGORY_HATE_SPEECH, threshold: block_none}
  thinking_config: {thinking_level: high}
  labels: {some_label: a}
  http_options: {timeout: 9}
  automatic_function_calling: {disable: true}
""",
    )
    assert load_llm(agents_dir.path).generate_content_config == GenerateContentConfig(
        temperature=1,
        top_p=0.5,
        top_k=4,
        stop_sequences=["END"],
        seed=7,
        response_modalities=["TEXT"],
        safety_settings=[
            SafetySetting(category="HARM_CATEGORY_HARASSMENT", threshold="OFF"),
            SafetySetting(category="HARM_CATEGORY_HATE_SPEECH", threshold="BLOCK_NONE"),
        ],
        thinking_config=ThinkingConfig(thinking_level="HIGH"),
        labels={"some_label": "a"},
        http_options={"timeout": 9},
        automatic_function_calling={"disable": True},
    )


SETTINGS: dict[str, Any] = {
    "temperature": 0.5,
    "top_p": 0.25,
    "top_k": 4.0,
    "candidate_count": 2,
    "max_output_tokens": 77,
    "stop_sequences": ["END"],
    "seed": 7,
    "presence_penalty": 0.5,
    "frequency_penalty": -0.5,
    "response_logprobs": True,
    "logprobs": 3,
    "response_mime_type": "text/x.enum",
    "response_json_schema": {"type": "object", "someKey": 1, "other_key": 2},
    "response_modalities": ["TEXT", "IMAGE", "AUDIO", "VIDEO"],
    "media_resolution": "MEDIA_RESOLUTION_LOW",
    "speech_config": {"languageCode": "nb-NO"},
    "image_config": {"aspectRatio": "1:1"},
    "audio_timestamp": True,
    "labels": {"some_label": "a", "someOther": "b"},
    "cached_content": "cachedContents/1",
    "routing_config": {"manualMode": {"modelName": "m"}},
    "model_selection_config": {"featureSelectionPreference": "BALANCED"},
    "service_tier": "flex",
    "http_options": {"timeout": 9, "headers": {"X_Y": "z"}, "apiVersion": "v1"},
}


@pytest.mark.parametrize("spelled", [str, camel])
@pytest.mark.parametrize("name", SETTINGS)
async def test_each_setting_reaches_the_model(agents_dir: AgentsDir, name: str, spelled: Any) -> None:
    document = json.dumps({spelled(name): SETTINGS[name]})
    agents_dir.write(ROOT, PLAIN + f"generate_content_config: {document}")
    config = (await request_of(load(agents_dir.path))).config
    assert getattr(config, name) == SETTINGS[name]
    assert getattr(GenerateContentConfig(), name) is None


CATEGORIES = (
    "HARASSMENT", "HATE_SPEECH", "SEXUALLY_EXPLICIT", "DANGEROUS_CONTENT", "CIVIC_INTEGRITY", "JAILBREAK", "IMAGE_HATE",
    "IMAGE_DANGEROUS_CONTENT", "IMAGE_HARASSMENT", "IMAGE_SEXUALLY_EXPLICIT",
)  # fmt: skip
THRESHOLDS = ("BLOCK_LOW_AND_ABOVE", "BLOCK_MEDIUM_AND_ABOVE", "BLOCK_ONLY_HIGH", "BLOCK_NONE", "OFF")
WORDS: list[dict[str, Any]] = [
    *({"safetySettings": [{"category": f"HARM_CATEGORY_{c}", "threshold": "OFF"}]} for c in CATEGORIES),
    *(
        {"safetySettings": [{"category": "HARM_CATEGORY_JAILBREAK", "threshold": threshold, "method": "SEVERITY"}]}
        for threshold in THRESHOLDS
    ),
    *(
        {"thinkingConfig": {"thinkingLevel": level, "includeThoughts": True, "thinkingBudget": 9}}
        for level in ("MINIMAL", "LOW", "MEDIUM", "HIGH")
    ),
    *(
        {"toolConfig": {"functionCallingConfig": {"mode": mode, "allowedFunctionNames": ["f"]}}}
        for mode in ("AUTO", "ANY", "NONE", "VALIDATED")
    ),
    {"toolConfig": {"retrievalConfig": {"languageCode": "nb"}}},
]


@pytest.mark.parametrize("document", WORDS)
async def test_each_word_of_the_settings_is_known(agents_dir: AgentsDir, document: dict[str, Any]) -> None:
    agents_dir.write(ROOT, PLAIN + f"generate_content_config: {json.dumps(document)}")
    config: JsonObject = wire.to_plain((await request_of(load(agents_dir.path))).config)
    assert {key: config[key] for key in document} == document


# 1.5: tools


TOOLS = """
from __future__ import annotations

from dataclasses import dataclass

import msgspec

from greenroom import BaseTool, BaseToolset, FunctionTool, LongRunningFunctionTool


def price(item: str) -> str:
    '''A price.'''
    return f"{item} costs 3"


price_tool = FunctionTool(price, name="price_tool")
notes = {"no": "tool"}


class Range(msgspec.Struct, rename="camel"):
    lowest_price: int
    highest_price: int = 9


class PriceTool(BaseTool):
    def __init__(
        self, currency: str, *, price_range: Range | None = None, shops: set[str] = frozenset(), round_by=None
    ):
        super().__init__(name="price_in", description=f"Prices in {currency}.")
        self.got = (currency, price_range, shops, round_by)

    async def run_async(self, *, args, tool_context):
        return "3"


class Hooked(BaseTool):
    @classmethod
    def from_config(cls, config, config_abs_path):
        return cls(name=config.word, description=config_abs_path)

    async def run_async(self, *, args, tool_context):
        return "hooked"


class Shelf(BaseToolset):
    async def get_tools(self, readonly_context=None):
        return [price_tool]


class Clock:
    pass


class Checked(Shelf):
    def __init__(self, *, order: OnlyForCheckers | None = None, price_range: Range | None = None):
        super().__init__()
        self.got = (order, price_range)


class Odd(Shelf):
    def __init__(self, *, clock: Clock | None = None, tool_filter: list[str] | None = None):
        super().__init__(tool_filter=tool_filter)
        self.clock = clock


def make_tool(prefix: str):
    return FunctionTool(price, name=f"{prefix}_price")


def make_from_map(config):
    return FunctionTool(price, name=f"{config.prefix}_price")
"""


@pytest.fixture
def shop(agents_dir: AgentsDir) -> AgentsDir:
    agents_dir.write("shop/tools.py", TOOLS)
    return agents_dir


def one_tool(shop: AgentsDir, entry: str) -> Any:
    shop.write(ROOT, PLAIN + f"tools: [{entry}]")
    (tool,) = load_llm(shop.path).tools
    return tool


async def test_a_function_is_a_tool(shop: AgentsDir) -> None:
    shop.write(ROOT, PLAIN + "tools: [{name: shop.tools.price}]")
    lines = await said(load(shop.path), [call("price", item="tea"), "Done."])
    assert lines[1] == ("shop", "gets {'result': 'tea costs 3'}")


def test_a_finished_tool_is_used_as_it_is(shop: AgentsDir) -> None:
    assert one_tool(shop, "{name: shop.tools.price_tool}").name == "price_tool"


def test_a_tools_class_is_made_with_arguments_of_their_types(shop: AgentsDir) -> None:
    tool = one_tool(
        shop,
        "{name: shop.tools.PriceTool, args: {currency: EUR, priceRange: {lowest_price: 1}, shops: [a, a], "
        "round_by: {some_key: 1}}}",
    )
    currency, price_range, shops, round_by = tool.got
    assert (currency, price_range.lowest_price, price_range.highest_price) == ("EUR", 1, 9)
    assert (shops, round_by) == ({"a"}, {"some_key": 1})


def test_a_tools_class_may_read_its_arguments_itself(shop: AgentsDir) -> None:
    tool = one_tool(shop, "{name: shop.tools.Hooked, args: {word: hey}}")
    assert (tool.name, tool.description) == ("hey", str(shop.path / ROOT))


async def test_a_toolset_is_made(shop: AgentsDir) -> None:
    toolset = one_tool(shop, "{name: shop.tools.Shelf}")
    assert isinstance(toolset, BaseToolset)
    assert [tool.name for tool in await toolset.get_tools()] == ["price_tool"]


def test_arguments_that_cannot_be_written_are_left_out(shop: AgentsDir, caplog: pytest.LogCaptureFixture) -> None:
    toolset = one_tool(shop, "{name: shop.tools.Odd, args: {clock: tight, tool_filter: [price]}}")
    assert (toolset.clock, toolset.tool_filter) == (None, ["price"])
    assert "tools[0].args.clock: left out" in caplog.text


def test_annotations_that_only_type_checkers_resolve_leave_the_others_alone(shop: AgentsDir) -> None:
    order, price_range = one_tool(
        shop, "{name: shop.tools.Checked, args: {order: {some_key: 1}, priceRange: {lowestPrice: 2}}}"
    ).got
    assert (order, price_range.lowest_price) == ({"some_key": 1}, 2)


@pytest.mark.parametrize("factory", ["make_tool", "make_from_map"])
def test_a_function_with_arguments_makes_a_tool(shop: AgentsDir, factory: str) -> None:
    assert one_tool(shop, f"{{name: shop.tools.{factory}, args: {{prefix: low}}}}").name == "low_price"


BUILT_IN = {
    "google_search": "google_search",
    "google_maps_grounding": "google_maps",
    "url_context": "url_context",
    "enterprise_web_search": "enterprise_web_search",
    "code_execution": "code_execution",
    "load_artifacts": "load_artifacts",
    "load_memory": "load_memory",
    "preload_memory": "preload_memory",
    "get_user_choice": "get_user_choice",
    "request_input": "adk_request_input",
}


@pytest.mark.parametrize("name", BUILT_IN)
@pytest.mark.parametrize("prefix", ["", "google.adk.tools.", "google.adk.tools.some_module."])
def test_built_in_tools_go_by_their_names(shop: AgentsDir, name: str, prefix: str) -> None:
    assert one_tool(shop, f"{{name: {prefix}{name}}}").name == BUILT_IN[name]


def test_transfer_to_agent_is_there_anyway(shop: AgentsDir) -> None:
    shop.write(ROOT, PLAIN + "tools: [{name: transfer_to_agent}, {name: exit_loop}]")
    assert [getattr(tool, "__name__", "") for tool in load_llm(shop.path).tools] == ["exit_loop"]


async def test_a_long_running_tool(shop: AgentsDir, registry: ComponentRegistry) -> None:
    registry.register("pricing", one_tool(shop, "{name: shop.tools.price_tool}"))
    for function in ("shop.tools.price", "pricing"):
        tool = one_tool(shop, f"{{name: LongRunningFunctionTool, args: {{func: {function}}}}}")
        assert (tool.name, tool.is_long_running) == ("price", True)


async def test_examples_are_shown(shop: AgentsDir) -> None:
    shop.write(
        ROOT,
        PLAIN
        + """
tools:
  - name: ExampleTool
    args:
      examples:
        - input: {role: user, parts: [{text: "anything by Le Guin?"}]}
          output:
            - {role: model, parts: [{function_call: {name: search_books, args: {some_author: "Le Guin"}}}]}
""",
    )
    text = (await request_of(load(shop.path))).config.system_text()
    assert "anything by Le Guin?" in text
    assert "search_books(some_author='Le Guin')" in text


async def test_examples_come_from_a_provider(shop: AgentsDir) -> None:
    shop.write(
        "shop/examples.py",
        """
        from greenroom import types
        from greenroom.tools.builtin.examples import BaseExampleProvider, Example
        class Provider(BaseExampleProvider):
            def get_examples(self, query):
                return [Example(input=types.UserContent(query), output=[types.ModelContent("like this")])]
        provider = Provider()
        """,
    )
    shop.write(ROOT, PLAIN + "tools: [{name: ExampleTool, args: {examples: shop.examples.provider}}]")
    assert "like this" in (await request_of(load(shop.path), "hey")).config.system_text()


def test_an_agent_is_a_tool(shop: AgentsDir, registry: ComponentRegistry) -> None:
    registry.register("porter", LlmAgent(name="porter"))
    shop.write("shop/staff/sommelier.yaml", "name: sommelier\ninstruction: x")
    for reference, name in (("{config_path: staff/sommelier.yaml}", "sommelier"), ("{code: porter}", "porter")):
        tool = one_tool(shop, f"{{name: AgentTool, args: {{agent: {reference}, skipSummarization: true}}}}")
        assert isinstance(tool, AgentTool)
        assert (tool.agent.name, tool.agent.parent_agent) == (name, None)
        assert (tool.skip_summarization, tool.include_plugins) == (True, True)
    with pytest.raises(AgentConfigError, match="'agent' is missing of AgentTool"):
        one_tool(shop, "{name: AgentTool, args: {}}")


# 1.6: sub-agents


async def test_sub_agents_from_files_and_from_code(agents_dir: AgentsDir, registry: ComponentRegistry) -> None:
    registry.register("porter", LlmAgent(name="porter"))
    agents_dir.write("shop/staff/people.py", "from greenroom import LlmAgent\ndishwasher = LlmAgent(name='dishwasher')")
    agents_dir.write(
        "shop/staff/cook.yaml",
        "name: cook\ninstruction: x\nsub_agents: [{config_path: helper.yaml}, {config_path: ../waiter.yaml}]",
    )
    agents_dir.write(
        "shop/staff/helper.yaml", "name: helper\ninstruction: x\nbefore_agent_callbacks: [{name: .hooks.check}]"
    )
    agents_dir.write("shop/staff/hooks.py", "def check(callback_context): pass")
    agents_dir.write("shop/waiter.yaml", "name: waiter\ninstruction: x")
    agents_dir.write(
        ROOT,
        PLAIN + "sub_agents:\n  - config_path: staff/cook.yaml\n"
        "  - code: shop.staff.people.dishwasher\n"
        "  - code: porter\n",
    )
    agent = load(agents_dir.path)
    assert [one.name for one in agent.walk()] == ["shop", "cook", "helper", "waiter", "dishwasher", "porter"]
    helper: Any = agent.find_agent("helper")
    assert helper.before_agent_callback[0].__name__ == "check", "from the folder of the file that names it"


def test_an_agent_in_code_can_have_several_parents(agents_dir: AgentsDir, registry: ComponentRegistry) -> None:
    child = LlmAgent(name="child")
    registry.register("porter", LlmAgent(name="porter", sub_agents=[child]))
    agents_dir.write(ROOT, PLAIN + "sub_agents: [{code: porter}]")
    first, second = load(agents_dir.path), load(agents_dir.path)
    for agent in (first, second):
        assert [one.name for one in agent.walk()] == ["shop", "porter", "child"]
        assert all(one.root_agent is agent for one in agent.walk())


# references to code


def test_the_apps_own_modules_come_first(agents_dir: AgentsDir, registry: ComponentRegistry) -> None:
    registry.register("shop.rich.text", lambda: None)
    agents_dir.write("shop/rich.py", "def text(callback_context): pass")
    agents_dir.write(ROOT, PLAIN + "before_agent_callbacks: [{name: shop.rich.text}, {name: rich.text}]")
    agent: Any = load(agents_dir.path)
    assert {callback.__module__.partition(".")[2] for callback in agent.before_agent_callback} == {"shop.rich"}


def test_what_a_package_exports_is_found(agents_dir: AgentsDir) -> None:
    agents_dir.write("shop/__init__.py", "def check(callback_context): pass")
    agents_dir.write(ROOT, PLAIN + "before_agent_callbacks: [{name: shop.check}, {name: .check}]")
    agent: Any = load(agents_dir.path)
    assert [callback.__name__ for callback in agent.before_agent_callback] == ["check", "check"]


def test_modules_beside_the_app_and_installed_ones_are_found(agents_dir: AgentsDir) -> None:
    agents_dir.write("shared/hooks.py", "def check(callback_context): pass")
    agents_dir.write(ROOT, PLAIN + "before_agent_callbacks: [{name: shared.hooks.check}, {name: msgspec.json.encode}]")
    agent: Any = load(agents_dir.path)
    assert [callback.__name__ for callback in agent.before_agent_callback] == ["check", "json_encode"]


def test_a_registered_callback_is_found(agents_dir: AgentsDir, registry: ComponentRegistry) -> None:
    def check(callback_context: object) -> None: ...

    registry.register("my-check", check)
    agents_dir.write(ROOT, PLAIN + "before_agent_callbacks: [{name: my-check}]")
    agent: Any = load(agents_dir.path)
    assert agent.before_agent_callback == [check]


# 1.12: apps in a folder


def test_yaml_and_python_apps_stand_side_by_side(agents_dir: AgentsDir) -> None:
    agents_dir.agent("bistro")
    agents_dir.write(ROOT, PLAIN)
    loader = DirectoryAppLoader(agents_dir.path)
    assert loader.list_apps() == ["bistro", "shop"]
    assert [loader.load(name).root_agent.name for name in loader.list_apps()] == ["bistro", "shop"]
    assert [loader.language(name) for name in loader.list_apps()] == ["python", "yaml"]


def test_a_folder_with_a_root_file_is_one_app(agents_dir: AgentsDir) -> None:
    agents_dir.write(ROOT, PLAIN)
    loader = DirectoryAppLoader(agents_dir.path / "shop")
    assert loader.list_apps() == ["shop"]
    assert loader.load("shop").root_agent.name == "shop"


def test_python_comes_before_yaml(agents_dir: AgentsDir) -> None:
    agents_dir.write(ROOT, PLAIN)
    agents_dir.write("shop/agent.py", "from greenroom import LlmAgent\nroot_agent = LlmAgent(name='python')")
    agents_dir.write("other/root_agent.yaml", PLAIN)
    agents_dir.write("other/agent.py", "'''Only helpers.'''")
    loader = DirectoryAppLoader(agents_dir.path)
    assert [loader.load(name).root_agent.name for name in ("shop", "other")] == ["python", "shop"]


def test_python_can_take_an_agent_from_a_file(agents_dir: AgentsDir) -> None:
    agents_dir.write("shop/team.yaml", "name: team\ninstruction: x\ntools: [{name: .tools.price}]")
    agents_dir.write("shop/tools.py", "def price(item: str): '''x'''")
    agents_dir.write(
        "shop/agent.py",
        """
        from pathlib import Path
        from greenroom.apps.load_yaml import load_agent
        root_agent = load_agent(Path(__file__).with_name("team.yaml"))
        """,
    )
    root: BaseAgent = DirectoryAppLoader(agents_dir.path).load("shop").root_agent
    assert isinstance(root, LlmAgent)
    assert len(root.tools) == 1


def test_contents_of_the_example_are_records(shop: AgentsDir) -> None:
    tool = one_tool(
        shop,
        "{name: ExampleTool, args: {examples: [{input: {parts: [{inline_data: {data: aGk=, "
        "mimeType: text/plain}}]}, output: []}]}}",
    )
    assert tool.examples[0].input == types.Content(parts=[types.Part.from_bytes(data=b"hi", mime_type="text/plain")])


SELF_LOADING = """
    from pathlib import Path
    from greenroom.apps.load_yaml import load_agent
    root_agent = load_agent(Path(__file__).with_name("shop.yaml"))
"""


@pytest.mark.parametrize("package", ["", "from . import agent", "from .agent import root_agent"])
def test_an_app_may_load_its_own_file_while_it_is_imported(agents_dir: AgentsDir, package: str) -> None:
    agents_dir.write("shop/__init__.py", package)
    agents_dir.write("shop/agent.py", "def stock() -> int:\n    return 3\n" + textwrap.dedent(SELF_LOADING))
    agents_dir.write("shop/tools.py", "def price() -> int:\n    return 2\n")
    agents_dir.write("shop/shop.yaml", PLAIN + "tools: [{name: shop.tools.price}, {name: .agent.stock}]")
    agent = DirectoryAppLoader(agents_dir.path).load("shop").root_agent
    assert isinstance(agent, LlmAgent)
    tools = [cast("Any", tool) for tool in agent.tools]
    assert [tool.__name__ for tool in tools] == ["price", "stock"]
    assert {tool.__module__.partition(".")[2] for tool in tools} == {"shop.tools", "shop.agent"}
    assert len({tool.__module__.partition(".")[0] for tool in tools}) == 1, "its modules are imported once"


def test_an_app_may_load_its_own_file_later(agents_dir: AgentsDir) -> None:
    agents_dir.write("shop/tools.py", "def price() -> int:\n    return 2\n")
    file = agents_dir.write("shop/shop.yaml", PLAIN + "tools: [{name: .tools.price}]")
    first, second = (cast("LlmAgent", load_agent(file)) for _ in range(2))
    assert first.tools[0] is not second.tools[0]
