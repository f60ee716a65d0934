"""A2A, as the client of `@a2a-js/sdk` sees it."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import a2a.types as a2a

from greenroom import LlmAgent
from tests.gates.test_a2a_push import has_state, receiving
from tests.processes import END_WITH_PARENT
from tests.requirements import skip_or_fail
from tests.server.agents import HeldModel, echo
from tests.server.conftest import Serve

_FOLDER = Path(__file__).parents[1] / "node"
_NODE = shutil.which("node")


async def test_messages_streams_tasks_and_webhooks(serve: Serve) -> None:
    if _NODE is None or not (_FOLDER / "node_modules/@a2a-js/sdk").exists():
        skip_or_fail("needs node and A2A's client: make node-servers")
    held = LlmAgent(name="held", model=HeldModel())
    server = await serve(echo(), held, gates=("a2a",), allow_private_webhooks=True)

    async with receiving() as receiver:
        urls = (f"{server.url}/a2a/echo", f"{server.url}/a2a/held", receiver.url)
        process = await asyncio.create_subprocess_exec(
            *END_WITH_PARENT, _NODE, str(_FOLDER / "a2a_client.mjs"), *urls, stdout=asyncio.subprocess.PIPE
        )
        output, _ = await process.communicate()
        assert process.returncode == 0
        await receiver.until(has_state("TASK_STATE_CANCELED"))
        assert {headers["x-a2a-notification-token"] for headers, _ in receiver.requests} == {"t-1"}

    made = json.loads(output)
    assert made["texts"][0] == made["texts"][1]
    assert "one two" in made["texts"][0][0]
    completed = a2a.TaskState.TASK_STATE_COMPLETED
    canceled = a2a.TaskState.TASK_STATE_CANCELED
    assert made["states"] == [completed, completed, canceled]
    first, *updates, last = made["streamed"]
    assert (first["kind"], last["kind"], last["state"]) == ("task", "statusUpdate", completed)
    *pieces, whole = updates
    assert len(pieces) > 1
    assert ("".join(one["text"] for one in pieces), whole["isLast"]) == (whole["text"], True)
    assert made["configs"] == [[True, "p", receiver.url, "t-1"]] * 3
