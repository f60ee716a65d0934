"""Every mistake in a file is reported with its line, and with what would be right."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest

from greenroom.apps.component_registry import ComponentRegistry
from greenroom.apps.load_directory import DirectoryAppLoader
from greenroom.apps.yaml_config.document import ConfigFileError
from greenroom.errors import AgentConfigError, AppLoadError
from tests.apps.conftest import AgentsDir
from tests.apps.yaml_apps import load

ROOT = "shop/root_agent.yaml"
PLAIN = "name: shop\ninstruction: Sell.\n"


@pytest.fixture(autouse=True)
def registry() -> Iterator[ComponentRegistry]:
    fresh = ComponentRegistry()
    ComponentRegistry.set_instance(fresh)
    yield fresh
    ComponentRegistry.set_instance(None)


@pytest.fixture
def shop(agents_dir: AgentsDir) -> AgentsDir:
    agents_dir.write(
        "shop/tools.py",
        """
        from os import system
        import os as operating
        import shutil
        from greenroom import BaseTool, FunctionTool, LlmAgent
        def price(item: str) -> str:
            '''A price.'''
            return item
        price_tool = FunctionTool(price)
        def make(word: str): return word
        class Scale(BaseTool):
            def __init__(self, unit: str, precision: int = 1):
                if precision > 9: raise ValueError("too precise")
                super().__init__(name="scale", description=unit)
            async def run_async(self, *, args, tool_context): ...
        class NoTool: pass
        notes = {"a": 1}
        cook = LlmAgent(name="cook")
        """,
    )
    agents_dir.write("shop/cook.yaml", "name: cook\ninstruction: x")
    agents_dir.write("outside.yaml", "name: outside\ninstruction: x")
    return agents_dir


def error_of(shop: AgentsDir, text: str, *, allow_args: bool = True) -> ConfigFileError:
    shop.write(ROOT, text)
    with pytest.raises(ConfigFileError) as caught:
        load(shop.path, allow_args=allow_args)
    assert caught.value.detail == str(caught.value)
    return caught.value


FILES = {
    "": "shop/root_agent.yaml: is empty",
    "# only a remark": "shop/root_agent.yaml: is empty",
    "- a list": "shop/root_agent.yaml:1: the file must hold a map of keys, not a list",
    "words": "shop/root_agent.yaml:1: the file must hold a map of keys, not a text",
    "name: shop\nname: again": "shop/root_agent.yaml:2: name: stands here twice",
    "name: shop\ntools: [": "shop/root_agent.yaml:2: is not valid YAML: ",
    "name: shop\n---\nname: two": "shop/root_agent.yaml:2: is not valid YAML: ",
    "name: !!python/name:os.system x": "shop/root_agent.yaml:1: is not valid YAML: could not determine a constructor",
    "name: shop\nargs: !!python/object/apply:os.system [ls]": "shop/root_agent.yaml:2: args: the tag ",
    "name: shop\n1: one": "shop/root_agent.yaml:2: a key '1' that is no text; put it in quotes",
    "name: &a [*a]": "shop/root_agent.yaml:1: name[0]: an anchor that holds itself",
    "name: shop\nx: \x07": "shop/root_agent.yaml:2: holds a character that YAML doesn't allow: U+0007",
}


@pytest.mark.parametrize("text", FILES)
def test_files_that_cannot_be_read(shop: AgentsDir, text: str) -> None:
    assert error_of(shop, text).detail.startswith(FILES[text])


def test_a_missing_file(shop: AgentsDir) -> None:
    with pytest.raises(ConfigFileError, match="there is no such file"):
        load(shop.path)


def test_a_file_in_another_encoding(shop: AgentsDir) -> None:
    path = shop.write(ROOT, "")
    path.write_bytes("name: shop\ndescription: Käse".encode("latin-1"))
    with pytest.raises(ConfigFileError, match=r"shop/root_agent.yaml:2: is not written in UTF-8"):
        load(shop.path)


def test_a_file_that_unfolds_into_millions_of_values(shop: AgentsDir) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    assert "unfolds into more than 100000 values" in error_of(shop, "\n".join(lines)).detail


KEYS = {
    "instruction: x": (1, "", "'name' is missing of an LlmAgent"),
    "name: shop": (1, "", "'instruction' is missing of an LlmAgent"),
    "name: shop\ninstruction:": (1, "", "'instruction' is missing of an LlmAgent"),
    "name: shop\ninstruction: '  '": (2, "instruction", "must not be empty"),
    "name: ''\ninstruction: x": (1, "name", "must not be empty"),
    "name: user\ninstruction: x": (1, "name", "LlmAgent can't be made: An agent can't be named 'user'"),
    "name: 1st place\ninstruction: x": (1, "name", "LlmAgent can't be made: Agent name '1st place' must be a word"),
    "name: 12\ninstruction: x": (1, "name", "must be a text, not a whole number (put it in quotes)"),
    PLAIN + "modell: x": (3, "modell", "there is no such key of an LlmAgent; did you mean 'model'?"),
    PLAIN + "outputKee: x": (3, "outputKee", "there is no such key of an LlmAgent; did you mean 'output_key'?"),
    PLAIN + "max_iterations: 3": (3, "max_iterations", "there is no such key of an LlmAgent"),
    PLAIN + "outputKey: a\noutput_key: b": (4, "output_key", "output_key of an LlmAgent is given twice"),
    PLAIN + "include_contents: some": (3, "include_contents", "'some' is not allowed; known: default, none"),
    PLAIN + "disallow_transfer_to_parent: 1": (3, "disallow_transfer_to_parent", "must be true or false, not a whole"),
    PLAIN + "output_key: [a]": (3, "output_key", "must be a text, not a list"),
    PLAIN + "max_steps: 0": (1, "name", "LlmAgent can't be made: Agent 'shop': max_steps must be 1 or more"),
    PLAIN + "model: a\nmodel_code: {name: b.c}": (4, "model_code", "give either model or model_code"),
    PLAIN + "model_code: {name: .tools.notes}": (3, "model_code.name", "'.tools.notes' is of type dict, not a BaseLlm"),
    PLAIN + "static_instruction: {thought: true}": (1, "name", "LlmAgent can't be made: Agent 'shop': static_instruction"),
    PLAIN + "output_schema: {name: .tools.ordr}": (3, "output_schema.name", "'.tools.ordr': shop.tools has no 'ordr'"),
    "agent_class: LoopAgent\nname: a\nmax_iterations: four": (3, "max_iterations", "must be a whole number"),
    "agent_class: LoopAgent\nname: a\ninstruction: x": (3, "instruction", "there is no such key of a LoopAgent"),
    "agent_class: LoopAgnt\nname: a": (1, "agent_class", "there is no agent class 'LoopAgnt'; did you mean 'Loo"),
    "agent_class: Machine\nname: a": (1, "agent_class", "there is no agent class 'Machine'; known: Agent, "),
    "agent_class: BaseAgent\nname: a": (1, "agent_class", "'BaseAgent' is an abstract class"),
    "agent_class: shop.tools.NoTool\nname: a": (1, "agent_class", "'shop.tools.NoTool' is no class of agents"),
    "agent_class: shop.tools.cook\nname: a": (1, "agent_class", "'shop.tools.cook' is no class of agents"),
    "agent_class: os.PathLike\nname: a": (1, "agent_class", "'os.PathLike': configuration files may not name anything"),
    "agent_class: ParallelAgent\nname: a\nstate_reducers: {k: most}": (3, "state_reducers.k", "there is no component"),
}  # fmt: skip


@pytest.mark.parametrize("text", KEYS)
def test_mistakes_in_keys(shop: AgentsDir, text: str) -> None:
    error = error_of(shop, text)
    line, key, problem = KEYS[text]
    assert (error.line, error.key) == (line, key)
    assert error.problem.startswith(problem), error.problem
    assert error.file == shop.path / ROOT


GENERATION = {
    "tools: []": ("tools", "is set by the agent's tools"),
    "system_instruction: x": ("system_instruction", "is set by the agent's instruction"),
    "responseSchema: {}": ("responseSchema", "is set by the agent's output_schema"),
    "http_options: {base_url: 'http://evil'}": ("http_options.base_url", "may not be set here"),
    "model_armor_config: {}": ("model_armor_config", "is not supported"),
    "temprature: 1": ("temprature", "there is no such key of generate_content_config; did you mean 'temperature'?"),
    "temperature: warm": ("temperature", "must be a number, not a text"),
    "safety_settings: [{category: HARM}]": ("safety_settings[0].category", "'HARM' is not allowed; "),
    "safety_settings: [{treshold: OFF}]": ("safety_settings[0].treshold", "there is no such key of SafetySetting; did"),
    "response_modalities: [smell]": ("response_modalities[0]", "'smell' is not allowed; known: AUDIO, IMAGE"),
    "thinking_config: {thinking_level: hgh}": ("thinking_config.thinking_level", "'hgh' is not allowed; did you mean"),
}


@pytest.mark.parametrize("text", GENERATION)
def test_mistakes_in_how_the_model_generates(shop: AgentsDir, text: str) -> None:
    error = error_of(shop, PLAIN + f"generate_content_config:\n  {text}")
    key, problem = GENERATION[text]
    assert (error.line, error.key) == (4, f"generate_content_config.{key}")
    assert error.problem.startswith(problem), error.problem


TOOLS = {
    "exit_loop": ("", "must be a map with the tool's name, as in {name: exit_loop}, not a text"),
    "{}": ("", "'name' is missing: the tool's"),
    "{name: ''}": (".name", "must not be empty"),
    "{name: exit_loop, arg: 1}": (".arg", "there is no such key of a tool; did you mean 'args'?"),
    "{name: exit_lop}": (".name", "there is no component 'exit_lop'; did you mean 'exit_loop'?"),
    "{name: price}": (".name", "there is no component 'price'; code of the app is named as in '.tools.price'"),
    "{name: shop.tools.prices}": (".name", "'shop.tools.prices': shop.tools has no 'prices'; did you mean 'price'?"),
    "{name: shop.toolz.price}": (".name", "'shop.toolz.price': the app has no module 'toolz'; did you mean 'tools'?"),
    "{name: .toolz.price}": (".name", "'.toolz.price': there is no module 'toolz' beside this file; did you mean"),
    "{name: shoop.tools.price}": (".name", "'shoop.tools.price': there is no module 'shoop', neither in the app nor"),
    "{name: shop.tools}": (".name", "'shop.tools' is a module; name something in it"),
    "{name: 'shop tools'}": (".name", "there is no component 'shop tools'"),
    "{name: 'shop.to ols.x'}": (".name", "'shop.to ols.x' is no dotted name, such as shop.tools.lookup"),
    "{name: shop.tools.notes}": (".name", "'shop.tools.notes' is of type dict, which is no tool"),
    "{name: shop.tools.cook}": (".name", "'shop.tools.cook' is an agent, not a tool; use the tool AgentTool"),
    "{name: shop.tools.NoTool}": (".name", "'shop.tools.NoTool' is a class, but not of tools or toolsets"),
    "{name: BaseTool}": (".name", "'name' is missing of BaseTool"),
    "{name: exit_loop, args: {a: 1}}": (".args", "'exit_loop' is a tool itself, which has no args"),
    "{name: google_search, args: {a: 1}}": (".args", "'google_search' is a finished tool, which takes no arguments"),
    "{name: shop.tools.Scale}": (".name", "'unit' is missing of Scale"),
    "{name: shop.tools.Scale, args: {unit: kg, precison: 2}}": (".args.precison", "there is no such key of Scale; did"),
    "{name: shop.tools.Scale, args: {unit: kg, precision: x}}": (".args.precision", "must be a whole number, not a"),
    "{name: shop.tools.Scale, args: {unit: kg, precision: 10}}": (
        ".name", "'shop.tools.Scale' can't be made: ValueError: too precise",
    ),
    "{name: shop.tools.make, args: {word: a}}": (".name", "'shop.tools.make' was called with args and made str"),
    "{name: ExampleTool, args: {examples: [{input: {}, outptu: []}]}}": (".args.examples[0].outptu", "there is no"),
    "{name: ExampleTool, args: {examples: 3}}": (".args.examples", "must be a list or a map, not a whole number"),
    "{name: ExampleTool, args: {examples: shop.tools.notes}}": (".args.examples", "'shop.tools.notes' is a dict, not"),
    "{name: LongRunningFunctionTool, args: {func: shop.tools.notes}}": (".args.func", "'shop.tools.notes' is a dict"),
    "{name: LongRunningFunctionTool}": (".name", "'func' is missing of LongRunningFunctionTool"),
}  # fmt: skip


@pytest.mark.parametrize("entry", TOOLS)
def test_mistakes_in_tools(shop: AgentsDir, entry: str) -> None:
    error = error_of(shop, PLAIN + f"tools:\n  - name: google_search\n  - {entry}")
    key, problem = TOOLS[entry]
    assert (error.line, error.key) == (5, f"tools[1]{key}")
    assert error.problem.startswith(problem), error.problem


def test_components_that_are_not_there_say_so(shop: AgentsDir, registry: ComponentRegistry) -> None:
    registry.register_lazily("Gone", "greenroom.tools.not_built_yet:Tool")
    for text in (PLAIN + "tools: [{name: Gone, args: {}}]", "agent_class: Gone\nname: a"):
        assert error_of(shop, text).problem.startswith("'Gone' is not available in this version of greenroom: ")


def test_a_missing_extra_is_named(shop: AgentsDir, registry: ComponentRegistry) -> None:
    registry.register_lazily("Needy", "tests.apps.needs_an_extra:Tool")
    error = error_of(shop, PLAIN + "tools: [{name: Needy}]")
    assert error.problem == "mcp is not installed; get it with: pip install 'greenroom[mcp]'"


REFUSED = [
    "os.system", "os.environ", "sys.modules", "subprocess.run", "builtins.eval", "posix.system", "yaml.load", "telnetlib.Telnet", "asyncore.loop",
    "shop.tools.system", "shop.tools.operating.system", "shop.tools.shutil.rmtree", "tools.system", ".tools.system",
    "shop.tools.price.__globals__", "shop.tools.cook.__class__.__subclasses__", "__main__.x", "pip.main",
    "rich.os.system",
]  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("where", ["tools", "before_agent_callbacks"])
def test_names_that_are_refused(shop: AgentsDir, name: str, where: str) -> None:
    error = error_of(shop, PLAIN + f"{where}: [{{name: {name}}}]")
    refusals = ("configuration files may not name anything in", "is a module from elsewhere", "begin with '__'")
    assert any(refusal in error.problem for refusal in refusals), error.problem


SUB_AGENTS = {
    "{}": ("", "a reference to an agent has either config_path or code; here are neither"),
    "{config_path: cook.yaml, code: shop.tools.cook}": (
        "",
        "a reference to an agent has either config_path or code; he",
    ),
    "cook.yaml": ("", "must be a map: {config_path: cook.yaml}"),
    "shop.tools.cook": ("", "must be a map: {code: shop.tools.cook}"),
    "{path: cook.yaml}": (".path", "there is no such key of a reference to an agent; known: code, config_path"),
    "{config_path: cok.yaml}": (".config_path", "there is no file 'cok.yaml'; did you mean 'cook.yaml'?"),
    "{config_path: ../outside.yaml}": (".config_path", "'../outside.yaml' leads out of the app's folder"),
    "{config_path: link.yaml}": (".config_path", "'link.yaml' leads out of the app's folder"),
    "{config_path: linked/outside.yaml}": (".config_path", "'linked/outside.yaml' leads out of the app's folder"),
    "{config_path: /etc/passwd}": (".config_path", "'/etc/passwd' must be a path from this file on"),
    "{config_path: root_agent.yaml}": (
        ".config_path",
        "the files refer to each other in a circle: shop/root_agent.yaml → shop/root_agent.yaml",
    ),
    "{code: shop.tools.price}": (".code", "'shop.tools.price' is of type function, not an agent"),
    "{code: shop.tools.Scale}": (".code", "'shop.tools.Scale' is a class, not an agent"),
    "{code: cook}": (".code", "there is no component 'cook'"),
}


@pytest.mark.parametrize("entry", SUB_AGENTS)
def test_mistakes_in_sub_agents(shop: AgentsDir, entry: str) -> None:
    os.symlink(shop.path / "outside.yaml", shop.path / "shop/link.yaml")
    os.symlink(shop.path, shop.path / "shop/linked")
    error = error_of(shop, PLAIN + f"sub_agents:\n  - {entry}")
    key, problem = SUB_AGENTS[entry]
    assert (error.line, error.key) == (4, f"sub_agents[0]{key}")
    assert error.problem.startswith(problem), error.problem


def test_a_mistake_in_another_file_is_reported_with_that_file(shop: AgentsDir) -> None:
    shop.write("shop/staff/cook.yaml", "name: cook\ninstruction: x\n\ntols: []")
    error = error_of(shop, PLAIN + "sub_agents: [{config_path: staff/cook.yaml}]")
    assert error.detail == "shop/staff/cook.yaml:4: tols: there is no such key of an LlmAgent; did you mean 'tools'?"
    assert error.file == shop.path / "shop/staff/cook.yaml"


CALLBACKS = {
    ".tools.price": ("", "must be a map with the function's name, as in {name: .guards.check}, not a text"),
    "{name: .tools.price, args: {}}": (".args", "there is no such key of a reference to code"),
    "{name: .tools.notes}": (".name", "'.tools.notes' is of type dict; a callback is a function"),
    "{name: .tools.NoTool}": (".name", "'.tools.NoTool' is of type type; a callback is a function"),
    "{name: .tools.prce}": (".name", "'.tools.prce': shop.tools has no 'prce'; did you mean 'price'?"),
}


@pytest.mark.parametrize("entry", CALLBACKS)
def test_mistakes_in_callbacks(shop: AgentsDir, entry: str) -> None:
    error = error_of(shop, PLAIN + f"before_model_callbacks:\n  - {entry}")
    key, problem = CALLBACKS[entry]
    assert (error.line, error.key) == (4, f"before_model_callbacks[0]{key}")
    assert error.problem.startswith(problem), error.problem


def test_arguments_can_be_refused_in_files_of_strangers(shop: AgentsDir) -> None:
    for entry in (
        "tools: [{name: shop.tools.Scale, args: {unit: kg}}]",
        "model_code: {name: greenroom.testing.ScriptedModel, args: {script: [x]}}",
    ):
        error = error_of(shop, PLAIN + entry, allow_args=False)
        assert error.problem == "arguments are refused in files that are not trusted"


# as the server shows it


def test_an_app_that_cannot_be_loaded_says_where(shop: AgentsDir, caplog: pytest.LogCaptureFixture) -> None:
    shop.write(ROOT, PLAIN + "modell: x")
    with pytest.raises(AppLoadError) as caught, caplog.at_level(logging.ERROR):
        DirectoryAppLoader(shop.path).load("shop")
    assert caught.value.reason == (
        "ConfigFileError: shop/root_agent.yaml:3: modell: there is no such key of an LlmAgent; did you mean 'model'?"
    )
    (record,) = caplog.records
    assert record.exc_info is None, "the traceback would only show greenroom's own code"


def test_an_error_in_the_apps_own_code_is_reported_with_its_place(shop: AgentsDir) -> None:
    shop.write("shop/broken.py", "\n1 / 0")
    shop.write(ROOT, PLAIN + "tools: [{name: .broken.tool}]")
    with pytest.raises(AppLoadError) as caught:
        DirectoryAppLoader(shop.path).load("shop")
    assert caught.value.reason == "ZeroDivisionError: division by zero (shop/broken.py:2)"


def test_errors_of_files_are_errors_of_configuration() -> None:
    assert issubclass(ConfigFileError, AgentConfigError)
