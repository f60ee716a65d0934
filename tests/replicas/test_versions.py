"""Published versions with several servers, whose folders have other code: all serve them, from the database."""

from __future__ import annotations

import asyncio
from pathlib import Path

from greenroom.records.session import SessionKey
from tests.replicas.requests import Json, path_of, run_of, text_of
from tests.replicas.servers import APP, Server, Servers

_AGENT = '''
from greenroom import FunctionTool, LlmAgent
from tests.durability.scripts import call, model_of

def pay(to: str) -> dict:
    """Pays."""
    return {{"by": "{0}"}}

def turn(message):
    return call("pay", "c-1", to="Roof") if message == "pay" else "{0}"

root_agent = LlmAgent(
    name="desk", model=model_of(turn, "paid by {0}"), tools=[FunctionTool(pay, require_confirmation=True)]
)
'''
_VERSIONS = f"/apps/{APP}/versions"
FOLLOW_SECONDS = 4.0


def _folder(folder: Path, says: str) -> Path:
    (folder / APP).mkdir(parents=True)
    (folder / APP / "agent.py").write_text(_AGENT.format(says))
    return folder


async def _run(server: Server, key: SessionKey, text: str = "hi") -> list[Json]:
    created = await server.http.post(path_of(key))
    assert created.status_code in (200, 409), created.text
    reply = await server.http.post("/run", json=run_of(key, text))
    assert reply.status_code == 200, reply.text
    return reply.json()


async def _set_traffic(server: Server, **shares: int) -> None:
    reply = await server.http.put(f"/apps/{APP}/traffic", json={"shares": shares})
    assert reply.status_code == 200, reply.text


async def _answer(server: Server, key: SessionKey, request: str) -> str:
    response = {"id": request, "name": "adk_request_confirmation", "response": {"confirmed": True}}
    content = {"role": "user", "parts": [{"functionResponse": response}]}
    reply = await server.http.post("/run", json={**run_of(key, ""), "newMessage": content})
    assert reply.status_code == 200, reply.text
    return text_of(reply.json()[-1])


async def test_all_servers_follow_the_traffic_and_continue_runs_of_each_version(
    servers: Servers, tmp_path: Path
) -> None:
    first = await servers.start(agents=_folder(tmp_path / "one", "one"))
    second = await servers.start(agents=_folder(tmp_path / "two", "two"))
    await servers.wait_until_shared(first, second)
    published = [(await server.http.post(_VERSIONS)).json()["name"] for server in (first, second)]
    assert published == ["v1", "v2"]
    keys = [await servers.key_of(server) for server in (first, second)]
    assert [text_of((await _run(first, key))[-1]) for key in keys] == ["one", "two"]

    for name, word in (("v2", "two"), ("v1", "one")):
        await _set_traffic(second, **{name: 100})
        async with asyncio.timeout(FOLLOW_SECONDS):
            while {text_of((await _run(second, key))[-1]) for key in keys} != {word}:
                await asyncio.sleep(0.1)

    waiting = [await servers.key_of(server, prefix="waiting") for server in (first, second)]
    requests = [
        next(request for event in await _run(first, key, "pay") for request in event.get("longRunningToolIds", ()))
        for key in waiting
    ]
    await _set_traffic(first, v2=100)
    async with asyncio.timeout(FOLLOW_SECONDS):
        while {text_of((await _run(second, key))[-1]) for key in keys} != {"two"}:
            await asyncio.sleep(0.1)
    assert await _answer(second, waiting[1], requests[1]) == "paid by one"

    await first.kill()
    await servers.wait_until_shared(second)
    assert await _answer(second, waiting[0], requests[0]) == "paid by one"
    assert {text_of((await _run(second, key))[-1]) for key in (*keys, *waiting)} == {"two"}
    runs = (await second.http.get("/runs", params={"app_name": APP, "app_version": "v1", "limit": 100})).json()["runs"]
    assert {run["status"] for run in runs} == {"succeeded"}
    assert {run["sessionId"] for run in runs} == {key.session_id for key in (*keys, *waiting)}
