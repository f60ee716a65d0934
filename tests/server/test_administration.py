"""Keys, service accounts and roles over HTTP, and attempts to get more permissions by them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from greenroom.records.access import Role, ServiceAccount
from greenroom.server.access.api_key_file import ApiKeyFile
from greenroom.server.access.api_keys import ApiKeyStore, new_key
from greenroom.server.access.api_keys_from_uri import api_keys_from_uri
from greenroom.server.settings import AuthSettings
from tests.server.agents import echo
from tests.server.conftest import Serve
from tests.server.serving import Serving, until

SESSIONS = "/apps/echo/users/ann/sessions"


@pytest.fixture(params=["file", pytest.param("postgres", marks=pytest.mark.slow)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A path or a URI of PostgreSQL."""
    if request.param == "postgres":
        return request.getfixturevalue("postgres_uri")
    ApiKeyFile(tmp_path / "keys.db").create(name="unused", subject="nobody", scopes=[])
    return str(tmp_path / "keys.db")


class Desk:
    """A server with two apps that asks for keys, and its store of keys."""

    def __init__(self, server: Serving, store: ApiKeyStore) -> None:
        self.server = server
        self.store = store

    async def caller(self, subject: str, *scopes: str, apps: list[str] | None = None) -> Caller:
        key, secret = new_key(name="", subject=subject, scopes=scopes, apps=apps)
        await self.store.change(lambda records: records.with_key(key))
        return Caller(self, secret, key.id)


class Caller:
    def __init__(self, desk: Desk, secret: str, key_id: str) -> None:
        self._desk = desk
        self.secret = secret
        self.key_id = key_id

    async def send(self, method: str, path: str, **options: Any) -> httpx.Response:
        headers = {"authorization": f"Bearer {self.secret}"}
        return await self._desk.server.client.request(method, path, headers=headers, **options)

    async def get(self, path: str) -> Any:
        answer = await self.send("GET", path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def done(self, method: str, path: str, body: Any = None) -> Any:
        answer = await self.send(method, path, **({} if body is None else {"json": body}))
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def status(self, method: str, path: str, body: Any = None) -> int:
        return (await self.send(method, path, **({} if body is None else {"json": body}))).status_code

    async def new_key(self, **body: Any) -> Caller:
        made = await self.done("POST", "/keys", body)
        return Caller(self._desk, made["key"], made["id"])


@pytest.fixture
async def desk(serve: Serve, place: str) -> AsyncIterator[Desk]:
    store = api_keys_from_uri(place)
    server = await serve(echo(), echo("other"), auth=AuthSettings(keys=place))
    yield Desk(server, store)
    await store.close()


async def test_a_key_is_created_used_listed_and_revoked(desk: Desk) -> None:
    root = await desk.caller("root", "admin")
    body = {"userId": "ann", "name": "laptop", "scopes": ["run", "read"], "apps": ["echo"], "expiresAt": 5e9}
    answer = await root.send("POST", "/keys", json=body)
    assert answer.headers["cache-control"] == "no-store"
    made = answer.json()
    ann = Caller(desk, made.pop("key"), made["id"])
    assert {name: made[name] for name in body} == body | {"scopes": ["read", "run"]}

    assert await ann.status("GET", SESSIONS) == 200
    assert await ann.status("GET", "/apps/other/users/ann/sessions") == 403
    shown = await root.get(f"/keys/{ann.key_id}")
    assert shown["lastUsedAt"] > time.time() - 60
    listed = await root.get("/keys?user_id=ann")
    assert [one["id"] for one in listed["keys"]] == [ann.key_id]
    assert ann.secret not in str(shown) + str(listed)
    assert (await root.get("/me"))["scopes"] == ["admin"]
    me = {"userId": "ann", "scopes": ["read", "run"], "apps": ["echo"], "keyId": ann.key_id}
    assert await ann.get("/me") == me

    revoked = await root.done("DELETE", f"/keys/{ann.key_id}")
    assert revoked["revokedAt"] is not None
    assert await ann.status("GET", SESSIONS) == 401
    assert await root.done("DELETE", f"/keys/{ann.key_id}") == revoked
    assert await root.status("DELETE", "/keys/0000000000") == 404


async def test_keys_are_listed_in_pages(desk: Desk) -> None:
    root = await desk.caller("root", "admin")
    made = [(await root.new_key(userId="ann")).key_id for _ in range(5)]
    pages: list[list[str]] = []
    token = ""
    while token is not None:
        page = await root.get(f"/keys?user_id=ann&limit=2&page_token={token}")
        pages.append([one["id"] for one in page["keys"]])
        token = page["nextPageToken"]
    assert [len(page) for page in pages] == [2, 2, 1]
    assert [one for page in pages for one in page] == made[::-1]
    assert await root.status("GET", "/keys?page_token=x") == 422


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"userId": "ann", "serviceAccount": "ci"},
        {"userId": "service:ci"},
        {"userId": "ann", "scopes": ["everything"]},
        {"userId": "ann", "scopes": ["app:"]},
        {"userId": "ann", "roles": ["boss"]},
        {"userId": "ann", "expiresAt": 1.0},
        {"userId": "a\nb"},
        {"userId": "ann", "apps": ["a\nb"]},
        {"serviceAccount": "ci", "scopes": ["admin"]},
    ],
)
async def test_invalid_keys_are_refused(desk: Desk, body: dict[str, Any]) -> None:
    root = await desk.caller("root", "admin")
    assert await root.status("PUT", "/service-accounts/ci", {}) == 200
    before = await desk.store.read()
    assert await root.status("POST", "/keys", body) == 422
    assert (await desk.store.read()).keys.keys() == before.keys.keys()


async def test_without_admin_nothing_of_it_is_allowed(desk: Desk) -> None:
    auditor = await desk.caller("auditor", "audit")
    assert (await auditor.get("/me"))["scopes"] == ["audit"]
    assert await auditor.status("GET", "/list-apps") == 403
    root = await desk.caller("root", "admin")
    await root.done("PUT", "/service-accounts/ci", {"scopes": ["run"]})
    await root.done("PUT", "/roles/support", {"scopes": ["read"]})
    for scopes in (["run", "read", "manage", "debug", "audit", "app:echo", "app:other", "approve:x"], ["read"], []):
        ann = await desk.caller("ann", *scopes)
        before = await desk.store.read()
        for method, path, body in (
            ("GET", "/keys", None),
            ("POST", "/keys", {"userId": "ann", "scopes": ["read"]}),
            ("GET", f"/keys/{ann.key_id}", None),
            ("DELETE", f"/keys/{ann.key_id}", None),
            ("GET", "/service-accounts", None),
            ("GET", "/service-accounts/ci", None),
            ("PUT", "/service-accounts/ci", {"scopes": ["run"]}),
            ("DELETE", "/service-accounts/ci", None),
            ("GET", "/roles", None),
            ("PUT", "/roles/support", {"scopes": ["admin"]}),
            ("DELETE", "/roles/support", None),
        ):
            assert await ann.status(method, path, body) == 403, path
        after = await desk.store.read()
        assert (after.keys.keys(), after.accounts, after.custom_roles) == (
            before.keys.keys(), before.accounts, before.custom_roles,
        )  # fmt: skip


async def test_an_admin_of_an_app_grants_nothing_beyond_it(desk: Desk) -> None:
    root = await desk.caller("root", "admin")
    await root.done("PUT", "/roles/of-other", {"scopes": ["read", "app:other"]})
    await root.done("PUT", "/service-accounts/everywhere", {"scopes": ["read"]})
    await root.done("PUT", "/service-accounts/elsewhere", {"scopes": ["read"], "apps": ["other"]})
    chief = await desk.caller("chief", "admin", apps=["echo"])

    for apps in (None, ["other"], ["echo", "other"]):
        given = {} if apps is None else {"apps": apps}
        assert await chief.status("POST", "/keys", {"userId": "chief", "scopes": ["admin"], **given}) == 403
        assert await chief.status("POST", "/keys", {"userId": "x", "scopes": [], **given}) == 403
        assert await chief.status("PUT", "/service-accounts/mine", {"scopes": ["read"], **given}) == 403
    for name in ("everywhere", "elsewhere"):
        assert await chief.status("POST", "/keys", {"serviceAccount": name}) == 404
        assert await chief.status("GET", f"/service-accounts/{name}") == 404
        assert await chief.status("PUT", f"/service-accounts/{name}", {"scopes": [], "apps": ["echo"]}) == 404
        assert await chief.status("DELETE", f"/service-accounts/{name}") == 404
    assert await chief.status("PUT", "/roles/viewer-2", {"scopes": ["read"]}) == 403
    assert await chief.status("DELETE", "/roles/of-other") == 403
    assert await chief.status("DELETE", f"/keys/{root.key_id}?force=true") == 404
    assert await chief.status("GET", f"/keys/{root.key_id}") == 404

    assert [one["id"] for one in (await chief.get("/keys"))["keys"]] == [chief.key_id]
    assert (await chief.get("/service-accounts"))["serviceAccounts"] == []
    assert "of-other" not in [one["name"] for one in (await chief.get("/roles"))["roles"]]

    deputy = await chief.new_key(userId="deputy", roles=["admin"], apps=["echo"])
    assert await deputy.status("POST", "/keys", {"userId": "deputy", "scopes": ["admin"]}) == 403
    await deputy.done("PUT", "/service-accounts/bot", {"scopes": ["run", "read"], "apps": ["echo"]})
    bot = await deputy.new_key(serviceAccount="bot")
    assert await bot.status("GET", "/apps/other/users/service:bot/sessions") == 403
    assert await bot.status("GET", "/apps/echo/users/service:bot/sessions") == 200
    assert await deputy.status("PUT", "/service-accounts/bot", {"scopes": ["run"], "apps": ["echo", "other"]}) == 403
    assert await deputy.status("PUT", "/service-accounts/bot", {"scopes": ["run"]}) == 403


async def test_admins_cannot_make_themselves_approvers(desk: Desk) -> None:
    root = await desk.caller("root", "admin")
    approver = await desk.caller("eve", "admin", "approve:payments")
    await approver.done("PUT", "/roles/payer", {"scopes": ["approve:payments"]})
    await approver.done("PUT", "/service-accounts/payer", {"scopes": ["approve:payments"]})
    for method, path, body in (
        ("POST", "/keys", {"userId": "root", "scopes": ["admin", "approve:payments"]}),
        ("POST", "/keys", {"userId": "root", "roles": ["payer"]}),
        ("POST", "/keys", {"serviceAccount": "payer"}),
        ("PUT", "/roles/mine", {"scopes": ["approve:payments"]}),
        ("PUT", "/service-accounts/mine", {"roles": ["payer"]}),
        ("PUT", "/service-accounts/payer", {"scopes": ["approve:payments", "read"]}),
    ):
        assert await root.status(method, path, body) == 403, (path, body)
    # It may take permissions away, and disable what has more than itself.
    await root.done("PUT", "/service-accounts/payer", {"scopes": ["approve:payments"], "isDisabled": True})
    await root.done("PUT", "/roles/payer", {"scopes": ["approve:payments", "read"], "description": "with reading"})
    await root.done("PUT", "/roles/payer", {"scopes": []})
    assert await root.status("PUT", "/roles/payer", {"scopes": ["approve:payments"]}) == 403


async def test_a_role_changes_what_its_keys_may_do_at_once(desk: Desk) -> None:
    root = await desk.caller("root", "admin")
    await root.done("PUT", "/roles/support", {"scopes": ["read"], "description": "helps"})
    key = await root.new_key(userId="ann", roles=["support"])
    await root.done("PUT", "/service-accounts/ci", {"roles": ["support"]})
    bot = await root.new_key(serviceAccount="ci")
    assert (await bot.get("/me"))["userId"] == "service:ci"
    for caller, user in ((key, "ann"), (bot, "service:ci")):
        path = f"/apps/echo/users/{user}/sessions"
        assert await caller.status("GET", path) == 200
        assert await caller.status("POST", path, {}) == 403
    await root.done("PUT", "/roles/support", {"scopes": ["read", "run"]})
    assert await key.status("POST", SESSIONS, {}) == 200
    assert await bot.status("POST", "/apps/echo/users/service:ci/sessions", {}) == 200

    assert await root.status("DELETE", "/roles/support") == 409
    assert await root.status("DELETE", "/roles/viewer") == 409
    assert await root.status("PUT", "/roles/viewer", {"scopes": ["admin"]}) == 409
    assert await root.status("DELETE", "/roles/absent") == 404
    assert await root.status("PUT", "/roles/-x", {"scopes": []}) == 422
    await root.done("DELETE", f"/keys/{key.key_id}")
    await root.done("DELETE", "/service-accounts/ci")
    await root.done("DELETE", "/roles/support")
    roles = (await root.get("/roles"))["roles"]
    assert [one["name"] for one in roles] == ["viewer", "operator", "developer", "admin"]
    assert all(one["isBuiltIn"] for one in roles)


async def test_a_disabled_account_is_refused_with_all_its_keys(desk: Desk) -> None:
    root = await desk.caller("root", "admin")
    account = {"scopes": ["run", "read"], "description": "builds"}
    made = await root.done("PUT", "/service-accounts/ci", account)
    keys = [await root.new_key(serviceAccount="ci", name=name) for name in ("blue", "green")]
    path = "/apps/echo/users/service:ci/sessions"
    assert [await key.status("GET", path) for key in keys] == [200, 200]

    await root.done("PUT", "/service-accounts/ci", {**account, "isDisabled": True})
    assert [await key.status("GET", path) for key in keys] == [401, 401]
    enabled = await root.done("PUT", "/service-accounts/ci", account)
    assert enabled == made
    assert [await key.status("GET", path) for key in keys] == [200, 200]

    assert len((await root.get("/keys?service_account=ci"))["keys"]) == 2
    await root.done("DELETE", "/service-accounts/ci")
    assert [await key.status("GET", path) for key in keys] == [401, 401]
    await root.done("PUT", "/service-accounts/ci", account)  # another account of this name
    assert [await key.status("GET", path) for key in keys] == [401, 401]


async def test_streams_end_when_a_permission_of_their_key_is_taken_away(desk: Desk) -> None:
    root = await desk.caller("root", "admin")
    await root.done("PUT", "/roles/support", {"scopes": ["read", "debug"]})
    key = await root.new_key(userId="ann", roles=["support"])
    headers = {"authorization": f"Bearer {key.secret}", "accept": "text/event-stream"}
    async with asyncio.timeout(5), desk.server.client.stream("GET", "/runs", headers=headers) as stream:
        pieces = stream.aiter_text()
        assert "snapshot" in await anext(pieces)
        await root.done("PUT", "/roles/support", {"scopes": ["read", "debug", "run"]})
        await asyncio.sleep(0.6)  # a check of the stream, which more permissions don't end
        await root.done("PUT", "/roles/support", {"scopes": ["read"]})
        with pytest.raises(httpx.RemoteProtocolError):
            async for _ in pieces:
                pass


async def test_the_last_administrator_is_kept_unless_forced(desk: Desk) -> None:
    root = await desk.caller("root", "admin")
    await desk.caller("chief", "admin", apps=["echo"])
    assert await root.status("DELETE", f"/keys/{root.key_id}") == 409
    await root.done("PUT", "/service-accounts/ops", {"roles": ["admin"]})
    ops = await root.new_key(serviceAccount="ops")
    await ops.done("DELETE", f"/keys/{root.key_id}")

    assert await ops.status("PUT", "/service-accounts/ops", {"roles": ["admin"], "isDisabled": True}) == 409
    assert await ops.status("PUT", "/service-accounts/ops", {"roles": ["viewer"]}) == 409
    assert await ops.status("DELETE", "/service-accounts/ops") == 409
    assert await ops.status("DELETE", f"/keys/{ops.key_id}") == 409
    await ops.done("PUT", "/roles/boss", {"scopes": ["admin"]})
    await ops.done("PUT", "/service-accounts/ops", {"roles": ["boss"]})
    assert await ops.status("PUT", "/roles/boss", {"scopes": ["read"]}) == 409
    await ops.done("DELETE", f"/keys/{ops.key_id}?force=true")
    assert await ops.status("GET", "/keys") == 401


async def test_two_admins_that_revoke_each_other_leave_one(desk: Desk) -> None:
    first = await desk.caller("first", "admin")
    second = await desk.caller("second", "admin")
    answers = await asyncio.gather(
        first.status("DELETE", f"/keys/{second.key_id}"), second.status("DELETE", f"/keys/{first.key_id}")
    )
    assert sorted(answers) == [200, 401]
    assert (await desk.store.read()).has_admin(time.time())


async def test_changes_hold_on_all_servers(serve: Serve, place: str, desk: Desk) -> None:
    other = Desk(await serve(echo(), auth=AuthSettings(keys=place)), desk.store)
    root = await desk.caller("root", "admin")
    await root.done("PUT", "/service-accounts/ci", {"scopes": ["read"]})
    bot = await root.new_key(serviceAccount="ci")
    there = Caller(other, bot.secret, bot.key_id)
    path = "/apps/echo/users/service:ci/sessions"
    assert await there.status("GET", path) == 200

    async def answers(status: int) -> bool:
        return await there.status("GET", path) == status

    await root.done("PUT", "/service-accounts/ci", {"scopes": []})
    await until(lambda: answers(403), seconds=2)
    await root.done("PUT", "/service-accounts/ci", {"scopes": ["read"], "isDisabled": True})
    await until(lambda: answers(401), seconds=2)


async def test_schedules_of_a_key_that_lost_a_scope_are_not_valid(desk: Desk) -> None:
    from greenroom.records.run import Caller as StoredCaller
    from greenroom.server.access.authentication import Authenticator

    authenticator = desk.server.app._server.authenticator
    assert isinstance(authenticator, Authenticator)
    root = await desk.caller("root", "admin")
    await root.done("PUT", "/roles/support", {"scopes": ["run", "read"]})
    key = await root.new_key(userId="ann", roles=["support"])
    caller = StoredCaller(user_id="ann", key_id=key.key_id, scopes=["read", "run"])
    assert await authenticator.is_valid(caller)
    await root.done("PUT", "/roles/support", {"scopes": ["read"]})
    assert not await authenticator.is_valid(caller)


async def test_a_server_without_keys_says_how_to_get_them(serve: Serve) -> None:
    server = await serve(echo())
    answer = await server.client.get("/keys")
    assert answer.status_code == 501
    assert "greenroom keys create --scopes admin" in answer.json()["detail"]
    me = {"userId": None, "scopes": ["admin"], "apps": None, "keyId": None}
    assert (await server.client.get("/me")).json() == me


def test_names_of_roles_that_vanish_grant_nothing() -> None:
    from greenroom.server.access.api_keys import AccessRecords

    records = AccessRecords(custom_roles={"a": Role(name="a", scopes=["read"])})
    account = ServiceAccount(name="ci", created_at=0.0, roles=["a", "gone"])
    assert records.scopes_with(account.scopes, account.roles) == {"read"}
