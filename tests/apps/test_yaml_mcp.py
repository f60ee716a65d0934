"""Agents in YAML that use real MCP servers."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from greenroom import InMemoryRunner, McpToolset, SseConnectionParams, StdioConnectionParams, types
from greenroom.apps.component_registry import ComponentRegistry
from greenroom.errors import AgentConfigError
from greenroom.tools.mcp.connection_params import ConnectionParams
from tests.apps.conftest import AgentsDir
from tests.apps.yaml_apps import call, load, load_llm, scripted
from tests.tools.mcp.bookshop import HERE
from tests.tools.mcp.conftest import Log, each_transport
from tests.tools.mcp.conftest import log as log
from tests.tools.mcp.conftest import params as params
from tests.tools.mcp.conftest import transport as transport

pytestmark = pytest.mark.slow

ALLOW = "ADK_ALLOW_CONFIG_STDIO_MCP_SERVERS"
AGENT = "name: shop\nmodel: scripted\ninstruction: Sell.\ntools:\n- name: McpToolset\n  args: "


@pytest.fixture(autouse=True)
def fresh_registry() -> Iterator[None]:
    ComponentRegistry.set_instance(ComponentRegistry())
    yield
    ComponentRegistry.set_instance(None)


def write(agents_dir: AgentsDir, args: dict[str, Any]) -> Path:
    agents_dir.write("shop/root_agent.yaml", AGENT + json.dumps(args))
    return agents_dir.path


def toolset_of(agents_dir: AgentsDir, args: dict[str, Any]) -> McpToolset:
    (toolset,) = load_llm(write(agents_dir, args)).tools
    assert isinstance(toolset, McpToolset)
    return toolset


def connection_of(toolset: McpToolset) -> Any:
    return toolset._params


def entry_of(connection: ConnectionParams) -> tuple[str, dict[str, Any]]:
    """A connection as files write it."""
    if isinstance(connection, StdioConnectionParams):
        server: Any = connection.server_params
        plain = {"command": server.command, "args": server.args, "env": server.env}
        return "stdio_connection_params", {"server_params": plain, "timeout": connection.timeout}
    kind = "sse" if isinstance(connection, SseConnectionParams) else "streamable_http"
    return f"{kind}_connection_params", {"url": connection.url, "timeout": connection.timeout}


OLD_SERVER = str(HERE.with_name("old_server.py"))


async def answers(agents_dir: AgentsDir, args: dict[str, Any], name: str, **given: object) -> list[Any]:
    """Results of a run's tool calls, with a model that calls that tool first."""
    with scripted([call(name, **given), "Sold."]):
        runner = InMemoryRunner(load(write(agents_dir, args)), app_name="shop")
        session = await runner.session_service.create_session(app_name="shop", user_id="ada")
        message = types.UserContent("hi")
        run = runner.run_async(user_id="ada", session_id=session.id, new_message=message)
        events = [event async for event in run]
        await runner.close()
    return [response.response for event in events for response in event.get_function_responses()]


@each_transport
async def test_an_agent_uses_a_server_over_each_transport(
    agents_dir: AgentsDir, params: ConnectionParams, monkeypatch: pytest.MonkeyPatch, log: Log
) -> None:
    monkeypatch.setenv(ALLOW, "1")
    key, entry = entry_of(params)
    args = {key: entry, "tool_filter": ["buy"], "tool_name_prefix": "shop"}
    (answer,) = await answers(agents_dir, args, "shop_buy", title="Emma")
    assert answer["content"] == [{"type": "text", "text": "bought Emma"}]
    assert "buy Emma" in log.lines()


@pytest.mark.parametrize("key", ["stdio_server_params", "stdioServerParams", "stdioConnectionParams"])
async def test_a_server_is_started_only_where_files_may_do_that(
    agents_dir: AgentsDir, monkeypatch: pytest.MonkeyPatch, log: Log, key: str
) -> None:
    server = {"command": sys.executable, "args": [OLD_SERVER], "env": {"BOOKSHOP_LOG": str(log.path)}}
    args = {key: {"serverParams": server, "timeout": 20} if key == "stdioConnectionParams" else server}
    monkeypatch.delenv(ALLOW, raising=False)
    with pytest.raises(AgentConfigError, match=f"set {ALLOW}=1"):
        load(write(agents_dir, args))
    monkeypatch.setenv(ALLOW, "1")
    (answer,) = await answers(agents_dir, args, "change")
    assert answer["isError"] is False
    assert len(log.process_ids()) == 1, "the variable reached it under its own name"


async def test_a_person_approves_calls_of_a_server_if_the_file_says_so(
    agents_dir: AgentsDir, monkeypatch: pytest.MonkeyPatch, log: Log
) -> None:
    monkeypatch.setenv(ALLOW, "true")
    server = {"command": sys.executable, "args": [str(HERE)], "env": {"BOOKSHOP_LOG": str(log.path)}}
    args = {"stdio_connection_params": {"server_params": server, "timeout": 60}, "require_confirmation": True}
    (answer,) = await answers(agents_dir, args, "buy", title="Emma")
    assert "error" in answer
    assert "buy Emma" not in log.lines()


def test_what_a_file_says_of_a_server_over_http(agents_dir: AgentsDir) -> None:
    agents_dir.write("shop/tools.py", "def headers(context):\n    return {'X-User': context.user_id}")
    url = "https://books.example/mcp"
    toolset = toolset_of(
        agents_dir,
        {
            "streamableHttpConnectionParams": {
                "url": url, "timeout": 8, "sseReadTimeout": 60, "headers": {"X-Api_Key": "k"}, "terminateOnClose": False
            },
            "tool_filter": ["get_book"],
            "tool_list_cache_ttl_seconds": 30,
            "auth_scheme": {"type": "apiKey", "in": "header", "name": "X-Key"},
            "auth_credential": {"auth_type": "apiKey", "api_key": "secret"},
            "credential_key": "books",
            "header_provider": ".tools.headers",
            "use_mcp_resources": True,
        },
    )  # fmt: skip
    connection = connection_of(toolset)
    assert (connection.url, connection.timeout, connection.sse_read_timeout) == (url, 8.0, 60.0)
    assert (connection.headers, connection.terminate_on_close) == ({"X-Api_Key": "k"}, False)
    assert toolset.tool_filter == ["get_book"]
    config = toolset.get_auth_config()
    assert config is not None
    assert (config.credential_key, config.auth_scheme.name) == ("books", "X-Key")
    assert config.raw_auth_credential is not None
    assert config.raw_auth_credential.api_key == "secret"


@pytest.mark.parametrize(
    ("entry", "url"),
    [
        ({"url": "http://books.example:81"}, "http://books.example:81/sse"),
        ({"url": "http://books.example/", "sseEndpoint": "shop/events"}, "http://books.example/shop/events"),
    ],
)
def test_the_path_of_an_sse_server_may_stand_beside_its_address(
    agents_dir: AgentsDir, entry: dict[str, Any], url: str
) -> None:
    assert connection_of(toolset_of(agents_dir, {"sseServerParams": {**entry, "timeout": 3}})).url == url


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ({}, "needs exactly one of stdio_server_params"),
        (
            {"sse_connection_params": {"url": "http://a"}, "streamable_http_connection_params": {"url": "http://b"}},
            "not sse_connection_params and streamable_http_connection_params",
        ),
        ({"sse_connection_params": {}}, "'url' is missing of sse_connection_params"),
        ({"sse_connection_params": {"ulr": "http://a"}}, "there is no such key of sse_connection_params"),
        ({"sse_connection_params": {"url": "http://a"}, "tool_fliter": []}, "did you mean 'tool_filter'"),
        ({"stdio_connection_params": {"server_params": {"args": []}}}, "'command' is missing of server_params"),
        ({"stdio_connection_params": {"timeout": 3}}, "'server_params' is missing of stdio_connection_params"),
    ],
)
def test_mistakes_are_reported(
    agents_dir: AgentsDir, monkeypatch: pytest.MonkeyPatch, args: dict[str, Any], problem: str
) -> None:
    monkeypatch.setenv(ALLOW, "1")
    with pytest.raises(AgentConfigError, match=problem):
        load(write(agents_dir, args))


def test_files_of_strangers_may_name_servers_but_give_no_other_tool_arguments(agents_dir: AgentsDir) -> None:
    folder = write(agents_dir, {"sse_connection_params": {"url": "http://a"}})
    assert load(folder, allow_args=False).name == "shop"
    with pytest.raises(AgentConfigError, match="would start a process"):
        load(write(agents_dir, {"stdio_server_params": {"command": "sh"}}), allow_args=False)
