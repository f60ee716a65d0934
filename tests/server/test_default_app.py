"""Requests that name no app: which one is meant, and who may mean it."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from greenroom.agents.llm_agent import LlmAgent
from greenroom.server.application import create_app
from greenroom.testing import ScriptedLiveModel
from tests.server.agents import echo
from tests.server.conftest import Serve
from tests.server.live_client import talking, texts
from tests.server.security.conftest import keys as keys
from tests.server.security.keys import Keys, bearer
from tests.server.serving import Json, Serving, frames_of, run_body, serving

REQUIRED = "appName is required: there are 2 apps to choose from"
WITHOUT = [
    ("GET", "/app-info"),
    ("GET", "/users/ann/sessions"),
    ("POST", "/users/ann/sessions"),
    ("GET", "/users/ann/sessions/s-1"),
    ("POST", "/users/ann/sessions/s-1/runs"),
    ("POST", "/run"),
    ("POST", "/run_sse"),
]


def body(app: str | None = "", **more: Any) -> Json:
    """app: "" for a body without the field."""
    made = {**run_body("x"), **more, "appName": app}
    if app == "":
        del made["appName"]
    return made


async def check_is(server: Serving, app: str) -> None:
    """That everything which names no app is about this one."""
    get = server.client.get
    post = server.client.post
    assert (await get("/app-info")).json()["name"] == app
    made = (await post("/users/ann/sessions", json={"sessionId": "s-1", "state": {"a": 1}})).json()
    assert (made["appName"], made["id"]) == (app, "s-1")

    for path in ("/run", "/run_sse"):
        for sent in (body(), body(None), {**body(), "app_name": ""}, {**body(), "app_name": None}):
            reply = await post(path, json=sent)
            assert reply.status_code == 200, reply.text
            (event,) = [frame.data for frame in frames_of(reply.content)] if path == "/run_sse" else reply.json()
            assert event["content"]["parts"] == [{"text": "You said hi"}]
            assert (await get(f"/runs/{event['invocationId']}")).json()["appName"] == app

    part = {"filename": "a/b.txt", "artifact": {"text": "kept"}}
    assert (await post("/users/ann/sessions/s-1/artifacts", json=part)).status_code == 200
    for at in ("", f"/apps/{app}"):
        session = (await get(f"{at}/users/ann/sessions/s-1")).json()
        assert (session["appName"], len(session["events"])) == (app, 16)
        assert (await get(f"{at}/users/ann/sessions/s-1/artifacts/a/b.txt")).json() == {"text": "kept"}

    assert (await server.client.patch("/users/ann/memory", json={"sessionId": "s-1"})).status_code == 200
    started = await post("/users/ann/sessions/s-1/runs", json={"newMessage": {"parts": [{"text": "x"}]}})
    assert (started.status_code, started.json()["appName"]) == (202, app)
    await server.wait_for_status(started.json()["id"], "succeeded")
    assert (await server.client.delete("/users/ann/sessions/s-1")).status_code == 200
    assert (await get(f"/apps/{app}/users/ann/sessions")).json() == []


async def test_the_only_app_is_the_default(server: Serving) -> None:
    await check_is(server, "echo")


async def test_a_setting_names_the_default(serve: Serve) -> None:
    await check_is(await serve(echo(), echo("other"), default_app="other"), "other")


async def test_adks_variable_names_the_default(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADK_DEFAULT_APP_NAME", "other")
    await check_is(await serve(echo(), echo("other")), "other")
    server = await serve(echo(), echo("other"), default_app="echo")
    assert (await server.client.get("/app-info")).json()["name"] == "echo"


async def test_an_app_that_is_named_is_not_the_default(serve: Serve) -> None:
    server = await serve(echo(), echo("other"), default_app="other")
    await server.new_session("echo")
    (event,) = (await server.run("echo")).json()
    assert (await server.client.get(f"/runs/{event['invocationId']}")).json()["appName"] == "echo"
    assert (await server.client.get("/users/ann/sessions")).json() == []


@pytest.mark.parametrize(("method", "path"), WITHOUT)
async def test_without_a_default_the_app_must_be_named(serve: Serve, method: str, path: str) -> None:
    server = await serve(echo(), echo("other"))
    sent = {"json": body()} if method == "POST" else {}
    reply = await server.client.request(method, path, **sent)  # type: ignore[arg-type]
    assert (reply.status_code, reply.headers["content-type"]) == (400, "application/problem+json")
    assert (reply.json()["code"], reply.json()["detail"]) == ("AppNotNamed", REQUIRED)


async def test_a_default_that_is_not_there_is_reported(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    server = await serve(echo(), default_app="eco")
    assert "the default app is 'eco', but the apps are: echo" in caplog.text
    for reply in (await server.client.get("/app-info"), await server.client.post("/run", json=body())):
        assert (reply.status_code, reply.json()["detail"]) == (404, "App not found: 'eco'. Known apps: echo.")


@pytest.mark.parametrize(
    "path",
    ["/users", "/users/", "/app-info/x", "/app-info/x/", "/app-infos", "/usersx/ann/sessions", "//users/ann/sessions",
     "/users/ann/nothing", "/sessions", "/%75sers/ann/sessions", "/apps/users/ann/sessions",
     "/apps//users/ann/sessions"],
)  # fmt: skip
async def test_other_paths_are_not_found(server: Serving, path: str) -> None:
    assert (await server.client.get(path)).status_code == 404


async def test_what_stands_for_the_app_is_no_name(server: Serving) -> None:
    await server.client.post("/users/ann/sessions", json={"sessionId": "s-1"})
    assert (await server.client.get("/apps/-/app-info")).status_code == 404
    assert (await server.client.get("/apps/-/users/ann/sessions")).json() == []


async def test_a_wrong_method_and_an_id_with_a_slash_are_as_everywhere(server: Serving) -> None:
    wrong = await server.client.put("/users/ann/sessions/s-1")
    assert (wrong.status_code, "PATCH" in wrong.headers["allow"]) == (405, True)
    odd = quote("a/b?c%", safe="")
    made = await server.client.post(f"/users/{odd}/sessions/{odd}")
    assert (made.json()["userId"], made.json()["id"], made.json()["appName"]) == ("a/b?c%", "a/b?c%", "echo")


async def test_in_another_application_the_paths_are_below_its_own(serve: Serve) -> None:
    app: Any = Starlette(routes=[Mount("/agents", create_app(agents=[echo()]))])
    async with serving(app) as server:
        assert (await server.client.get("/agents/app-info")).json()["name"] == "echo"
        made = await server.client.post("/agents/users/ann/sessions/s-1")
        assert (made.status_code, made.json()["appName"]) == (200, "echo")
        assert (await server.client.get("/users/ann/sessions")).status_code == 404


@pytest.mark.parametrize("query", [{"app_name": None}, {"app_name": ""}])
async def test_a_live_run_takes_the_default_too(serve: Serve, query: dict[str, Any]) -> None:
    desk = LlmAgent(name="desk", model=ScriptedLiveModel(["Hello."]))
    server = await serve(desk, echo(), default_app="desk")
    await server.new_session("desk")
    async with talking(server.port, **query) as client:
        await client.say("hi")
        assert texts(await client.turn()) == ["Hello."]


# who may


async def test_the_default_is_refused_to_whom_it_is_closed(serve: Serve, keys: Keys) -> None:
    """Also where its user is the same, and where the caller could do it all in an app of its own."""
    server = await serve(echo(), echo("other"), auth=keys.auth, default_app="echo")
    server.client.headers.update(bearer(keys("root", "admin")))
    await server.new_session("echo", state={"word": "secret"})
    for apps, user in (({"other"}, "ann"), (set[str](), "ann"), (None, "bob")):
        scopes = ("run", "read", "debug", "manage", *(["app:other"] if apps else []))
        server.client.headers.update(bearer(keys(user, *scopes, apps=apps)))
        for method, path in WITHOUT:
            if path == "/app-info" and apps is None:
                continue
            sent = {"json": body()} if method == "POST" else {}
            reply = await server.client.request(method, path, **sent)  # type: ignore[arg-type]
            assert (reply.status_code, reply.json()["code"]) == (403, "Forbidden"), (apps, path)
            assert "secret" not in reply.text
            assert apps is None or "echo" not in reply.text
    server.client.headers.update(bearer(keys("ann", "run", "read", apps={"echo"})))
    assert (await server.client.get("/users/ann/sessions/s-1")).json()["state"] == {"word": "secret"}
    assert (await server.client.post("/run", json=body())).status_code == 200
    del server.client.headers["authorization"]
    for method, path in WITHOUT:
        assert (await server.client.request(method, path)).status_code == 401


async def test_the_only_app_that_a_key_reaches_is_its_default(serve: Serve, keys: Keys) -> None:
    server = await serve(echo(), echo("other"), auth=keys.auth)
    server.client.headers.update(bearer(keys("ann", "run", "read", apps={"other"})))
    await check_is(server, "other")
    for apps, detail in ((None, REQUIRED), (set[str](), "appName is required")):
        server.client.headers.update(bearer(keys("ann", "run", "read", apps=apps)))
        for path in ("/run", "/app-info"):
            reply = await server.client.request("POST" if path == "/run" else "GET", path, json=body())
            assert (reply.status_code, reply.json()["detail"]) == (400, detail)


async def test_the_same_request_with_and_without_the_name_is_one(server: Serving) -> None:
    await server.new_session("echo")
    key = {"idempotency-key": "k-1"}
    first = await server.client.post("/run", json=body(), headers=key)
    again = await server.client.post("/run", json=body("echo"), headers=key)
    assert (first.status_code, first.json()) == (200, again.json())
