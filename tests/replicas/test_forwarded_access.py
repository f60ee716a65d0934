"""Access rules for requests that are forwarded: API keys, other origins, methods and paths."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import NamedTuple
from uuid import uuid4

import httpx
import pytest
import pytest_asyncio
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus
from websockets.typing import Subprotocol

from greenroom.records.session import SessionKey
from tests.postgres.postgres_server import PostgresServer
from tests.replicas.conftest import Pair
from tests.replicas.requests import Json, frames, message, path_of, run_of, texts
from tests.replicas.servers import servers_on
from tests.server.security.keys import Keys, bearer

pytestmark = pytest.mark.asyncio(loop_scope="module")

ORIGIN = "https://app.example"


class Guarded(NamedTuple):
    pair: Pair
    keys: Keys

    @property
    def ann(self) -> dict[str, str]:
        return bearer(self.keys("ann", "run", "read"))

    @property
    def ben(self) -> dict[str, str]:
        return bearer(self.keys("ben", "run", "read"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def guarded(postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Guarded]:
    name = f"test_{uuid4().hex}"
    folder = tmp_path_factory.mktemp("servers")
    keys = Keys(folder / "keys.db")
    options = ("--keys", str(keys.file.path), "--allow-origins", ORIGIN)
    async with servers_on(postgres_server.make_database(name), folder) as started:
        owner = await started.start(*options)
        other = await started.start(*options)
        await started.wait_until_shared(owner, other)
        yield Guarded(Pair(started, owner, other), keys)
    postgres_server.drop_database(name)


async def session_of_ann(guarded: Guarded) -> SessionKey:
    key = await guarded.pair.servers.key_of(guarded.pair.owner)
    created = await guarded.pair.other.http.post(path_of(key), headers=guarded.ann)
    assert created.status_code == 200, created.text
    return key


async def test_the_caller_of_a_forwarded_request_is_that_of_its_key(guarded: Guarded) -> None:
    key = await session_of_ann(guarded)
    ran = await guarded.pair.other.http.post("/run", json=run_of(key, "hello"), headers=guarded.ann)
    assert texts(ran.json()) == ["You said hello"]
    for server in (guarded.pair.owner, guarded.pair.other):
        run = await server.http.get(f"/runs/{ran.headers['x-run-id']}", headers=guarded.ann)
        assert run.json()["status"] == "succeeded"
        assert (await server.http.get(f"/runs/{run.json()['id']}", headers=guarded.ben)).status_code == 404


async def test_other_users_are_refused_on_both_servers_alike(guarded: Guarded) -> None:
    key = await session_of_ann(guarded)
    path = path_of(key)
    started = await guarded.pair.other.http.post(
        path + "/runs", json={"newMessage": message("slow 2000")}, headers=guarded.ann
    )
    run_path = f"/runs/{started.json()['id']}"
    sse = {"accept": "text/event-stream"}
    for headers in (guarded.ben, {}, bearer("gr_x_y"), guarded.ben | sse):
        requests = [
            ("POST", "/run", run_of(key, "hello")),
            ("POST", "/run_sse", run_of(key, "hello")),
            ("POST", path + "/runs", {"newMessage": message("hello")}),
            ("POST", run_path + "/cancel", None),
            ("GET", run_path + "/events", None),
            ("GET", path + "/events", None),
            ("DELETE", path, None),
            ("PATCH", path, {"stateDelta": {"a": 1}}),
        ]
        for method, target, body in requests:
            answers = [
                await server.http.request(method, target, json=body, headers=headers)
                for server in (guarded.pair.owner, guarded.pair.other)
            ]
            assert answers[0].status_code in (401, 403, 404), (method, target, answers[0].text)
            assert answers[1].status_code == answers[0].status_code, (method, target)
            assert answers[1].json()["code"] == answers[0].json()["code"]
    assert (await guarded.pair.other.http.get(run_path, headers=guarded.ann)).json()["status"] == "running"
    await guarded.pair.other.http.post(run_path + "/cancel", headers=guarded.ann)


async def test_a_forwarded_stream_ends_when_its_key_is_revoked(guarded: Guarded) -> None:
    key = await session_of_ann(guarded)
    revoked = guarded.keys("ann", "run", "read", apps=["desk"])
    body = run_of(key, "slow 2000", streaming=True)
    with pytest.raises(httpx.RemoteProtocolError):
        async with asyncio.timeout(20):
            async with guarded.pair.other.http.stream("POST", "/run_sse", json=body, headers=bearer(revoked)) as answer:
                async for _ in frames(answer):
                    guarded.keys.revoke(revoked)
    refused = await guarded.pair.other.http.post("/run_sse", json=body, headers=bearer(revoked))
    assert refused.status_code == 401
    await guarded.pair.owner.http.delete(path_of(key), headers=guarded.ann)


async def test_other_origins_get_each_header_once(guarded: Guarded) -> None:
    key = await session_of_ann(guarded)
    body = run_of(key, "hello")
    answers = [
        await server.http.post("/run", json=body, headers=guarded.ann | {"origin": ORIGIN})
        for server in (guarded.pair.owner, guarded.pair.other)
    ]
    for answer in answers:
        assert answer.status_code == 200
        assert answer.headers.get_list("access-control-allow-origin") == [ORIGIN]
        assert "x-run-id" in answer.headers["access-control-expose-headers"]
        names = [name for name, _ in answer.headers.raw]
        assert len(names) == len(set(names)), names
    assert sorted(answers[0].headers.keys()) == sorted(answers[1].headers.keys())

    preflight = {"origin": ORIGIN, "access-control-request-method": "POST"}
    allowed = await guarded.pair.other.http.options("/run", headers=preflight)
    assert allowed.status_code == 200
    assert allowed.headers.get_list("access-control-allow-origin") == [ORIGIN]
    for headers in ({"origin": "https://evil.example"}, {"origin": ORIGIN, "host": "evil.example"}):
        answers = [
            await server.http.post("/run", json=body, headers=guarded.ann | headers)
            for server in (guarded.pair.owner, guarded.pair.other)
        ]
        assert answers[0].status_code == answers[1].status_code


async def test_head_options_and_unknown_paths_and_methods_are_answered_alike(guarded: Guarded) -> None:
    key = await session_of_ann(guarded)
    started = await guarded.pair.owner.http.post(
        path_of(key) + "/runs", json={"newMessage": message("slow 2000")}, headers=guarded.ann
    )
    run_path = f"/runs/{started.json()['id']}"
    requests = [
        (method, path)
        for method in ("HEAD", "OPTIONS", "PUT", "TRACE")
        for path in (run_path + "/events", path_of(key) + "/events", path_of(key), "/run", run_path + "/nothing")
    ]
    requests += [("GET", "/run"), ("GET", "/run_sse"), ("POST", "/nothing"), ("DELETE", run_path)]
    headers = guarded.ann | {"accept": "text/event-stream"}
    for method, path in requests:
        answers = [
            await server.http.request(method, path, headers=headers)
            for server in (guarded.pair.owner, guarded.pair.other)
        ]
        assert answers[0].status_code == answers[1].status_code, (method, path)
        assert answers[0].content == answers[1].content, (method, path)
        kept = [{**answer.headers, "date": ""} for answer in answers]
        assert kept[0] == kept[1], (method, path)
    await guarded.pair.owner.http.post(run_path + "/cancel", headers=guarded.ann)


async def test_a_live_conversation_has_the_caller_of_its_key(guarded: Guarded) -> None:
    key = await guarded.pair.servers.key_of(guarded.pair.owner, app="talk")
    created = await guarded.pair.other.http.post(path_of(key), headers=guarded.ann)
    assert created.status_code == 200, created.text
    url = f"ws{guarded.pair.other.url.removeprefix('http')}/run_live"
    query = f"app_name=talk&user_id={key.user_id}&session_id={key.session_id}&modalities=TEXT"

    def protocols(headers: dict[str, str]) -> list[Subprotocol]:
        credentials = headers["authorization"].removeprefix("Bearer ")
        return [Subprotocol("greenroom"), Subprotocol(f"greenroom.key.{credentials}")]

    async with connect(f"{url}?{query}", subprotocols=protocols(guarded.ann)) as socket:
        assert socket.subprotocol == "greenroom"
        await socket.send(json.dumps({"content": message("hello")}))
        heard: list[Json] = []
        async with asyncio.timeout(10):
            while not heard or not heard[-1].get("turnComplete"):
                heard.append(json.loads(await socket.recv()))
        assert "You said hello" in texts(heard)
        await socket.send(json.dumps({"close": True}))
    for headers, status in ((guarded.ben, 403), (bearer("gr_x_y"), 401)):
        with pytest.raises(InvalidStatus) as refused:
            async with connect(f"{url}?{query}", subprotocols=protocols(headers)):
                pass
        assert refused.value.response.status_code == status
