"""Authentication with API keys, their expiry and revocation."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.errors import CallerError, StorageError
from greenroom.server.access.api_key_file import ApiKeyFile
from greenroom.server.settings import AuthSettings
from tests.server.agents import HeldModel
from tests.server.conftest import Serve
from tests.server.serving import Serving, run_body, until

SESSIONS = "/apps/echo/users/ann/sessions"


@pytest.fixture
def keys(tmp_path: Path) -> ApiKeyFile:
    file = ApiKeyFile(tmp_path / "keys.db")
    file.create(name="unused", subject="nobody", scopes=[])
    return file


@pytest.fixture
async def server(serve: Serve, keys: ApiKeyFile) -> Serving:
    return await serve(auth=AuthSettings(keys=str(keys.path)))


def new(keys: ApiKeyFile, *scopes: str, subject: str = "ann", **more: Any) -> str:
    return keys.create(name="test", subject=subject, scopes=scopes or ("run", "read"), **more)[1]


async def ask(server: Serving, path: str = SESSIONS, **headers: str) -> httpx.Response:
    sent = {name.replace("_", "-").encode(): value.encode("latin-1") for name, value in headers.items()}
    return await server.client.get(path, headers=sent)


async def test_a_key_is_taken_from_either_header_and_from_the_cookie(server: Serving, keys: ApiKeyFile) -> None:
    key = new(keys)
    for headers in (
        {"authorization": f"Bearer {key}"},
        {"authorization": f"bearer  {key}"},
        {"x_api_key": key},
        {"x_api_key": key, "authorization": f"Bearer {key}"},
        {"cookie": f"other=1; greenroom_key={key}"},
    ):
        assert (await ask(server, **headers)).status_code == 200, headers


async def test_without_a_good_key_nothing_is_answered(server: Serving, keys: ApiKeyFile) -> None:
    key = new(keys)
    other = new(keys)
    for headers in (
        {},
        {"authorization": key},
        {"authorization": f"Basic {key}"},
        {"authorization": "Bearer"},
        {"x_api_key": ""},
        {"x_api_key": key[:-1]},
        {"x_api_key": key + "x"},
        {"x_api_key": key.upper()},
        {"x_api_key": "gr_"},
        {"x_api_key": "gr__"},
        {"x_api_key": f"gr_{key.split('_')[1]}_"},
        {"x_api_key": f"gr_{key.split('_')[1]}_{other.split('_', 2)[2]}"},
        {"x_api_key": "é"},
        {"x_api_key": "x" * 30_000},
        {"x_api_key": key, "authorization": f"Bearer {other}"},
        {"cookie": f"greenroom_key={key[:-1]}"},
        {"cookie": f"greenroom_keys={key}"},
    ):
        reply = await ask(server, **headers)
        assert reply.status_code == 401, headers
        assert reply.headers["www-authenticate"].startswith("Bearer")
        assert reply.json()["code"] == "Unauthenticated"
        assert key not in reply.text


async def test_a_key_in_the_address_is_refused(server: Serving, keys: ApiKeyFile) -> None:
    key = new(keys)
    for query in (f"api_key={key}", f"Access_Token={key}", "token=x", f"page_token={key}", f"limit=1&x={key}", "key="):
        for headers in ({}, {"x_api_key": key}):
            reply = await ask(server, f"{SESSIONS}?{query}", **headers)
            assert reply.status_code == 401
            assert "address" in reply.json()["detail"]
            assert key not in reply.text
    assert (await ask(server, f"{SESSIONS}?limit=1&page_token=", x_api_key=key)).status_code in (200, 422)


async def test_open_endpoints_ask_for_nothing(server: Serving) -> None:
    for path in ("/health", "/version", "/docs", "/openapi.json", "/dev-ui/", "/dev-ui/sign-in"):
        assert (await ask(server, path)).status_code == 200
        assert (await ask(server, path, x_api_key="wrong")).status_code == 200


async def test_a_key_that_expires_or_is_revoked_is_refused_soon(server: Serving, keys: ApiKeyFile) -> None:
    made, key = keys.create(name="", subject="ann", scopes=["read"])
    short = new(keys, "read", expires_at=time.time() + 0.7)
    assert (await ask(server, x_api_key=key)).status_code == 200
    assert (await ask(server, x_api_key=short)).status_code == 200

    async def refused() -> bool:
        return (await ask(server, x_api_key=key)).status_code == 401

    keys.revoke(made.id)
    await until(refused, seconds=1.5)

    async def expired() -> bool:
        reply = await ask(server, x_api_key=short)
        return reply.status_code == 401 and "expired" in reply.text

    await until(expired, seconds=2)


async def test_a_stream_ends_when_its_key_is_revoked(serve: Serve, keys: ApiKeyFile) -> None:
    model = HeldModel()
    auth = AuthSettings(keys=str(keys.path))
    server = await serve(LlmAgent(name="held", model=model), auth=auth, keep_alive_seconds=0.2)
    made, key = keys.create(name="", subject="ann", scopes=["run", "read"])
    server.client.headers["x-api-key"] = key
    await server.new_session("held")
    connection = await server.connect()
    await connection.post("/run_sse", run_body("held", streaming=True), {"x-api-key": key})
    status, headers = await connection.head()
    assert status == 200
    model.let_go(1)
    assert b"one" in await connection.chunk()
    keys.revoke(made.id)
    with pytest.raises(asyncio.IncompleteReadError):  # no last chunk: the client comes back, and is refused
        while True:
            await connection.chunk()
    model.let_go()
    _, other = keys.create(name="", subject="ann", scopes=["read"])
    server.client.headers["x-api-key"] = other
    await server.wait_for_status(headers["x-run-id"], "succeeded")


async def test_an_idle_stream_ends_when_its_key_is_revoked(serve: Serve, keys: ApiKeyFile) -> None:
    server = await serve(auth=AuthSettings(keys=str(keys.path)))
    made, key = keys.create(name="", subject="ann", scopes=["run", "read"])
    server.client.headers["x-api-key"] = key
    session = await server.new_session("echo")
    connection = await server.connect()
    await connection.request("GET", f"{session}/events", {"accept": "text/event-stream", "x-api-key": key})
    assert (await connection.head())[0] == 200
    keys.revoke(made.id)
    async with asyncio.timeout(3):  # before the first keep-alive, which comes after 15 s
        with pytest.raises(asyncio.IncompleteReadError):
            await connection.chunk()


async def test_the_last_use_is_written_down(serve: Serve, keys: ApiKeyFile) -> None:
    server = await serve(auth=AuthSettings(keys=str(keys.path)))
    made, key = keys.create(name="", subject="ann", scopes=["read"])
    before = time.time()
    await ask(server, x_api_key=key)

    def used() -> bool:
        return any(one.id == made.id and (one.last_used_at or 0) >= before for one in keys.read().keys.values())

    await until(used)


async def test_without_its_file_a_server_lets_nobody_in(server: Serving, keys: ApiKeyFile) -> None:
    key = new(keys)
    assert (await ask(server, x_api_key=key)).status_code == 200
    keys.path.rename(keys.path.with_suffix(".away"))

    async def closed() -> bool:
        return (await ask(server, x_api_key=key)).status_code == 503

    await until(closed, seconds=2)
    keys.path.with_suffix(".away").rename(keys.path)

    async def open_again() -> bool:
        return (await ask(server, x_api_key=key)).status_code == 200

    await until(open_again, seconds=2)
    await asyncio.sleep(0)
    keys.path.write_bytes(b"this is no database" * 100)
    await until(closed, seconds=2)


def test_what_is_stored_of_a_key_is_of_no_use(keys: ApiKeyFile) -> None:
    made, key = keys.create(name="", subject="ann", scopes=["read"])
    secret = key.split("_", 2)[2]
    assert len(secret) >= 43
    for file in keys.path.parent.iterdir():
        assert secret.encode() not in file.read_bytes()
    assert stat.S_IMODE(keys.path.stat().st_mode) == 0o600
    assert made.digest.hex() not in repr(made)
    assert repr(made.digest) not in repr(made)
    assert secret not in repr(made)
    with sqlite3.connect(keys.path) as connection:
        assert connection.execute("SELECT count(*) FROM api_keys").fetchone() == (2,)
    connection.close()


def test_keys_are_stored_and_revoked(keys: ApiKeyFile, tmp_path: Path) -> None:
    given: dict[str, Any] = {
        "name": "for ci", "subject": "a b\tc", "scopes": ["run", "app:my app"], "apps": ["my app", "x"], "expires_at": 5e9,
    }  # fmt: skip
    made, key = keys.create(**given)
    (found,) = [one for one in keys.read().keys.values() if one.id == made.id]
    assert found == made
    assert (found.name, found.subject, found.expires_at) == ("for ci", "a b\tc", 5e9)
    assert (found.scopes, found.apps) == ({"run", "app:my app"}, {"my app", "x"})
    assert found.fits(key)
    assert found.is_good(time.time())
    keys.revoke(made.id)
    once = keys.read().key(made.id)
    assert not once.is_good(time.time())
    keys.revoke(made.id)
    assert keys.read().key(made.id) == once
    with pytest.raises(CallerError):
        keys.revoke("nothing")
    with pytest.raises(StorageError):
        ApiKeyFile(tmp_path / "absent.db").read()


async def test_a_browser_signs_in_and_out(server: Serving, keys: ApiKeyFile) -> None:
    key = new(keys)
    async with httpx.AsyncClient(base_url=server.url) as browser:
        assert (await browser.get("/sign-in")).headers["location"] == "/dev-ui/sign-in"
        refused = await browser.post("/sign-in", json={"key": key[:-1]})
        assert refused.status_code == 401
        assert "set-cookie" not in refused.headers
        foreign = await browser.post("/sign-in", json={"key": key}, headers={"origin": "https://evil.example"})
        assert foreign.status_code == 403
        reply = await browser.post("/sign-in", json={"key": f" {key} "}, headers={"origin": server.url})
        assert (reply.status_code, reply.json()) == (200, {"userId": "ann"})
        assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(reply.headers["set-cookie"].split("; "))
        assert (await browser.get(SESSIONS)).status_code == 200
        assert (await browser.get("/apps/echo/users/bob/sessions")).status_code == 403
        assert (await browser.post("/sign-in", json={"key": ""})).json() == {"userId": None}
        assert (await browser.get(SESSIONS)).status_code == 401
        for scopes in (["admin"], ["read", "app:echo"]):
            _, of_many = keys.create(name="", subject="ann", scopes=scopes)
            assert (await browser.post("/sign-in", json={"key": of_many})).json() == {"userId": None}


async def test_signing_in_where_nobody_is_asked_keeps_no_key(serve: Serve) -> None:
    server = await serve()
    reply = await server.client.post("/sign-in", json={"key": "gr_some_key\r\nx-injected: 1"})
    assert reply.status_code == 200
    assert "some_key" not in reply.headers["set-cookie"]
    assert "x-injected" not in reply.headers


async def test_credentials_do_not_reach_the_log(
    server: Serving, keys: ApiKeyFile, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    key = new(keys)
    for sent in (key, key[:-1]):
        await ask(server, "/apps/nope/app-info", x_api_key=sent)
        await ask(server, f"{SESSIONS}?api_key={sent}")
        await server.client.post("/sign-in", json={"key": sent})
    own = [record.getMessage() for record in caplog.records if record.name.startswith("greenroom")]
    assert not [line for line in own if key[:-1] in line]
