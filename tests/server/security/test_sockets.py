"""`/run_live` accepts the callers of `/run`, by the same table, and for as long."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus

from greenroom.agents.llm_agent import LlmAgent
from greenroom.server.endpoints import SOCKETS
from greenroom.server.websocket import POLICY
from greenroom.server.websocket_endpoint import KEY_PREFIX, PROTOCOL
from greenroom.testing import Listens, ScriptedLiveModel
from tests.server.conftest import Serve
from tests.server.live_client import talking, texts
from tests.server.security.keys import Keys, bearer
from tests.server.serving import Serving, until

PATHS = [path for endpoint in SOCKETS for path in (endpoint.path, *endpoint.aliases)]


@pytest.fixture
async def server(serve: Serve, keys: Keys) -> Serving:
    agent = LlmAgent(name="desk", model=ScriptedLiveModel(["Hello there.", Listens()]))
    server = await serve(agent, auth=keys.auth)
    server.client.headers.update(bearer(keys("ann", "run", "read")))
    await server.new_session("desk")
    return server


async def refused(server: Serving, path: str = "/run_live", **options: Any) -> tuple[int, str]:
    with pytest.raises(InvalidStatus) as caught:
        async with talking(server.port, path, **options):
            pass
    body = caught.value.response.body
    return caught.value.response.status_code, body.decode() if body else ""


@pytest.mark.parametrize("path", PATHS)
async def test_who_is_not_known_is_refused_at_the_handshake(server: Serving, keys: Keys, path: str) -> None:
    key = keys("ann", "run")
    for headers in ({}, bearer(key[:-1]), {"x-api-key": "wrong"}, {"cookie": "greenroom_key=wrong"}):
        assert (await refused(server, path, additional_headers=headers))[0] == 401, headers
    assert (await refused(server, path, subprotocols=[PROTOCOL, KEY_PREFIX + key[:-1]]))[0] == 401
    status, body = await refused(server, path, api_key=key)
    assert status == 401
    assert key not in body
    status, body = await refused(server, path, session_id=key)
    assert status == 401
    assert key not in body


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("subject", "scopes", "apps"),
    [
        ("bob", ["run", "read", "manage", "debug"], None),
        ("bob", ["run", "app:other"], None),
        ("ann", ["read", "manage", "debug"], None),
        ("ann", ["app:desk"], None),
        ("ann", ["run"], ["other"]),
        ("ann", ["admin"], ["other"]),
    ],
)
async def test_a_key_that_does_not_reach_so_far_is_refused(
    server: Serving, keys: Keys, path: str, subject: str, scopes: list[str], apps: list[str] | None
) -> None:
    key = keys(subject, *scopes, apps=apps)
    for session in ("s-1", "nowhere"):
        status, body = await refused(server, path, session_id=session, additional_headers=bearer(key))
        assert (status, '"code":"Forbidden"' in body) == (403, True)


@pytest.mark.parametrize("path", PATHS)
async def test_a_foreign_page_gets_no_socket_though_it_has_the_cookie(server: Serving, keys: Keys, path: str) -> None:
    cookie = {"cookie": f"greenroom_key={keys('ann', 'run')}"}
    status, body = await refused(server, path, additional_headers=cookie, origin="https://evil.example")
    assert (status, body) == (403, "Forbidden: origin not allowed")
    async with talking(server.port, path, additional_headers=cookie, origin=server.url) as client:
        await client.say("hi")
        assert texts(await client.turn()) == ["Hello there."]


async def test_a_browser_gives_its_key_as_a_subprotocol(server: Serving, keys: Keys) -> None:
    offered = [PROTOCOL, KEY_PREFIX + keys("ann", "run")]
    async with talking(server.port, subprotocols=offered) as client:
        assert client.socket.subprotocol == PROTOCOL
        await client.say("hi")
        assert texts(await client.turn()) == ["Hello there."]


async def test_a_name_led_to_this_machine_gets_no_socket(serve: Serve) -> None:
    agent = LlmAgent(name="desk", model=ScriptedLiveModel([Listens()]))
    server = await serve(agent, allowed_hosts=("localhost",))
    await server.new_session("desk")
    headers = {"host": "rebound.example"}
    assert await refused(server, additional_headers=headers) == (403, "Forbidden: host not allowed")
    async with talking(server.port):
        pass


async def test_a_conversation_ends_when_its_key_is_revoked(server: Serving, keys: Keys) -> None:
    key = keys("ann", "run")
    async with talking(server.port, additional_headers=bearer(key)) as client:
        await client.say("hi")
        await client.turn()
        keys.revoke(key)
        async with asyncio.timeout(2):
            assert await client.closed() == (POLICY, "The key was revoked or has expired")
    log = (await server.client.get("/apps/desk/users/ann/sessions/s-1")).json()["events"]
    await server.wait_for_status(log[-1]["invocationId"], "succeeded", "cancelled")


async def test_a_conversation_ends_by_itself_where_keys_are_asked_for(server: Serving, keys: Keys) -> None:
    async with talking(server.port, additional_headers=bearer(keys("ann", "run"))) as client:
        await client.say("hi")
        await client.turn()
        log = (await server.client.get("/apps/desk/users/ann/sessions/s-1")).json()["events"]
        run_id = log[-1]["invocationId"]
        await server.client.post(f"/runs/{run_id}/cancel")
        code, _ = await client.closed()
        assert code == 1000

    async def over() -> bool:
        return (await server.client.get(f"/runs/{run_id}")).json()["status"] == "cancelled"

    await until(over)
