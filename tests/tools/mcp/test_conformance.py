"""The client scenarios of MCP's own conformance suite, driven by its program. `make node-servers` installs it."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.processes import END_WITH_PARENT
from tests.requirements import skip_or_fail

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
SUITE = ROOT / "tests/node/node_modules/@modelcontextprotocol/conformance/dist/index.js"
OURS = ROOT / ".uv/node/bin/node"  # the suite needs node 22, the other servers do not
NODE = str(OURS) if OURS.exists() else shutil.which("node")

LOGINS = [
    "metadata-default", "metadata-var1", "metadata-var2", "metadata-var3", "basic-cimd", "scope-from-www-authenticate",
    "scope-from-scopes-supported", "scope-omitted-when-undefined", "scope-step-up", "scope-retry-limit",
    "token-endpoint-auth-basic", "token-endpoint-auth-post", "token-endpoint-auth-none", "pre-registration",
    "2025-03-26-oauth-endpoint-fallback", "resource-mismatch", "offline-access-scope", "offline-access-not-supported",
    "client-credentials-basic",
]  # fmt: skip
PASSED = ["initialize", "tools_call", "sse-retry", *(f"auth/{name}" for name in LOGINS)]
QUICK = ["tools_call", "auth/scope-step-up"]
in_full = pytest.mark.skipif("GREENROOM_CONFORMANCE" not in os.environ, reason="only in `make conformance`")
EXPECTED_FAILURES = {
    "elicitation-sep1034-client-defaults": "an older server's question is answered `cancel` at first, because a "
    "person's answer may come after a restart; the repeated call has it, with the defaults",
    "auth/2025-03-26-oauth-metadata-backcompat": "the SDK refuses metadata of another issuer (RFC 8414, 3.3)",
    "auth/client-credentials-jwt": "a credential of an app is an id and a secret, as in ADK",
    "auth/cross-app-access-complete-flow": "an identity provider's assertions are not exchanged",
}


@pytest.fixture(autouse=True, scope="module")
def suite() -> None:
    if NODE is None or not SUITE.exists():
        skip_or_fail("needs node 22 and MCP's conformance suite: make node-servers")


async def conformance(*arguments: str) -> tuple[int | None, str]:
    """The program's exit code and output."""
    process = await asyncio.create_subprocess_exec(
        *END_WITH_PARENT,
        str(NODE),
        str(SUITE),
        *arguments,
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    text = output.decode()
    if "does not provide an export" in text:
        skip_or_fail("MCP's conformance suite needs node 22")
    return process.returncode, text


async def scenario(name: str) -> tuple[int | None, str]:
    command = f"{sys.executable} -m tests.tools.mcp.conformance_client"
    return await conformance("client", "--command", command, "--scenario", name)


@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(one, marks=in_full) for one in PASSED if one not in QUICK)])
async def test_a_scenario_is_passed(name: str) -> None:
    code, output = await scenario(name)
    assert code == 0, output


@in_full
async def test_the_scenario_of_defaults_fails_at_the_first_answer_only() -> None:
    code, output = await scenario("elicitation-sep1034-client-defaults")
    assert code == 1
    assert "got 'cancel'" in output
    assert "default" not in "".join(line for line in output.splitlines() if "Error:" in line)


async def test_every_scenario_is_passed_or_listed_with_a_reason() -> None:
    _, output = await conformance("list", "--client")
    names = [line.split()[1] for line in output.splitlines() if line.startswith("  - ")]
    assert set(PASSED) < set(names)
    assert [name for name in names if name not in PASSED and name not in EXPECTED_FAILURES] == []
