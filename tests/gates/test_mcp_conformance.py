"""The MCP gate, as MCP's own conformance suite and its inspector see it. `make conformance` installs and runs both."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from greenroom import LlmAgent
from greenroom.testing import ScriptedModel
from tests.processes import END_WITH_PARENT
from tests.requirements import skip_or_fail
from tests.server.agents import echo
from tests.server.conftest import Serve
from tests.tools.mcp.test_conformance import NODE, ROOT, conformance, in_full, suite

__all__ = ["suite"]

INSPECTOR = ROOT / "tests/node/node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js"
SCENARIOS = [
    "server-initialize",
    "ping",
    "tools-list",
    "tools-call-error",
    "resources-list",
    "server-sse-multiple-streams",
    "dns-rebinding-protection",
]
"""The others call tools, prompts and resources of a server that was written for the suite: an app's only argument is a
message, and its results are what the agent says."""


@pytest.mark.parametrize("name", ["server-initialize", *(pytest.param(one, marks=in_full) for one in SCENARIOS[1:])])
async def test_a_scenario_is_passed(serve: Serve, name: str) -> None:
    failing = LlmAgent(name="test_error_handling", model=ScriptedModel([]))
    server = await serve(echo(), failing, gates=("mcp",), allowed_hosts=("127.0.0.1", "localhost"))
    url = server.url.replace("127.0.0.1", "localhost")
    code, output = await conformance("server", "--url", f"{url}/mcp", "--scenario", name)
    assert code == 0, output


@in_full
async def test_the_inspector_lists_and_calls(serve: Serve) -> None:
    if not INSPECTOR.exists():
        skip_or_fail("needs MCP's inspector: make conformance")
    server = await serve(echo(), gates=("mcp",))

    async def inspect(*arguments: str) -> Any:
        process = await asyncio.create_subprocess_exec(
            *END_WITH_PARENT, str(NODE), str(INSPECTOR), "--cli", f"{server.url}/mcp", "--transport", "http",
            *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        output, errors = await process.communicate()
        assert process.returncode == 0, errors.decode()
        return json.loads(output)

    assert [tool["name"] for tool in (await inspect("--method", "tools/list"))["tools"]] == ["echo"]
    called = await inspect("--method", "tools/call", "--tool-name", "echo", "--tool-arg", "message=hi")
    assert called["content"] == [{"type": "text", "text": "You said hi"}]
    listed = (await inspect("--method", "resources/list"))["resources"]
    assert [one["uri"] for one in listed] == [f"greenroom://echo/sessions/{called['structuredContent']['session_id']}"]
