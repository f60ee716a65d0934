"""Live conversations whose server is killed: the log that is left, and their resumption."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosedError

from greenroom.agents.llm_agent import LlmAgent
from greenroom.invocation.live_requests import LiveRequestQueue
from greenroom.records.content import UserContent
from greenroom.records.run import RunConfig
from greenroom.records.session import SessionKey
from greenroom.testing import ScriptedLiveModel
from tests.durability.engines import WHERE, HeldStore, Stores, ended, engine_over, stores_in, wait_for
from tests.durability.server_process import server_in
from tests.server.live_client import talking

SESSION = "/apps/desk/users/ann/sessions/s-1"


@pytest.mark.kill
async def test_all_that_was_said_is_left_and_the_open_call_is_closed(tmp_path: Path) -> None:
    async with server_in(tmp_path, module="tests.durability.live_server") as server:
        await server.start()
        port = httpx.URL(server.url).port
        assert port is not None
        async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
            assert (await http.post(SESSION)).status_code == 200
            async with talking(port) as client:
                await client.say("hello")
                await client.turn()
                await client.say("work")
                calling = await client.until(lambda frame: "functionCall" in json.dumps(frame))
                await server.kill()
                with pytest.raises(ConnectionClosedError):
                    await client.next()
        await server.start()
        async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
            record = (await http.get(f"/runs/{calling['invocationId']}")).json()
            async with talking(port, after=calling["seq"]) as client:
                missed = await client.next()
                await client.turn()  # the model has a word on the call that was interrupted
                await client.say("again")
                await client.turn()
            events: list[dict[str, Any]] = (await http.get(SESSION)).json()["events"]
    assert (record["status"], record["isLive"]) == ("cancelled", True)
    assert [event["outputTranscription"]["text"] for event in events if "outputTranscription" in event] == [
        "You said hello", "You said ", "You said again",
    ]  # fmt: skip
    assert missed["errorCode"] == "INVOCATION_ABORTED"
    (part,) = missed["content"]["parts"]
    assert part["functionResponse"]["id"] == "c-1"
    assert "error" in part["functionResponse"]["response"]
    assert len({event["id"] for event in events}) == len(events)


async def test_a_live_run_has_ended_when_that_is_stored() -> None:
    """Until then, a crash would cancel it, since its log has no end."""
    store = HeldStore()
    async with stores_in(None) as stores:
        desk = LlmAgent(name="desk", model=ScriptedLiveModel(["Hello there."]))
        async with engine_over(Stores(stores.sessions, store), desk) as engine:
            queue = LiveRequestQueue()
            queue.send_content(UserContent("Hello?"))
            run, reader = await engine.start_live(SessionKey(**WHERE), queue, run_config=RunConfig())
            await wait_for(reader, lambda event: bool(event.turn_complete))
            queue.close()
            ending = asyncio.create_task(ended(reader))
            saving = await store.saving()
            assert not ending.done()
            saving.set_result(None)
            assert (await ending).id == run.id
