"""Agents in YAML that use the toolsets and retrieval that greenroom ships."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from greenroom.apps.component_registry import ComponentRegistry
from greenroom.apps.yaml_config.document import ConfigFileError
from greenroom.code_executors.sandboxed import SandboxCodeExecutor
from greenroom.environments.e2b import E2BEnvironment
from greenroom.server.application import create_app
from greenroom.tools.environment import EnvironmentToolset
from tests.apps.conftest import AgentsDir
from tests.apps.yaml_apps import call, load, load_llm, said
from tests.server.agents import echo
from tests.server.serving import serving

AGENT = "name: shop\nmodel: scripted\ninstruction: Sell.\ntools: "


@pytest.fixture(autouse=True)
def fresh_registry() -> Iterator[None]:
    ComponentRegistry.set_instance(ComponentRegistry())
    yield
    ComponentRegistry.set_instance(None)


async def test_skills_in_a_folder_beside_the_file(agents_dir: AgentsDir) -> None:
    agents_dir.write("shop/skills/brewing/SKILL.md", "---\nname: brewing\ndescription: Brews tea.\n---\nBoil water.\n")
    agents_dir.write("shop/root_agent.yaml", AGENT + "[{name: SkillToolset, args: {skills_dir: skills}}]")
    lines = await said(load(agents_dir.path), [call("load_skill", skill_name="brewing"), "Now I know."])
    assert "Boil water." in lines[1][1]
    assert lines[-1] == ("shop", "Now I know.")


async def test_files_beside_the_file_are_looked_into(agents_dir: AgentsDir) -> None:
    agents_dir.write("shop/notes/opening.md", "The shop opens at nine.")
    args = "{name: find_notes, description: Finds notes., input_dir: notes}"
    agents_dir.write("shop/root_agent.yaml", AGENT + f"[{{name: FilesRetrieval, args: {args}}}]")
    lines = await said(load(agents_dir.path), [call("find_notes", query="when opens"), "At nine."])
    assert "The shop opens at nine." in lines[1][1]


async def test_an_api_by_the_document_beside_the_file(agents_dir: AgentsDir) -> None:
    async with serving(create_app(agents=(echo(),))) as server:
        document = (await server.client.get("/openapi.json")).json()
        agents_dir.write("shop/api.json", json.dumps(document))
        args = (
            f"{{spec_path: api.json, base_url: '{server.url}', tool_filter: [list_apps], "
            "allow_private_network_access: true}"
        )
        agents_dir.write("shop/root_agent.yaml", AGENT + f"[{{name: OpenAPIToolset, args: {args}}}]")
        agent = load(agents_dir.path)
        lines = await said(agent, [call("list_apps"), "One."])
        assert lines[1] == ("shop", "gets {'result': ['echo']}")
        await agent.tools[0].close()  # type: ignore[attr-defined]


async def test_environments_of_tools_and_of_code(agents_dir: AgentsDir) -> None:
    agents_dir.write("shop/sandboxes.py", "from greenroom import E2BEnvironment\nshared = E2BEnvironment('base', 600)")
    agents_dir.write(
        "shop/root_agent.yaml",
        AGENT
        + "[{name: EnvironmentToolset, args: {environment: .sandboxes.shared}}]"
        + "\ncode_executor: {name: SandboxCodeExecutor, args: {stateful: true, sandbox: {name: E2BEnvironment, "
        + "args: {image: ours}}}}\n",
    )
    agent = load_llm(agents_dir.path)
    (toolset,) = agent.tools
    assert isinstance(toolset, EnvironmentToolset)
    assert isinstance(toolset.environment, E2BEnvironment)
    assert (toolset.environment._image, toolset.environment._timeout) == ("base", 600)

    executor = agent.code_executor
    assert isinstance(executor, SandboxCodeExecutor)
    assert isinstance(executor._pool._template, E2BEnvironment)
    assert (executor._pool._template._image, executor.stateful) == ("ours", True)


@pytest.mark.parametrize(
    ("environment", "problem"),
    [
        ("{name: E2BEnvironment, args: {imago: base}}", "imago"),
        ("{name: E2BEnvironment, args: {timeout: 0}}", "timeout must be more than 0"),
        ("{name: BuiltInCodeExecutor}", "not a BaseEnvironment"),
        ("{name: E3BEnvironment}", "did you mean 'E2BEnvironment'"),
    ],
)
def test_an_environment_that_can_not_be_made(agents_dir: AgentsDir, environment: str, problem: str) -> None:
    args = f"{{environment: {environment}}}"
    agents_dir.write("shop/root_agent.yaml", AGENT + f"[{{name: EnvironmentToolset, args: {args}}}]")
    with pytest.raises(ConfigFileError, match=problem):
        load(agents_dir.path)


def test_an_untrusted_file_makes_no_environment(agents_dir: AgentsDir) -> None:
    agents_dir.write(
        "shop/root_agent.yaml",
        "name: shop\nmodel: scripted\ninstruction: Sell.\n"
        "code_executor: {name: SandboxCodeExecutor, args: {sandbox: {name: E2BEnvironment}}}\n",
    )
    with pytest.raises(ConfigFileError, match="refused in files that are not trusted"):
        load(agents_dir.path, allow_args=False)
