"""`greenroom config` and `greenroom schema`."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from greenroom.apps.yaml_config.document import ConfigFile, read_document
from greenroom.apps.yaml_config.schema import config_schema
from tests.cli.conftest import Cli
from tests.cli.schema_check import mistakes
from tests.cli.test_serve import served


def test_each_value_is_shown_with_its_source(cli: Cli) -> None:
    cli.write("agents/greenroom.toml", "port = 9000\nsession_service = 'postgresql://ada:hunter2@db/x'\n")
    done = cli("config", "show", "agents", "--on-disconnect", "cancel", GREENROOM_LOG_LEVEL="error")
    assert done.returncode == 0, done.stderr
    rows = {line.split()[0]: line.strip().split(maxsplit=2)[1:] for line in done.stdout.splitlines()}
    assert rows["port"] == ["9000", "agents/greenroom.toml:1"]
    assert rows["session_service"] == ["postgresql://ada:********@db/x", "agents/greenroom.toml:2"]
    assert rows["on_disconnect"] == ["cancel", "flag --on-disconnect"]
    assert rows["log_level"] == ["error", "variable GREENROOM_LOG_LEVEL"]
    assert rows["host"] == ["127.0.0.1", "default"]
    assert "hunter2" not in done.stdout + done.stderr


def test_the_file_of_the_current_folder_or_a_named_one_is_read(cli: Cli) -> None:
    cli.write("greenroom.toml", "port = 1")
    cli.write("other.toml", "port = 2")
    assert " 1 " in cli("config", "show", "agents").stdout
    for done in (
        cli("config", "show", "agents", "--config", "other.toml"),
        cli("config", "show", "agents", GREENROOM_CONFIG="other.toml"),
    ):
        assert "other.toml:1" in done.stdout
    done = cli("config", "show", "--config", "none.toml")
    assert (done.returncode, done.stderr) == (1, "There is no configuration file none.toml\n")


def test_a_server_with_invalid_settings_does_not_start(cli: Cli) -> None:
    cli.write("agents/greenroom.toml", "prot = 1\nlog_level = 'loud'\n")
    for command in ("serve", "config show"):
        done = cli.run_process(*command.split(), "agents")
        assert done.returncode == 1
        assert done.stderr.splitlines() == [
            "agents/greenroom.toml:1: there is no setting prot. Did you mean port?",
            "agents/greenroom.toml:2: log_level must be debug, info, warning or error, not 'loud'",
        ]


def test_an_unknown_variable_causes_a_warning(cli: Cli) -> None:
    done = cli.run_process("config", "show", GREENROOM_HOTS="x")
    assert done.returncode == 0
    assert done.stderr == "GREENROOM_HOTS is not a setting of greenroom. Did you mean GREENROOM_HOST?\n"


def test_the_server_applies_the_settings_of_the_file(cli: Cli) -> None:
    cli.write("agents/greenroom.toml", "max_body_bytes = 100\n[cors]\norigins = ['https://a.example']\n")
    with served(cli, "agents", "--session-service", "memory://") as (url, _, _):
        request = urllib.request.Request(f"{url}/list-apps", headers={"origin": "https://a.example"})
        with urllib.request.urlopen(request, timeout=10) as reply:
            assert json.load(reply) == ["parrot"]
            assert reply.headers["access-control-allow-origin"] == "https://a.example"
        large = urllib.request.Request(f"{url}/run", b" " * 101, {"content-type": "application/json"})
        with pytest.raises(urllib.error.HTTPError, match="413") as refused:
            urllib.request.urlopen(large, timeout=10)
        refused.value.close()


ROOT = Path(__file__).parents[2]
SCHEMA = config_schema()


def plain(text: str, tmp_path: Path) -> Any:
    path = tmp_path / "agent.yaml"
    path.write_text(text)
    return read_document(ConfigFile(path, path.name)).plain()


def test_the_schema_is_written_to_the_output_or_a_file(cli: Cli) -> None:
    shown = cli.run_process("schema")
    assert shown.returncode == 0
    assert json.loads(shown.stdout) == SCHEMA
    written = cli("schema", "agent.schema.json")
    assert (written.returncode, written.stdout) == (0, "")
    assert json.loads((cli.folder / "agent.schema.json").read_text()) == SCHEMA


@pytest.mark.parametrize("path", sorted(ROOT.glob("examples/**/*.yaml")), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_example_matches_the_schema(path: Path) -> None:
    assert mistakes(read_document(ConfigFile(path, path.name)).plain(), SCHEMA) == []


@pytest.mark.parametrize(
    "block", re.findall(r"^```yaml\n(.*?)^```", (ROOT / "docs/yaml.md").read_text(), re.MULTILINE | re.DOTALL)
)
def test_every_block_of_the_page_matches_the_schema(block: str, tmp_path: Path) -> None:
    if "app_settings.yaml" in block:
        return  # no agent
    assert mistakes(plain(block, tmp_path), SCHEMA) == []


RIGHT = [
    "name: a\ninstruction: x",
    "agent_class: LlmAgent\nname: a\ninstruction: x\ntools: [{name: exit_loop}, {name: AgentTool, args: {agent: {}}}]",
    "agentClass: LoopAgent\nname: a\nmaxIterations: 3\nsubAgents: [{configPath: a.yaml}, {code: b.c}]",
    "agent_class: LoopAgent\nname: a\nmax_iterations: 3\nsub_agents: [{config_path: a.yaml}]",
    "agent_class: ParallelAgent\nname: a\nstate_reducers: {k: sum}",
    "agent_class: kiosk.agents.TicketAgent\nname: tickets\nqueue_limit: 12\nsub_agents: [a.yaml]",
    "name: a\ninstruction: x\nbefore_model_callbacks: [{name: a.b}]\noutput_schema: {name: a.b}\nmodel_code: {name: a.b}",
    "name: a\ninstruction: x\ngenerate_content_config: {temperature: 0.2, topK: 3, safety_settings: "
    "[{category: HARM_CATEGORY_HARASSMENT, threshold: OFF}], thinking_config: {thinking_level: LOW}}",
    "name: a\ninstruction: x\ninclude_contents: NONE\ngenerate_content_config: {safety_settings: "
    "[{category: harm_category_harassment, threshold: block_none}], response_modalities: [Text], "
    "tool_config: {function_calling_config: {mode: any}}, thinking_config: {thinking_level: low}}",
]

WRONG = [
    "instruction: x",
    "name: a",
    "name: a\ninstruction: x\nmodell: y",
    "name: 3\ninstruction: x",
    "name: a\ninstruction: x\nmax_iterations: 3",
    "agent_class: LoopAgent\nname: a\nmax_iterations: four",
    "agent_class: LoopAgent\nname: a\ninstruction: x",
    "name: a\ninstruction: x\ninclude_contents: some",
    "name: a\ninstruction: x\ntools: [exit_loop]",
    "name: a\ninstruction: x\ntools: [{name: f, arg: {}}]",
    "name: a\ninstruction: x\nsub_agents: [{config_path: a.yaml, code: b.c}]",
    "name: a\ninstruction: x\nsub_agents: [{}]",
    "name: a\ninstruction: x\nsub_agents: [a.yaml]",
    "name: a\ninstruction: x\nbefore_model_callbacks: [a.b]",
    "name: a\ninstruction: x\ngenerate_content_config: {temprature: 1}",
    "name: a\ninstruction: x\ngenerate_content_config: {tools: []}",
    "name: a\ninstruction: x\ngenerate_content_config: {safety_settings: [{threshold: SOME}]}",
    "name: a\ninstruction: x\ngenerate_content_config: {safety_settings: [{threshold: block_none_}]}",
]


@pytest.mark.parametrize("text", RIGHT)
def test_valid_files_match_the_schema(text: str, tmp_path: Path) -> None:
    assert mistakes(plain(text, tmp_path), SCHEMA) == []


@pytest.mark.parametrize("text", WRONG)
def test_invalid_files_do_not_match_the_schema(text: str, tmp_path: Path) -> None:
    assert mistakes(plain(text, tmp_path), SCHEMA)


def test_keys_are_described() -> None:
    properties = SCHEMA["$defs"]["LlmAgentConfig"]["properties"]
    for key in ("name", "model", "instruction", "output_key", "before_model_callbacks"):
        assert properties[key]["description"]
