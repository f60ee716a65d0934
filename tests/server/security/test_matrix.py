"""Every endpoint, asked by every kind of caller for what is ann's. The expectations are in rules.py."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from greenroom.server.access.identity import SCOPES
from greenroom.server.endpoint import Endpoint
from greenroom.server.endpoints import ENDPOINTS, SOCKETS
from greenroom.server.request_context import is_path_without_app
from tests.server.agents import asking_echo, echo
from tests.server.conftest import Serve
from tests.server.security.keys import Keys, bearer
from tests.server.security.rules import SCOPE_OF, reach_of, status_of
from tests.server.serving import Serving
from tests.server.test_endpoint_table import (
    HEADERS,
    VALUES,
    body_for,
    each,
    each_with_and_without_app,
    filled,
    paths_of,
    with_evaluations,
    with_request,
    with_schedule,
    with_webhook,
)

SECRET = "a-word-that-only-ann-knows"

OTHERS: dict[str, tuple[str, list[str], set[str] | None]] = {
    **{f"bob, {scope}": ("bob", [scope], None) for scope in SCOPES},
    "bob, everything": ("bob", [*SCOPES], None),
    "bob, all of another app": ("bob", [*SCOPES, "app:other"], None),
    "ANN": ("ANN", [*SCOPES], None),
    "a prefix of ann": ("an", [*SCOPES], None),
    "ann, in another app": ("ann", [*SCOPES], {"other"}),
    "an admin of another app": ("root", ["admin"], {"other"}),
    "ann, in no app": ("ann", [*SCOPES, "app:echo"], set()),
}


@dataclass
class Caller:
    scopes: set[str]
    apps: set[str] | None
    headers: dict[str, str]

    def has(self, scope: str) -> bool:
        return scope in {*self.scopes, "any"} or "admin" in self.scopes

    def reaches(self, app: str) -> bool:
        return self.apps is None or app in self.apps


def caller(keys: Keys, subject: str, scopes: list[str], apps: set[str] | None) -> Caller:
    return Caller(set(scopes), apps, bearer(keys(subject, *scopes, apps=apps)))


class World:
    """A server with two apps that asks for keys, and what ann has on it."""

    def __init__(self, server: Serving, client: httpx.AsyncClient, keys: Keys) -> None:
        self.server = server
        self._client = client
        self.keys = keys
        self.admin = bearer(keys("root", "admin"))
        server.client.headers.update(self.admin)

    async def fill(self, endpoint: Endpoint) -> dict[str, str]:
        """ann's things, made anew; the values of path parameters that lead to them."""
        path = "/apps/echo/users/ann/sessions"
        await self.server.client.delete(f"{path}/s-1")
        await self.server.client.delete(f"{path}/s-2")
        session = await self.server.new_session("echo", state={"word": SECRET})
        part = {"filename": VALUES["artifact_name:path"], "artifact": {"text": SECRET}}
        assert (await self.server.client.post(f"{session}/artifacts", json=part)).status_code == 200
        run = await self.server.run("echo", SECRET)
        values = {**VALUES, "run_id": run.headers["x-run-id"], "event_id": run.json()[0]["id"]}
        if endpoint.handler.__name__ == "create_session_with_id":
            values["session_id"] = "s-2"
        if endpoint.tag == "webhooks":
            values["delivery_id"] = await with_webhook(self.server, values["run_id"])
        await with_schedule(self.server, endpoint, SECRET)
        if endpoint.tag == "access":
            values["key_id"] = self.keys.fill(SECRET)
        if endpoint.tag == "requests":
            values["request_id"] = await with_request(self.server, f"ask {SECRET}")
        return await with_evaluations(self.server, endpoint, values)

    async def ask(
        self, endpoint: Endpoint, path: str, values: dict[str, str], headers: dict[str, str], query: str = ""
    ) -> httpx.Response:
        body = body_for(endpoint)
        sent = {} if body is None else {"json": body}
        address = filled(path, values) + query
        return await self._client.request(endpoint.method, address, headers={**HEADERS, **headers}, **sent)

    async def of_ann(self) -> list[Any]:
        """All that can be seen of ann's."""
        at = "/apps/echo/users/ann/sessions"
        paths = (at, f"{at}/s-1", f"{at}/s-1/artifacts", f"{at}/s-1/artifacts/dir%2Fa.png/versions")
        return [(await self.server.client.get(path)).json() for path in paths]


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return Keys(tmp_path_factory.mktemp("keys") / "keys.db")


@pytest.fixture
async def world(serve: Serve, keys: Keys) -> AsyncIterator[World]:
    server = await serve(asking_echo(), echo("other"), auth=keys.auth, default_app="echo", allow_private_webhooks=True)
    async with httpx.AsyncClient(base_url=server.url, verify=False) as client:
        yield World(server, client, keys)


def test_every_endpoint_has_a_rule() -> None:
    assert {f"{endpoint.method} {endpoint.path}": endpoint.access for endpoint in ENDPOINTS} == SCOPE_OF
    for endpoint in ENDPOINTS:
        for path in paths_of(endpoint):
            reach_of(endpoint, path)


def test_every_socket_has_a_rule() -> None:
    """Tested in test_sockets.py."""
    assert {endpoint.path: endpoint.access for endpoint in SOCKETS} == {"/run_live": "run"}


@pytest.mark.parametrize(("endpoint", "path"), each())
async def test_strangers_get_nothing(world: World, keys: Keys, endpoint: Endpoint, path: str) -> None:
    values = await world.fill(endpoint)
    before = await world.of_ann()
    good = keys("ann", *SCOPES)
    for headers, query in (
        ({}, ""),
        (bearer(good[:-1]), ""),
        ({"x-api-key": "admin"}, ""),
        ({"cookie": "greenroom_key=root"}, ""),
        ({}, f"?api_key={good}"),
        (bearer(good), f"?access_token={good}"),
        (bearer(good), f"?limit={good}"),
    ):
        reply = await world.ask(endpoint, path, values, headers, query)
        if SCOPE_OF[f"{endpoint.method} {endpoint.path}"] == "open":
            assert reply.status_code not in (403, 500)
        else:
            assert reply.status_code == 401, (headers, query, reply.text)
            assert reply.headers["www-authenticate"].startswith("Bearer")
        assert SECRET not in reply.text
        assert good not in reply.text
    assert await world.of_ann() == before


def _is_of_echo(path: str) -> bool:
    return "{app_name}" in path or is_path_without_app(path)


@pytest.mark.parametrize(("endpoint", "path"), each_with_and_without_app())
async def test_other_users_get_nothing_of_anns(world: World, keys: Keys, endpoint: Endpoint, path: str) -> None:
    scope = SCOPE_OF[f"{endpoint.method} {endpoint.path}"]
    reach = reach_of(endpoint, path)
    values = await world.fill(endpoint)
    before = await world.of_ann()

    for name, given in OTHERS.items():
        who = caller(keys, *given)
        reply = await world.ask(endpoint, path, values, who.headers)
        status = reply.status_code
        if reply.is_success and endpoint.method != "GET":
            values = await with_evaluations(world.server, endpoint, values)
        assert SECRET not in reply.text, name

        if scope == "open":
            assert status not in (403, 500), name
        elif not who.has(scope) or reach in ("user", "all users") or (_is_of_echo(path) and not who.reaches("echo")):
            assert (status, reply.json()["code"]) == (403, "Forbidden"), name
        elif reach in ("run", "request", "trace", "schedule"):
            ids = ("run_id", "event_id", "session_id", "schedule_id", "request_id")
            absent = {**values, **dict.fromkeys(ids, "absent")}
            unknown = await world.ask(endpoint, path, absent, who.headers)
            assert status == unknown.status_code, name
            same = reply.text
            for one in ("run_id", "event_id", "schedule_id", "request_id"):
                same = same.replace(values[one], "absent")
            assert same == unknown.text, name
            assert status == 404 or reply.json() == [], name
        elif reach == "access":
            assert status in (403, 404), name
        else:
            assert status == status_of(endpoint, with_keys=True), (name, reply.text)

        if path != "/openapi.json" and not who.reaches("echo") and status == 200:
            assert '"echo"' not in reply.text, name

    assert await world.of_ann() == before


@pytest.mark.parametrize(("endpoint", "path"), each())
async def test_callers_that_act_for_ann_are_admitted(world: World, keys: Keys, endpoint: Endpoint, path: str) -> None:
    scope = SCOPE_OF[f"{endpoint.method} {endpoint.path}"]
    needed = [] if scope in ("open", "any") else [scope]
    for given in (
        ("ann", needed, None),
        ("ann", needed, {"echo"}),
        ("bob", [*needed, "app:echo"], {"echo"}),
        ("root", ["admin"], None),
    ):
        values = await world.fill(endpoint)
        reply = await world.ask(endpoint, path, values, caller(keys, *given).headers)
        expected = (
            401 if endpoint.path == "/sign-in" and endpoint.method == "POST" else status_of(endpoint, with_keys=True)
        )
        if reach_of(endpoint, path) == "all users" and given[0] == "ann":
            expected = 403
        if (path.startswith("/roles/") or path == "/settings") and given[2] is not None:
            expected = 403  # they hold for all apps
        assert reply.status_code == expected, (given, reply.text)
        if reach_of(endpoint, path) == "trace":
            assert reply.json(), given
