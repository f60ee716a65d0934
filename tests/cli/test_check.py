from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest

import greenroom
from greenroom.apps.find_apps import is_name
from greenroom.cli.app_check.packages import requirements_of_adk
from tests.cli.conftest import Cli


def test_missing_and_differing_names_are_reported_with_file_line_and_reason(cli: Cli, tmp_path: Path) -> None:
    agent = tmp_path / "adk" / "shop" / "agent.py"
    agent.parent.mkdir(parents=True)
    agent.write_text(
        "from google.adk.agents import LlmAgent\n"
        "from google.adk.tools.mcp_tool.mcp_toolset import McpToolset\n"
        "from google.adk.tools.apihub_tool import APIHubToolset\n"
        "from google.genai import types as t\n"
        "raise SystemExit('checking runs nothing')\n"
        "t.Part, t.NoSuchType, APIHubToolset()\n"
    )
    (tmp_path / "adk" / ".venv").mkdir()
    (tmp_path / "adk" / ".venv" / "broken.py").write_text("def (")
    done = cli("check", str(tmp_path / "adk"))
    assert done.returncode == 1
    assert [line.removeprefix(f"{agent}:") for line in done.stdout.splitlines()] == [
        "2: McpToolset differs: a server that can't be reached fails the run; `on_error=\"warn\"` is ADK's way",
        "3: ADK's APIHubToolset is not offered yet; it is planned with: Google Cloud tools",
        "6: greenroom has no types.NoSuchType of google.genai",
    ]
    assert done.stderr == "missing: 2; names of ADK: 5; files: 1\n"


def test_an_app_without_findings_passes(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(
        "from google.adk.agents import LlmAgent\nfrom google.genai.types import Content\n"
    )
    done = cli("check", str(tmp_path / "agent.py"))
    assert (done.returncode, done.stdout) == (0, "")


def test_a_module_of_adk_can_be_imported_from_greenroom(cli: Cli, tmp_path: Path) -> None:
    agent = tmp_path / "agent.py"
    agent.write_text("from google.adk.agents import llm_agent\nllm_agent.LlmAgent(name='a')\n")
    done = cli.run_process("check", str(agent))
    assert (done.returncode, done.stdout) == (0, "")


def test_a_folder_without_files_is_refused(cli: Cli, tmp_path: Path) -> None:
    assert "No Python files and no YAML agents found" in cli("check", str(tmp_path / "nowhere")).stderr


def test_missing_requirements_of_models_are_reported_with_file_and_line(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "GROQ_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "agent.py").write_text(
        "from greenroom import LlmAgent\n"
        "root_agent = LlmAgent(name='desk', model='gpt-4o')\n"
        "other = LlmAgent(name='other', model=['groq/llama', 'ollama/qwen3'])\n"
        "tool(model='claude-not-an-agent')\n"
        "last = LlmAgent(name='last', model=FallbackModel([RetryingLlm('groq/qwen'), 'openai/gpt-5']))\n"
    )
    (tmp_path / "root_agent.yaml").write_text("name: desk\nmodel: no-such-model\n")
    done = cli("check", str(tmp_path))
    assert done.returncode == 1
    faults = done.stdout.splitlines()
    assert [fault.partition(": ")[0].removeprefix(f"{tmp_path}/") for fault in faults] == [
        "agent.py:2", "agent.py:3", "agent.py:5", "agent.py:5", "root_agent.yaml:2"
    ]  # fmt: skip
    assert "OPENAI_API_KEY" in faults[0]
    assert "GROQ_API_KEY" in faults[1]
    assert "groq/qwen" in faults[2]
    assert "openai/gpt-5" in faults[3]
    assert "No model provider knows the name 'no-such-model'" in faults[4]
    (tmp_path / "agent.py").write_text("from greenroom import LLMRegistry\n")
    assert cli("check", str(tmp_path)).returncode == 0


def lines(cli: Cli, folder: Path, **environment: str) -> tuple[int, list[str]]:
    """The exit code, and the report without the folder's name."""
    done = cli("check", str(folder), **environment)
    return done.returncode, [line.removeprefix(f"{folder}/") for line in done.stdout.splitlines()]


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder


def test_all_findings_are_reported_with_one_install_command(cli: Cli, tmp_path: Path) -> None:
    folder = write(
        tmp_path,
        {
            "shop/__init__.py": "from . import agent\n",
            "shop/agent.py": "import pandas as pd\n"
            "from dotenv import load_dotenv\n"
            "from google.adk.agents import LlmAgent\n"
            "from google.cloud import bigquery\n"
            "from .tools import look_up\n"
            "root_agent = LlmAgent(name='shop', model='local/none', no_such=True, tools=[look_up])\n",
            "shop/tools.py": "import no_such_package\nfrom google.adk.agents import ManagedAgent\n"
            "def look_up():\n    import xlrd\n    return ManagedAgent()\n",
            "shop/broken.py": "type = = 3\n",
            "scripts/deploy.py": "import vertexai\nfrom google.adk.cli.fast_api import get_fast_api_app\n"
            "get_fast_api_app()\n",
        },
    )
    code, found = lines(cli, folder)
    assert code == 1
    assert [line.partition(" ")[0] for line in found] == [
        "scripts/deploy.py:2:",
        "shop/agent.py:1:",
        "shop/agent.py:4:",
        "shop/agent.py:6:",
        "shop/agent.py:6:",
        "shop/tools.py:1:",
        "shop/tools.py:2:",
        "shop/tools.py:4:",
        "pip",
    ]
    assert found[0].endswith("(no app imports this file)")
    assert found[1].endswith("the package of the module pandas is not installed")
    assert "LlmAgent has no argument 'no_such'" in found[3]
    assert "local/none" in found[4]
    assert "ManagedAgent" in found[6]
    assert "imported when it is used" in found[7]
    assert found[8] == "pip install google-cloud-bigquery no-such-package pandas"


def test_packages_that_google_adk_installs_are_reported_as_such(cli: Cli, tmp_path: Path) -> None:
    folder = write(tmp_path, {"agent.py": "import aiosqlite\nimport graphviz\n"})
    code, found = lines(cli, folder)
    assert code == 1
    assert found[0].startswith("agent.py:1: the package of the module aiosqlite is not installed; google-adk brings")
    assert found[-1] == "pip install aiosqlite graphviz"


def test_an_app_with_google_toolsets_has_no_findings(cli: Cli, tmp_path: Path) -> None:
    agent = (
        "import os\n"
        "import google.auth\n"
        "from google.adk.agents import LlmAgent\n"
        "from google.adk.auth.auth_credential import ServiceAccount\n"
        "from google.adk.integrations.eventarc import EventarcCredentialsConfig, EventarcToolset\n"
        "from google.adk.tools.bigquery import BigQueryCredentialsConfig, BigQueryToolset\n"
        "from google.adk.tools.bigquery.config import BigQueryToolConfig, WriteMode\n"
        "from google.adk.tools.bigtable.bigtable_credentials import BigtableCredentialsConfig\n"
        "from google.adk.tools.bigtable.bigtable_toolset import BigtableToolset\n"
        "from google.adk.tools.data_agent import DataAgentCredentialsConfig, DataAgentToolset\n"
        "from google.adk.tools.google_api_tool import CalendarToolset, GoogleApiToolset\n"
        "from google.adk.tools.google_tool import GoogleTool\n"
        "from google.adk.tools.spanner.settings import Capabilities, SpannerToolSettings\n"
        "from google.adk.tools.spanner.spanner_credentials import SpannerCredentialsConfig\n"
        "from google.adk.tools.spanner.spanner_toolset import SpannerToolset\n"
        "tool_config = BigQueryToolConfig(write_mode=WriteMode.ALLOWED, application_name='desk')\n"
        "config = BigQueryCredentialsConfig(\n"
        "    client_id=os.getenv('OAUTH_CLIENT_ID', 'c'), client_secret=os.getenv('OAUTH_CLIENT_SECRET', 's')\n"
        ")\n"
        "bigquery = BigQueryToolset(credentials_config=config, bigquery_tool_config=tool_config)\n"
        "calendar = CalendarToolset(client_id='c', client_secret='s', tool_filter=['calendar_events_list'])\n"
        "drive = GoogleApiToolset('drive', 'v3', service_account=ServiceAccount(use_default_credential=True))\n"
        "spanner = SpannerToolset(\n"
        "    credentials_config=SpannerCredentialsConfig(client_id='c', client_secret='s'),\n"
        "    spanner_tool_settings=SpannerToolSettings(capabilities=[Capabilities.DATA_READ]),\n"
        ")\n"
        "bigtable = BigtableToolset(credentials_config=BigtableCredentialsConfig(client_id='c', client_secret='s'))\n"
        "eventarc = EventarcToolset(credentials_config=EventarcCredentialsConfig(client_id='c', client_secret='s'))\n"
        "agents = DataAgentToolset(credentials_config=DataAgentCredentialsConfig(client_id='c', client_secret='s'))\n"
        "def count(table: str, credentials) -> int:\n"
        "    return 1\n"
        "root_agent = LlmAgent(\n"
        "    name='desk', instruction='Help.',\n"
        "    tools=[bigquery, calendar, drive, spanner, bigtable, eventarc, agents, GoogleTool(func=count, credentials_config=config)],\n"
        ")\n"
    )
    code, found = lines(cli, write(tmp_path, {"desk/agent.py": agent}))
    assert code == 0, found
    assert all(" differs: " in line for line in found)

    moved = re.sub(r"from google\.adk[\w.]* import", "from greenroom import", agent)
    names: dict[str, Any] = {}
    exec(compile(moved, "agent.py", "exec"), names)
    assert [type(tool).__name__ for tool in names["root_agent"].tools] == [
        "BigQueryToolset",
        "CalendarToolset",
        "GoogleApiToolset",
        "SpannerToolset",
        "BigtableToolset",
        "EventarcToolset",
        "DataAgentToolset",
        "GoogleTool",
    ]


def test_a_file_with_a_syntax_error_is_reported(cli: Cli, tmp_path: Path) -> None:
    folder = write(
        tmp_path,
        {
            "shop/agent.py": "from google.adk.agents import ManagedAgent\nfrom .newer import x\nManagedAgent()\n",
            "shop/newer.py": "value = 1\ndef (\n",
        },
    )
    code, found = lines(cli, folder)
    assert code == 1
    assert found[0].startswith("shop/agent.py:1: ADK's ManagedAgent")
    assert found[1].startswith("shop/newer.py:2: this is not valid Python 3.")


def test_names_are_found_however_the_modules_are_imported(cli: Cli, tmp_path: Path) -> None:
    folder = write(
        tmp_path,
        {
            "agent.py": "import google.adk.agents\n"
            "import google.adk.tools.apihub_tool as bq\n"
            "from google import adk\n"
            "from google import genai\n"
            "from google.adk.tools import agent_tool, load_memory_tool\n"
            "import google.genai.types as gt\n"
            "google.adk.agents.ManagedAgent(name='a')\n"
            "bq.APIHubToolset()\n"
            "adk.Agent(name='a')\n"
            "genai.types.NoSuchThing\n"
            "agent_tool.AgentTool(agent=None, no_such=1)\n"
            "load_memory_tool.load_memory_tool\n"
            "gt.NoSuchEither\n"
        },
    )
    code, found = lines(cli, folder)
    assert code == 1
    assert found == [
        "agent.py:1: `import google.adk.agents`: greenroom has ADK's names in one module: `from greenroom import …`",
        "agent.py:2: `import google.adk.tools.apihub_tool`: greenroom has ADK's names in one module: `from greenroom import …`",
        "agent.py:3: `from google import adk`: greenroom has ADK's names in one module: `from greenroom import Agent`",
        f"agent.py:7: {greenroom.ManagedAgent.__doc__}",
        f"agent.py:8: {greenroom.APIHubToolset.__doc__}",
        "agent.py:10: greenroom has no types.NoSuchThing of google.genai",
        "agent.py:11: AgentTool has no argument 'no_such'",
        "agent.py:13: greenroom has no types.NoSuchEither of google.genai",
    ]  # fmt: skip


def test_guarded_and_mentioned_names_do_not_count_as_missing(cli: Cli, tmp_path: Path) -> None:
    folder = write(
        tmp_path,
        {
            "agent.py": "from __future__ import annotations\n"
            "from typing import TYPE_CHECKING\n"
            "from google.adk.agents import LlmAgent\n"
            "from google.adk.agents.llm_agent_config import LlmAgentConfig\n"
            "from google.adk.errors import StaleSessionError\n"
            "if TYPE_CHECKING:\n"
            "    from google.adk.agents import ManagedAgent\n"
            "    import pandas\n"
            "try:\n"
            "    import no_such_package\n"
            "    from google.adk.tools.apihub_tool import APIHubToolset\n"
            "except ImportError:\n"
            "    APIHubToolset = None\n"
            "def look_up(config: LlmAgentConfig) -> ManagedAgent:\n"
            "    try:\n"
            "        return isinstance(config, LlmAgentConfig)\n"
            "    except StaleSessionError:\n"
            "        return None\n"
            "root_agent = LlmAgent(name='a', instruction='', tools=[look_up])\n"
        },
    )
    code, found = lines(cli, folder)
    assert code == 0
    assert [line.partition(" ")[0] for line in found] == ["agent.py:4:", "agent.py:5:"]
    assert all(line.endswith("(the app only mentions it, which does no harm)") for line in found)


def test_a_missing_name_that_another_file_uses_is_missing(cli: Cli, tmp_path: Path) -> None:
    folder = write(
        tmp_path,
        {
            "shop/agent.py": "from shop.kit import ManagedAgent\nroot_agent = ManagedAgent(name='a')\n",
            "shop/kit.py": "from google.adk.agents import ManagedAgent\n",
        },
    )
    code, found = lines(cli, folder)
    assert (code, len(found)) == (1, 1)
    assert found[0].startswith("shop/kit.py:1: ADK's ManagedAgent")


def test_models_in_constants_modules_and_variables_are_found(cli: Cli, tmp_path: Path) -> None:
    folder = write(
        tmp_path,
        {
            "shop/agent.py": "import os\n"
            "from google.adk.agents import Agent\n"
            "from . import config\n"
            "from .config import FAST\n"
            "MODEL = 'unknown-1'\n"
            "OTHER = os.getenv('NO_SUCH_VARIABLE', 'unknown-2')\n"
            "Agent(name='a', model=MODEL)\n"
            "Agent(name='a', model=OTHER)\n"
            "Agent(name='a', model=FAST)\n"
            "Agent(name='a', model=config.SLOW)\n"
            "Agent(name='a', model=os.environ['MODEL_OF_TEST'])\n"
            "Agent(name='a', model=os.environ.get('NO_SUCH_VARIABLE') or 'unknown-5')\n",
            "shop/config.py": "BASE = 'unknown-3'\nFAST = BASE\nSLOW = 'unknown-4'\n",
        },
    )
    code, found = lines(cli, folder, MODEL_OF_TEST="no-such-model")
    assert code == 1
    assert [line.partition(": ")[0] for line in found] == [f"shop/agent.py:{line}" for line in range(7, 13)]
    names = ["unknown-1", "unknown-2", "unknown-3", "unknown-4", "no-such-model", "unknown-5"]
    assert all(f"{name!r}" in line for name, line in zip(names, found, strict=True))


def test_known_causes_of_failing_apps_are_found(cli: Cli, tmp_path: Path) -> None:
    """Apps that others wrote for ADK used these; those that are offered by now have no line."""
    folder = write(
        tmp_path,
        {
            "shop/__init__.py": "",
            "shop/agent.py": "from google.adk.agents import LlmAgent, ManagedAgent\n"
            "from google.adk.agents.config_agent_utils import from_config\n"
            "from google.adk.agents.remote_a2a_agent import AGENT_CARD_WELL_KNOWN_PATH, RemoteA2aAgent\n"
            "from google.adk.tools.retrieval import LlamaIndexRetrieval\n"
            "from google.adk.models.google_llm import Gemini\n"
            "from google.adk.models.lite_llm import LiteLLMClient\n"
            "from google.adk.sessions.base_session_service import BaseSessionService, ListSessionsResponse\n"
            "from google.adk.tools import load_memory_tool, preload_memory_tool\n"
            "from google.adk.tools.calendar_none import Nothing\n"
            "path = f'http://localhost:8001{AGENT_CARD_WELL_KNOWN_PATH}'\n"
            "retrieval = LlamaIndexRetrieval()\n"
            "model = Gemini(use_interactions_api=True)\n"
            "tools = [load_memory_tool.load_memory_tool, preload_memory_tool.PreloadMemoryTool()]\n"
            "managed = ManagedAgent(name='m', agent_id='a')\n"
            "names = (from_config, LiteLLMClient, ListSessionsResponse, RemoteA2aAgent, Nothing)\n"
            "class Sessions(BaseSessionService):\n"
            "    async def create_session(self, **given): ...\n"
            "root_agent = LlmAgent(name='shop', no_argument=True, tools=tools)\n",
            "2-shop/agent.py": "root_agent = None\n",
        },
    )
    code, found = lines(cli, folder)
    assert code == 1
    expected = {
        "shop/agent.py:1": "ManagedAgent is not offered yet",
        "shop/agent.py:4": "LlamaIndexRetrieval is not offered yet",
        "shop/agent.py:9": "greenroom has no Nothing, and ADK 2.13 has none either",
        "shop/agent.py:12": "use_interactions_api=True",
        "shop/agent.py:16": "class Sessions has no ",
        "shop/agent.py:18": "LlmAgent has no argument 'no_argument'",
    }
    if not is_name("2-shop"):
        expected["2-shop/agent.py:1"] = "the folder '2-shop' can't be an app"
    at = {line.partition(": ")[0]: line for line in found if not line.startswith("pip ")}
    assert set(at) == set(expected)
    assert all(text in at[place] for place, text in expected.items())


def test_classes_without_abstract_methods_are_found(cli: Cli, tmp_path: Path) -> None:
    folder = write(
        tmp_path,
        {
            "agent.py": "from google.adk.agents import BaseAgent\n"
            "from google.adk.tools.base_toolset import BaseToolset\n"
            "from elsewhere_else import Mixin\n"
            "class Base(BaseAgent):\n"
            "    pass\n"
            "class Whole(Base):\n"
            "    async def _run_async_impl(self, ctx):\n"
            "        yield\n"
            "class Unknown(Mixin, BaseAgent):\n"
            "    pass\n"
            "class Empty(BaseToolset):\n"
            "    async def close(self):\n"
            "        pass\n",
            "elsewhere_else.py": "class Mixin:\n    pass\n",
        },
    )
    code, found = lines(cli, folder)
    assert code == 1
    assert found == ["agent.py:11: class Empty has no get_tools, which BaseToolset requires here"]


def test_private_members_of_adk_are_found(cli: Cli, tmp_path: Path) -> None:
    agent = """
        from google.adk.agents import LlmAgent
        class Watched(LlmAgent):
            async def _run_async_impl(self, ctx):
                async for event in self._llm_flow.run_async(ctx):
                    yield event
        root_agent = Watched(name="watched", model="local/smollm2-135m")
    """
    code, found = lines(cli, write(tmp_path, {"shop/agent.py": textwrap.dedent(agent)}))
    assert code == 1
    assert "shop/agent.py:5: ADK's _llm_flow.run_async is private, and greenroom has none: call " in found[0]


def test_a_folder_with_only_yaml_files_is_checked(cli: Cli, tmp_path: Path) -> None:
    folder = write(
        tmp_path,
        {
            "shop/root_agent.yaml": "agent_class: LlmAgent\n"
            "name: shop\n"
            "model: no-such-model\n"
            "instruction: Help.\n"
            "tools:\n"
            "  - name: google_search\n"
            "  - name: google.adk.tools.apihub_tool.APIHubToolset\n"
            "  - name: no_such_tool\n"
            "  - name: shop.tools.own\n"
            "sub_agents:\n"
            "  - config_path: other.yaml\n",
            "shop/other.yaml": "agent_class: ManagedAgent\nname: other\ninstruction: Help.\n",
            "shop/broken.yaml": "name: [\n",
        },
    )
    code, found = lines(cli, folder)
    assert code == 1
    assert [line.partition(": ")[0] for line in found] == [
        "shop/broken.yaml:2",
        "shop/other.yaml:1",
        "shop/root_agent.yaml:3",
        "shop/root_agent.yaml:7",
        "shop/root_agent.yaml:8",
    ]
    assert "ManagedAgent" in found[1]
    assert "'no_such_tool'" in found[4]


def test_apps_of_this_repository_lack_only_keys(cli: Cli) -> None:
    root = Path(__file__).parents[2]
    for folder in ("examples", "tests/adk/agents"):
        done = cli("check", str(root / folder))
        harmless = (" differs: ", "The model ", " is hosted by ", "'scripted'")
        assert not [line for line in done.stdout.splitlines() if not any(text in line for text in harmless)]


def test_requirements_of_google_adk_are_known() -> None:
    recorded = json.loads((Path(__file__).parents[1] / "adk" / "names.json").read_text())["requirements"]
    known = requirements_of_adk()
    assert set(known["google-adk"]) == set(recorded[""])
    for_developers = {"benchmark", "dev", "docs", "test", "otel-gcp", ""}
    by_extras = {name for extra, names in recorded.items() if extra not in for_developers for name in names}
    assert by_extras - set(known["google-adk"]) == set(known["extras"])


def test_agents_of_other_frameworks_are_reported_with_what_is_kept(cli: Cli, tmp_path: Path) -> None:
    graph = tmp_path / "apps" / "shop" / "src" / "graph.py"
    graph.parent.mkdir(parents=True)
    (tmp_path / "apps" / "shop" / "langgraph.json").write_text('{"graphs": {"chat": "./src/graph.py:graph"}}')
    graph.write_text(
        "from langgraph.checkpoint.memory import InMemorySaver\n"
        "from langgraph.graph import MessagesState, StateGraph\n"
        "graph = StateGraph(MessagesState).compile(checkpointer=InMemorySaver())\n"
    )

    done = cli("check", str(tmp_path / "apps"))

    assert done.returncode == 0
    kept, checkpointer = [line.removeprefix(f"{graph}:") for line in done.stdout.splitlines()]
    assert kept.startswith("3: graph is hosted by LangGraphAgent; kept: state, messages, streaming")
    assert checkpointer == "3: this checkpointer isn't used: the graph's checkpoints are kept in the session's log"
