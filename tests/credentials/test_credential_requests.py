"""Credential requests over HTTP, against a real authorization server. Source: ADK's frames and shapes."""

from __future__ import annotations

import contextlib
import re
import sqlite3
import time
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from greenroom.agents.agent_tool import AgentTool
from greenroom.agents.human_input import credential_exchange
from greenroom.agents.llm_agent import LlmAgent
from greenroom.agents.workflows import ParallelAgent
from greenroom.invocation.user_context import ReadonlyContext, ToolContext
from greenroom.records.auth import AuthConfig, AuthScheme, OAuth2Auth
from greenroom.records.run import RunStatus
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.tools.functions.function_tool import FunctionTool
from greenroom.tools.tool import BaseTool
from greenroom.tools.toolset import BaseToolset
from tests.credentials.authorization_server import CLIENT_ID, CLIENT_SECRET, AuthorizationServer
from tests.credentials.desk import (
    Desk,
    answer,
    call,
    consent,
    login,
    post,
    requests_of,
    responses_of,
    say,
    serve,
    status,
)
from tests.durability.engines import asking, end_of, engine_over, finish, stores_in
from tests.server.serving import Json


async def test_a_call_waits_for_a_login_and_is_made_with_its_token(
    provider: AuthorizationServer, tmp_path: Path
) -> None:
    desk = Desk(login(provider), provider)
    async with serve(desk.agent(), tmp_path) as server:
        await server.new_session("desk")
        events = await say(server, "Who am I?")
        assert [event["content"]["role"] for event in events] == ["model", "user", "user"]
        asking, responses = events[1:]
        (request,) = requests_of(events)
        assert asking["longRunningToolIds"] == [request["id"]]
        assert re.fullmatch("adk-[0-9a-f]{32}", request["id"])
        assert request["args"]["functionCallId"] == "c-1"
        assert responses_of(events) == [{"result": None}]
        config = request["args"]["authConfig"]
        assert responses["actions"]["requestedAuthConfigs"] == {"c-1": config}
        oauth2 = config["exchangedAuthCredential"]["oauth2"]
        assert oauth2["authUri"].startswith(f"{provider.url}/authorize?")
        assert f"state={oauth2['state']}" in oauth2["authUri"]
        run_id = events[0]["invocationId"]
        assert await status(server, run_id) == "waiting"

        after = await say(server, await consent(request))
        assert {event["invocationId"] for event in after} == {run_id}
        assert responses_of(after) == [{"name": "Ada"}]
        assert after[-1]["content"]["parts"] == [{"text": "You are Ada."}]
        assert await status(server, run_id) == "succeeded"
    assert provider.grants == ["authorization_code"]
    assert desk.calls == [None, provider.seen[0]]


async def test_a_run_that_waits_for_a_login_continues_after_a_restart(
    provider: AuthorizationServer, tmp_path: Path
) -> None:
    async with serve(Desk(login(provider), provider).agent(), tmp_path) as server:
        await server.new_session("desk")
        (request,) = requests_of(await say(server, "Who am I?"))
    again = Desk(login(provider), provider)
    async with serve(again.agent("You are Ada."), tmp_path) as server:
        after = await say(server, await consent(request))
        assert responses_of(after) == [{"name": "Ada"}]
    assert len(again.calls) == 1


async def test_no_secret_leaves_the_server(provider: AuthorizationServer, tmp_path: Path) -> None:
    desk = Desk(login(provider), provider)
    async with serve(desk.agent(), tmp_path) as server:
        path = await server.new_session("desk")
        events = await say(server, "Who am I?")
        (request,) = requests_of(events)
        reply = await consent(request)
        frames = await server.sse("desk", None, user="ann", newMessage={"role": "user", "parts": [reply]})
        run_id = events[0]["invocationId"]
        pages = [await server.client.get(where) for where in (path, f"{path}/events", f"/runs/{run_id}/events")]
        seen = str(events) + str(frames) + "".join(page.text for page in pages)
    assert "You are Ada." in seen
    assert CLIENT_ID in seen
    url = reply["functionResponse"]["response"]["exchangedAuthCredential"]["oauth2"]["authResponseUri"]
    code = url.partition("code=")[2].partition("&")[0]
    for secret in (CLIENT_SECRET, code, *provider.tokens, *provider.refreshable, "codeVerifier", "accessToken"):
        assert secret not in seen
    with contextlib.closing(sqlite3.connect(tmp_path / "greenroom.db")) as database:
        rows = database.execute("SELECT data FROM events UNION ALL SELECT data FROM runs").fetchall()
    for secret in (CLIENT_SECRET, code, *provider.tokens, *provider.refreshable):
        assert secret not in str(rows)


async def test_a_declined_login_is_reported_to_the_model(provider: AuthorizationServer, tmp_path: Path) -> None:
    desk = Desk(login(provider), provider)
    async with serve(desk.agent(call("who_am_i"), "As you like."), tmp_path) as server:
        await server.new_session("desk")
        (request,) = requests_of(await say(server, "Who am I?"))
        after = await say(server, await consent(request, deny=True))
    assert responses_of(after) == [{"error": "A person refused this call; it was not made."}]
    assert desk.calls == [None]


async def test_an_answer_with_another_state_is_refused_and_the_request_stays_open(
    provider: AuthorizationServer, tmp_path: Path
) -> None:
    desk = Desk(login(provider), provider)
    async with serve(desk.agent(), tmp_path) as server:
        path = await server.new_session("desk")
        (request,) = requests_of(await say(server, "Who am I?"))
        log = (await server.client.get(f"{path}/events")).text
        stolen = await consent(request)
        oauth2 = stolen["functionResponse"]["response"]["exchangedAuthCredential"]["oauth2"]
        right = oauth2["authResponseUri"]
        oauth2["authResponseUri"] = right.replace("state=", "state=x")
        refused = await post(server, stolen)
        assert refused.status_code == 409
        assert "belongs to another request" in refused.text
        assert provider.grants == []
        assert (await server.client.get(f"{path}/events")).text == log
        oauth2["authResponseUri"] = right
        assert responses_of(await say(server, stolen)) == [{"name": "Ada"}]


@pytest.mark.parametrize("name", ["authCode", "auth_code"])
async def test_a_code_may_come_without_the_address_that_it_came_in(
    provider: AuthorizationServer, tmp_path: Path, name: str
) -> None:
    async with serve(Desk(login(provider), provider).agent(), tmp_path) as server:
        await server.new_session("desk")
        (request,) = requests_of(await say(server, "Who am I?"))
        reply = await consent(request)
        oauth2 = reply["functionResponse"]["response"]["exchangedAuthCredential"]["oauth2"]
        oauth2[name] = parse_qs(urlsplit(oauth2.pop("authResponseUri")).query)["code"][0]
        assert responses_of(await say(server, reply)) == [{"name": "Ada"}]


async def test_a_code_of_another_login_is_refused_by_its_challenge(
    provider: AuthorizationServer, tmp_path: Path
) -> None:
    """An attacker puts a code of a login of their own into another's answer: PKCE binds it to the request."""
    async with serve(Desk(login(provider), provider).agent(call("who_am_i"), call("who_am_i")), tmp_path) as server:
        await server.new_session("desk")
        (mine,) = requests_of(await say(server, "Who am I?"))
        (other,) = requests_of(await say(server, "Who am I?"))
        theirs = await consent(other)
        ours = await consent(mine)
        code_of = theirs["functionResponse"]["response"]["exchangedAuthCredential"]["oauth2"]["authResponseUri"]
        oauth2 = ours["functionResponse"]["response"]["exchangedAuthCredential"]["oauth2"]
        state = oauth2["authResponseUri"].partition("state=")[2]
        oauth2["authResponseUri"] = f"{code_of.partition('&state=')[0]}&state={state}"
        refused = await post(server, ours)
        assert refused.status_code == 409
        assert "invalid_grant" in refused.text


async def test_an_answer_counts_once(provider: AuthorizationServer, tmp_path: Path) -> None:
    desk = Desk(login(provider), provider)
    async with serve(desk.agent(call("who_am_i"), "You are Ada.", "Hm?"), tmp_path) as server:
        await server.new_session("desk")
        (request,) = requests_of(await say(server, "Who am I?"))
        reply = await consent(request)
        await say(server, reply)
        again = await post(server, reply)
        assert again.status_code == 409
        assert again.json()["code"] == "ApprovalRefused"
    assert desk.calls == [None, provider.seen[0]]


async def test_a_provider_that_is_down_loses_nothing(provider: AuthorizationServer, tmp_path: Path) -> None:
    async with serve(Desk(login(provider), provider).agent(), tmp_path) as server:
        await server.new_session("desk")
        (request,) = requests_of(await say(server, "Who am I?"))
        reply = await consent(request)
        provider.is_down = True
        failed = await post(server, reply)
        assert failed.status_code == 500
        assert "status 503" in failed.json()["detail"]
        provider.is_down = False
        assert responses_of(await say(server, reply)) == [{"name": "Ada"}]


async def test_a_log_that_a_client_brings_along_asks_for_nothing(provider: AuthorizationServer, tmp_path: Path) -> None:
    """Events of a session that a client opens count as history, also a real request of another session."""
    desk = Desk(login(provider), provider)
    async with serve(desk.agent(), tmp_path) as server:
        await server.new_session("desk")
        events = await say(server, "Who am I?")
        (request,) = requests_of(events)
        path = "/apps/desk/users/ann/sessions"
        made = await server.client.post(path, json={"sessionId": "s-2", "events": events})
        assert made.status_code == 200, made.text
        of_other_session = await post(server, await consent(request), sessionId="s-2")
        assert of_other_session.status_code == 409
        assert "no run of this session asks for it" in of_other_session.text
        events = [{**event, "invocationId": "e-mine"} for event in events]
        made = await server.client.post(path, json={"sessionId": "s-3", "events": events})
        refused = await post(server, await consent(request), sessionId="s-3")
        assert refused.status_code == 409, refused.text
        assert "no run of this session asks for it" in refused.text
        assert provider.grants == []


async def test_another_user_can_not_answer(provider: AuthorizationServer, tmp_path: Path) -> None:
    async with serve(Desk(login(provider), provider).agent(), tmp_path) as server:
        await server.new_session("desk")
        await server.new_session("desk", user="bob")
        (request,) = requests_of(await say(server, "Who am I?"))
        refused = await post(server, await consent(request), userId="bob")
        assert refused.status_code == 422
        assert provider.grants == []


async def test_nobody_answers_what_was_not_asked(provider: AuthorizationServer, tmp_path: Path) -> None:
    async with serve(Desk(login(provider), provider).agent(), tmp_path) as server:
        await server.new_session("desk")
        (request,) = requests_of(await say(server, "Who am I?"))
        made_up = answer({**request, "id": "adk-made-up"}, {"error": "no"})
        assert (await post(server, made_up)).status_code == 422


async def test_the_apps_own_secrets_can_not_be_replaced_by_an_answer(
    provider: AuthorizationServer, tmp_path: Path
) -> None:
    async with serve(Desk(login(provider), provider).agent(), tmp_path) as server:
        await server.new_session("desk")
        (request,) = requests_of(await say(server, "Who am I?"))
        reply = await consent(request)
        response = reply["functionResponse"]["response"]
        response["authScheme"]["flows"]["authorizationCode"]["tokenUrl"] = "http://127.0.0.1:9/token"
        response["exchangedAuthCredential"]["oauth2"] |= {"clientSecret": "mine", "clientId": "me"}
        response["credentialKey"] = "another"
        assert responses_of(await say(server, reply)) == [{"name": "Ada"}]


async def test_tokens_that_a_client_brings_are_renewed_with_the_apps_own_secret(
    provider: AuthorizationServer, tmp_path: Path
) -> None:
    desk = Desk(login(provider), provider)
    found: list[OAuth2Auth | None] = []

    def look(tool_context: ToolContext) -> str | None:
        """Looks at what was granted."""
        granted = tool_context.get_auth_response(desk.config)
        found.append(granted and granted.oauth2)
        return "ok" if granted else tool_context.request_credential(desk.config)

    async with serve(desk.agent(call("look"), "Done.", tools=[look]), tmp_path) as server:
        await server.new_session("desk")
        (request,) = requests_of(await say(server, "Look."))
        brought = {"accessToken": "t-1", "refreshToken": "r-1", "clientId": "me", "clientSecret": "mine"}
        await say(server, answer(request, {"authType": "oauth2", "oauth2": brought}))
    granted = found[-1]
    assert granted is not None
    assert (granted.access_token, granted.refresh_token) == ("t-1", "r-1")
    assert (granted.client_id, granted.client_secret) == (CLIENT_ID, CLIENT_SECRET)


@pytest.mark.parametrize(("days", "code"), [(29.99, 200), (30.01, 409)])
async def test_an_answer_counts_for_thirty_days(
    provider: AuthorizationServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, days: float, code: int
) -> None:
    class Later:
        @staticmethod
        def time() -> float:
            return time.time() + days * 24 * 3600

    async with serve(Desk(login(provider), provider).agent(), tmp_path) as server:
        await server.new_session("desk")
        (request,) = requests_of(await say(server, "Who am I?"))
        monkeypatch.setattr(credential_exchange, "time", Later)
        answered = await post(server, await consent(request))
        assert answered.status_code == code, answered.text
        assert ("out of date" in answered.text) is (code == 409)


async def test_an_answer_releases_the_calls_of_the_agent_that_asked(
    provider: AuthorizationServer, tmp_path: Path
) -> None:
    desk = Desk(login(provider), provider)
    agents = [
        LlmAgent(name=name, model=ScriptedModel([call("who_am_i", f"c-{name}"), "Ada."]), tools=[desk.who_am_i])
        for name in ("left", "right")
    ]
    async with serve(ParallelAgent(name="desk", sub_agents=agents), tmp_path) as server:
        await server.new_session("desk")
        events = await say(server, "Who am I?")
        left = requests_of([event for event in events if event["author"] == "left"])[0]
        after = await say(server, await consent(left))
        answered = [(event["author"], responses_of([event])) for event in after if responses_of([event])]
        assert answered == [("left", [{"name": "Ada"}])]
        assert len(desk.calls) == 3


async def test_calls_that_need_the_same_credential_ask_once(provider: AuthorizationServer, tmp_path: Path) -> None:
    desk = Desk(login(provider), provider)
    both = [call("who_am_i", "c-1"), call("who_am_i", "c-2")]
    async with serve(desk.agent(both, "You are Ada."), tmp_path) as server:
        await server.new_session("desk")
        events = await say(server, "Who am I?")
        (request,) = requests_of(events)
        assert set(events[1]["actions"]["requestedAuthConfigs"]) == {"c-1", "c-2"}
        after = await say(server, await consent(request))
    assert responses_of(after) == [{"name": "Ada"}] * 2
    assert desk.calls == [None, None, provider.seen[0], provider.seen[0]]


async def test_an_openid_provider_is_asked_where_to_log_in(provider: AuthorizationServer, tmp_path: Path) -> None:
    config = login(provider)
    url = f"{provider.url}/.well-known/openid-configuration"
    scheme = AuthScheme(type="openIdConnect", open_id_connect_url=url, scopes=["openid", "read"])
    desk = Desk(AuthConfig(auth_scheme=scheme, raw_auth_credential=config.raw_auth_credential), provider)
    async with serve(desk.agent(), tmp_path) as server:
        await server.new_session("desk")
        (request,) = requests_of(await say(server, "Who am I?"))
        assert "scope=openid+read" in request["args"]["authConfig"]["exchangedAuthCredential"]["oauth2"]["authUri"]
        assert responses_of(await say(server, await consent(request))) == [{"name": "Ada"}]


async def test_where_nobody_can_log_in_the_model_gets_an_error(provider: AuthorizationServer, tmp_path: Path) -> None:
    config = login(provider)
    scheme = AuthScheme(type="openIdConnect", open_id_connect_url=f"{provider.url}/nothing-here")
    desk = Desk(AuthConfig(auth_scheme=scheme, raw_auth_credential=config.raw_auth_credential), provider)
    async with serve(desk.agent(call("who_am_i"), "Sorry."), tmp_path) as server:
        await server.new_session("desk")
        events = await say(server, "Who am I?")
        error = "The user could not be asked to log in: the OpenID Connect provider answered with status 404"
        assert responses_of(events) == [{"error": error}]
        assert requests_of(events) == []
        assert await status(server, events[0]["invocationId"]) == "succeeded"


@pytest.mark.parametrize(
    "response",
    [
        {"result": "sesame"},
        {"response": "sesame"},
        {"authType": "apiKey", "apiKey": "sesame"},
        {"response": '{"auth_type": "apiKey", "api_key": "sesame"}'},
        {"authScheme": {"type": "apiKey"}, "exchangedAuthCredential": {"authType": "apiKey", "apiKey": "sesame"}},
    ],
)
async def test_a_key_may_be_typed_in(tmp_path: Path, response: Json) -> None:
    desk = Desk(AuthConfig(auth_scheme=AuthScheme(type="apiKey", in_="header", name="X-Key")))
    async with serve(desk.agent(), tmp_path) as server:
        path = await server.new_session("desk")
        (request,) = requests_of(await say(server, "Who am I?"))
        await say(server, answer(request, response))
        assert desk.calls == [None, "sesame"]
        assert "sesame" not in (await server.client.get(path)).text


@pytest.mark.parametrize("response", [{}, {"result": " "}, {"error": "access_denied"}])
async def test_an_answer_without_a_credential_declines(tmp_path: Path, response: Json) -> None:
    desk = Desk(AuthConfig(auth_scheme=AuthScheme(type="apiKey", in_="header", name="X-Key")))
    async with serve(desk.agent(), tmp_path) as server:
        await server.new_session("desk")
        (request,) = requests_of(await say(server, "Who am I?"))
        refused = responses_of(await say(server, answer(request, response)))
        assert refused == [{"error": "A person refused this call; it was not made."}]


@pytest.mark.parametrize(
    "response",
    [
        {"authType": "http", "http": {"scheme": "bearer", "credentials": {"token": "t"}}},
        {"authType": "serviceAccount", "serviceAccount": {"useDefaultCredential": True}},
        {"authType": "apiKey", "apiKey": "k", "serviceAccount": {"useDefaultCredential": True}},
        {"authType": "apiKey", "apiKey": "k", "service_account": {"use_default_credential": True}},
        {"authType": "nonsense"},
        {"response": "{"},
    ],
)
async def test_a_credential_of_another_kind_is_refused(tmp_path: Path, response: Json) -> None:
    desk = Desk(AuthConfig(auth_scheme=AuthScheme(type="apiKey", in_="header", name="X-Key")))
    async with serve(desk.agent(), tmp_path) as server:
        await server.new_session("desk")
        (request,) = requests_of(await say(server, "Who am I?"))
        assert (await post(server, answer(request, response))).status_code == 409
        assert desk.calls == [None]


async def test_an_approval_that_was_given_before_the_login_holds(provider: AuthorizationServer, tmp_path: Path) -> None:
    desk = Desk(login(provider), provider)
    tool = FunctionTool(desk.who_am_i, require_confirmation=True)
    async with serve(desk.agent(tools=[tool]), tmp_path) as server:
        await server.new_session("desk")
        asked = await say(server, "Who am I?")
        approval = asked[1]["content"]["parts"][0]["functionCall"]
        (request,) = requests_of(await say(server, answer(approval, {"confirmed": True})))
        assert responses_of(await say(server, await consent(request))) == [{"name": "Ada"}]


class Catalogue(BaseToolset):
    """Lists its tools only to whom the provider knows."""

    def __init__(self, config: AuthConfig) -> None:
        super().__init__()
        self.config = config
        self.tokens: list[str | None] = []

    def get_auth_config(self) -> AuthConfig | None:
        return self.config

    async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> list[BaseTool]:
        granted = readonly_context.get_auth_response(self.config) if readonly_context is not None else None
        assert granted is not None
        self.tokens.append(granted.bearer_token())

        def look_up() -> str:
            """Looks something up."""
            return "found"

        return [FunctionTool(look_up)]


async def test_a_toolset_that_needs_a_login_to_list_its_tools_waits_for_it(
    provider: AuthorizationServer, tmp_path: Path
) -> None:
    catalogue = Catalogue(login(provider))
    desk = Desk(login(provider), provider)
    async with serve(desk.agent(call("look_up"), "Found.", "Still here.", tools=[catalogue]), tmp_path) as server:
        await server.new_session("desk")
        events = await say(server, "Look it up.")
        (request,) = requests_of(events)
        assert len(events) == 1
        assert request["args"]["functionCallId"] == "_adk_toolset_auth_Catalogue"
        assert await status(server, events[0]["invocationId"]) == "waiting"
        after = await say(server, await consent(request))
        assert responses_of(after) == [{"result": "found"}]
        assert after[-1]["content"]["parts"] == [{"text": "Found."}]
        assert requests_of(await say(server, "Still there?")) == []
    assert set(catalogue.tokens) == set(provider.tokens)


async def test_a_toolset_that_needs_a_login_later_waits_for_it_and_the_agent_continues(
    provider: AuthorizationServer, tmp_path: Path
) -> None:
    class Closing(Catalogue):
        is_closed = False

        def get_auth_config(self) -> AuthConfig | None:
            return super().get_auth_config() if self.is_closed else None

        async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> list[BaseTool]:
            return await super().get_tools(readonly_context) if self.is_closed else []

    catalogue = Closing(login(provider))

    def shut() -> str:
        """Shuts the catalogue."""
        catalogue.is_closed = True
        return "shut"

    desk = Desk(login(provider), provider)
    agent = desk.agent(call("shut", "c-1"), call("look_up", "c-2"), "Found.", tools=[shut, catalogue])
    async with serve(agent, tmp_path) as server:
        await server.new_session("desk")
        (request,) = requests_of(await say(server, "Look it up."))
        after = await say(server, await consent(request))
        assert responses_of(after) == [{"result": "found"}]
        assert after[-1]["content"]["parts"] == [{"text": "Found."}]


async def test_a_run_that_is_cut_off_while_it_waits_for_a_toolset_s_login_waits_again(
    provider: AuthorizationServer,
) -> None:
    agent = Desk(login(provider), provider).agent("Hi.", tools=[Catalogue(login(provider))])
    async with stores_in(None) as stores:
        async with engine_over(stores, agent) as engine:
            run = await finish(engine, asking("go"))
        run.status = RunStatus.RUNNING
        run.attempts = 1
        await stores.runs.save(run)
        log = await stores.log()
        async with engine_over(stores, agent) as engine:
            await engine.recover()
            assert (await end_of(engine, run.id)).status is RunStatus.WAITING
        assert await stores.log() == log


def asks_the_desk(desk: LlmAgent, *, depth: int, has_asked: bool = False) -> LlmAgent:
    """The desk below that many agents that are each other's tools. has_asked: they called each other before a restart."""
    agent = desk
    for level in range(depth):
        asks = () if has_asked else (call(agent.name, f"a-{level}", request="Who is it?"),)
        model = ScriptedModel([*asks, f"Level {level}: Ada."])
        agent = LlmAgent(name=f"boss_{level}", model=model, tools=[AgentTool(agent)])
    return agent


@pytest.mark.parametrize("depth", [1, 2])
async def test_a_login_may_be_needed_inside_agents_that_are_tools(
    provider: AuthorizationServer, tmp_path: Path, depth: int
) -> None:
    desk = Desk(login(provider), provider)
    root = asks_the_desk(desk.agent(), depth=depth)
    app = root.name
    async with serve(root, tmp_path) as server:
        await server.new_session(app)
        asked = await say(server, "Who am I?", appName=app)
        (request,) = requests_of(asked)
        assert await status(server, asked[0]["invocationId"]) == "waiting"
        after = await say(server, await consent(request), appName=app)
        assert {event["invocationId"] for event in after} == {asked[0]["invocationId"]}
        answers = ["You are Ada.", *(f"Level {level}: Ada." for level in range(depth - 1))]
        assert responses_of(after)[-1] == {"result": answers[-1]}  # what happens inside is not sent
        assert after[-1]["content"]["parts"] == [{"text": f"Level {depth - 1}: Ada."}]
        assert await status(server, asked[0]["invocationId"]) == "succeeded"
    assert desk.calls == [None, provider.seen[0]]


@pytest.mark.parametrize("depth", [1, 2])
async def test_a_login_inside_agents_that_are_tools_may_come_after_a_restart(
    provider: AuthorizationServer, tmp_path: Path, depth: int
) -> None:
    desk = Desk(login(provider), provider)
    root = asks_the_desk(desk.agent(), depth=depth)
    app = root.name
    async with serve(root, tmp_path) as server:
        await server.new_session(app)
        (request,) = requests_of(await say(server, "Who am I?", appName=app))
    again = Desk(login(provider), provider)
    async with serve(asks_the_desk(again.agent("You are Ada."), depth=depth, has_asked=True), tmp_path) as server:
        after = await say(server, await consent(request), appName=app)
        answers = ["You are Ada.", *(f"Level {level}: Ada." for level in range(depth - 1))]
        assert responses_of(after)[-1] == {"result": answers[-1]}  # what happens inside is not sent
        assert after[-1]["content"]["parts"] == [{"text": f"Level {depth - 1}: Ada."}]
    assert again.calls == [provider.seen[0]]


async def test_a_refusal_inside_an_agent_that_is_a_tool_is_reported_to_its_model(
    provider: AuthorizationServer, tmp_path: Path
) -> None:
    desk = Desk(login(provider), provider)
    root = asks_the_desk(desk.agent(call("who_am_i"), "I can't tell."), depth=1)
    async with serve(root, tmp_path) as server:
        await server.new_session("boss_0")
        (request,) = requests_of(await say(server, "Who am I?", appName="boss_0"))
        after = await say(server, await consent(request, deny=True), appName="boss_0")
    assert responses_of(after) == [{"result": "I can't tell."}]
    assert desk.calls == [None]
