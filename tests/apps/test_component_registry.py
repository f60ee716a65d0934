from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from greenroom import BaseAgent, BaseTool, BaseToolset, Event, FunctionTool, LlmAgent, LoopAgent
from greenroom.apps.component_registry import ENTRY_POINTS, ComponentRegistry
from greenroom.invocation.context import InvocationContext
from greenroom.tools.builtin.examples import ExampleTool
from greenroom.tools.builtin.load_artifacts import load_artifacts


class Porter(BaseAgent):
    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncIterator[Event]:
        yield Event(author=self.name)


class Scale(FunctionTool):
    pass


class SmallToolset(BaseToolset):
    async def get_tools(self, readonly_context: object = None) -> list[BaseTool]:
        return []


def weigh(item: str) -> str:
    """Weighs."""
    return item


@pytest.fixture
def registry() -> ComponentRegistry:
    return ComponentRegistry()


@pytest.fixture
def process() -> Iterator[None]:
    yield
    ComponentRegistry.set_instance(None)


@pytest.mark.usefixtures("process")
def test_the_process_has_one_that_can_be_replaced() -> None:
    first = ComponentRegistry.get_instance()
    assert ComponentRegistry.get_instance() is first
    other = ComponentRegistry()
    ComponentRegistry.set_instance(other)
    assert ComponentRegistry.get_instance() is other
    ComponentRegistry.set_instance(None)
    assert ComponentRegistry.get_instance() not in (first, other)


def test_every_kind_of_component_is_found_as_what_it_is(registry: ComponentRegistry) -> None:
    porter, scale, shelf = Porter(name="porter"), Scale(weigh), SmallToolset()
    components = {"A": Porter, "a": porter, "T": Scale, "t": scale, "S": SmallToolset, "s": shelf, "f": weigh}
    for name, component in components.items():
        registry.register(name, component)
        assert registry.get(name) is component
    typed = {
        name: (
            registry.agent_class(name), registry.agent(name), registry.tool_class(name), registry.tool(name),
            registry.toolset_class(name), registry.toolset(name), registry.callback(name),
        )
        for name in components
    }  # fmt: skip
    for position, name in enumerate(components):
        expected: list[object] = [None] * 7
        expected[position] = components[name]
        assert list(typed[name]) == expected


@pytest.mark.parametrize(("name", "component"), [("", weigh), ("  ", weigh), ("x", None)])
def test_nothing_is_registered_without_name_or_value(registry: ComponentRegistry, name: str, component: object) -> None:
    with pytest.raises(ValueError, match=r"needs a name|is None"):
        registry.register(name, component)


def test_the_last_one_of_a_name_counts(registry: ComponentRegistry) -> None:
    registry.register("LlmAgent", Porter)
    assert registry.agent_class("LlmAgent") is Porter
    registry.register("LlmAgent", LlmAgent)
    assert registry.agent_class("LlmAgent") is LlmAgent


def test_unknown_names_are_nothing(registry: ComponentRegistry) -> None:
    for name in ("", "nothing", "no.such.thing", "google.adk.tools.nothing"):
        assert registry.get(name) is None


@pytest.mark.parametrize("prefix", ["", "google.adk.agents.", "greenroom.agents.workflows.", "com.google.adk.agents."])
def test_agent_classes_go_by_the_names_of_adk(registry: ComponentRegistry, prefix: str) -> None:
    assert registry.agent_class(f"{prefix}LoopAgent") is LoopAgent


@pytest.mark.parametrize(
    "name", ["ExampleTool", "google.adk.tools.ExampleTool", "google.adk.tools.example_tool.ExampleTool"]
)
def test_tool_classes_go_by_the_names_of_adk(registry: ComponentRegistry, name: str) -> None:
    assert registry.tool_class(name) is ExampleTool


def test_the_toolset_for_tool_servers_goes_by_all_its_names(registry: ComponentRegistry) -> None:
    from greenroom.tools.mcp.toolset import McpToolset

    for name in ("McpToolset", "MCPToolset", "mcp.McpToolset", "google.adk.tools.McpToolset"):
        assert registry.toolset_class(name) is McpToolset


def test_tools_go_by_the_names_of_adk(registry: ComponentRegistry) -> None:
    for prefix in ("", "google.adk.tools.", "com.google.adk.tools."):
        assert registry.tool(f"{prefix}load_artifacts") is load_artifacts
        assert registry.callback(f"{prefix}exit_loop") is not None


def test_a_name_without_a_dot_is_looked_for_with_the_prefixes(registry: ComponentRegistry) -> None:
    registry.register("google.adk.tools.weigh", weigh)
    registry.register("google.adk.agents.Porter", Porter)
    registry.register("greenroom.porter", Porter)
    assert registry.get("weigh") is weigh
    assert registry.agent_class("Porter") is Porter
    assert registry.get("porter") is Porter


def test_public_names_of_greenroom_go_by_the_names_of_adk(registry: ComponentRegistry) -> None:
    import greenroom

    assert registry.get("google.adk.sessions.InMemorySessionService") is greenroom.InMemorySessionService


def test_all_that_is_shipped_can_be_found(registry: ComponentRegistry) -> None:
    assert [name for name in registry.names() if registry.get(name) is None] == []


def test_a_lazy_component_is_imported_when_it_is_asked_for(registry: ComponentRegistry) -> None:
    registry.register_lazily("weight", "tests.apps.test_component_registry:Scale")
    registry.register_lazily("gone", "tests.apps.nowhere:Scale")
    found = registry.tool_class("weight")
    assert found is not None
    assert found.__name__ == "Scale"
    with pytest.raises(ModuleNotFoundError):
        registry.get("gone")
    with pytest.raises(ValueError, match=r"package\.module:attribute"):
        registry.register_lazily("wrong", "no.colon")


def test_making_a_registry_imports_no_tools_and_no_workflows() -> None:
    script = (
        "import sys; from greenroom.apps.component_registry import ComponentRegistry as R; R.get_instance().names(); "
        "print(*[m for m in sys.modules if m.startswith(('greenroom.tools.builtin.', 'greenroom.agents.workflows'))])"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert done.stdout.split() == []


# packages that contribute


CONTRIBUTING = """\
from greenroom import BaseAgent, Event

asked = []


class Porter(BaseAgent):
    async def _run_async_impl(self, ctx):
        yield Event(author=self.name)


def weigh(item: str) -> str:
    return item


def provide(registry):
    asked.append("provide")
    registry.register("Porter", Porter)
    registry.register("exit_loop", weigh)


def fail(registry):
    asked.append("fail")
    raise RuntimeError("broken package")
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """An installed package that contributes components; `asked`: which of its entry points were."""
    (tmp_path / "porters.py").write_text(CONTRIBUTING)
    installed = tmp_path / "porters-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: porters\nVersion: 1.0\n")
    points = "".join(f"{name} = porters:{name}\n" for name in ("fail", "provide"))
    (installed / "entry_points.txt").write_text(f"[{ENTRY_POINTS}]\n{points}")
    monkeypatch.syspath_prepend(tmp_path)
    yield import_module("porters")
    del sys.modules["porters"]


def test_packages_contribute_components(
    registry: ComponentRegistry, package: ModuleType, caplog: pytest.LogCaptureFixture
) -> None:
    assert package.asked == [], "asked only when somebody looks for something"
    assert registry.agent_class("Porter") is package.Porter
    assert registry.callback("exit_loop") is package.weigh, "before what greenroom ships"
    assert sorted(package.asked) == ["fail", "provide"]
    with caplog.at_level(logging.ERROR):
        assert registry.get("LlmAgent") is LlmAgent
    assert caplog.messages == ["the components of porters:fail could not be loaded"]


def test_what_the_program_registers_counts_before_what_packages_contribute(
    registry: ComponentRegistry, package: ModuleType
) -> None:
    registry.register("Porter", LoopAgent)
    assert registry.agent_class("Porter") is LoopAgent
    assert registry.callback("exit_loop") is package.weigh
