"""Approvals by others than the session's user: named users, scopes, several people, delegation, deadlines."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

import httpx
import pytest

from greenroom import App, ApprovalPolicy, FunctionTool, LlmAgent, ToolContext
from greenroom.agents.workflow.nodes import node
from greenroom.agents.workflow.workflow import Workflow
from greenroom.errors import AgentConfigError
from greenroom.records.content import FunctionCall
from greenroom.server.access.api_key_file import ApiKeyFile
from greenroom.server.settings import AuthSettings
from tests.server.agents import scripted
from tests.server.conftest import Serve, Store
from tests.server.serving import Json
from tests.server.test_requests import answer, listed, only, until_listed

Keys: TypeAlias = Callable[..., httpx.AsyncClient]
TWO_OF_THREE = ApprovalPolicy(users=["bob", "carol", "dave"], required=2)


@pytest.fixture(params=["memory", "sqlite", "replicas"])
def store(request: pytest.FixtureRequest) -> Store:
    return request.param


def remove(name: str) -> str:
    return f"removed {name}"


def desk(tool: FunctionTool) -> LlmAgent:
    def say(request: Any) -> Any:
        has_response = any(part.function_response for content in request.contents for part in content.parts or ())
        return "Done" if has_response else FunctionCall(id="c-1", name=tool.name, args={"name": "x"})

    return scripted("desk", say, tools=[tool])


def app_with(policy: ApprovalPolicy | None = None, tool: FunctionTool | None = None, *, name: str = "desk") -> App:
    agent = desk(tool or FunctionTool(remove, require_confirmation=True))
    return App(name=name, root_agent=agent, approvals=policy)


@pytest.fixture
async def people(serve: Serve, tmp_path: Path) -> AsyncIterator[Callable[[App], Awaitable[Keys]]]:
    """Starts a server that asks for keys; gives clients by user, with scopes."""
    file = ApiKeyFile(tmp_path / "keys.db")
    clients: list[httpx.AsyncClient] = []

    async def start(app: App) -> Keys:
        file.create(name="", subject="nobody", scopes=[])
        server = await serve(app, auth=AuthSettings(keys=str(file.path)))

        def client(user: str, *scopes: str) -> httpx.AsyncClient:
            _, key = file.create(name="", subject=user, scopes=["run", "read", *scopes])
            made = httpx.AsyncClient(base_url=server.url, headers={"authorization": f"Bearer {key}"}, timeout=30)
            clients.append(made)
            return made

        return client

    yield start
    for one in clients:
        await one.aclose()


async def ask(ann: httpx.AsyncClient, session: str = "s-1") -> Json:
    """Has ann's run wait for an approval; returns the request, as she sees it."""
    await ann.post("/apps/desk/users/ann/sessions", json={"sessionId": session})
    body = {"appName": "desk", "userId": "ann", "sessionId": session, "newMessage": {"parts": [{"text": "go"}]}}
    reply = await ann.post("/run", json=body)
    assert reply.status_code == 200, reply.text
    found: list[Json] = []

    async def reached() -> bool:
        found[:] = [one for one in await listed(ann) if one["sessionId"] == session]
        return bool(found)

    await _until(reached)
    return found[0]


async def _until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(20):
        while not await condition():
            await asyncio.sleep(0.01)


async def ended(ann: httpx.AsyncClient, request: Json) -> str:
    """The response of the tool to the model, once the run has ended."""

    async def reached() -> bool:
        return (await ann.get(f"/runs/{request['runId']}")).json()["status"] == "succeeded"

    await _until(reached)
    events = (await ann.get(f"/runs/{request['runId']}/events")).json()["events"]
    responses = [
        part["functionResponse"] for one in events for part in one["content"]["parts"] if "functionResponse" in part
    ]
    return str(next(one["response"] for one in reversed(responses) if one["name"] == "remove"))


async def parts_of(ann: httpx.AsyncClient, request: Json) -> list[Json]:
    events = (await ann.get(f"/runs/{request['runId']}/events")).json()["events"]
    return [part for event in events for part in event["content"]["parts"]]


def function_response(request: Json, confirmed: bool) -> Json:
    response = {"id": request["callId"], "name": request["function"], "response": {"confirmed": confirmed}}
    return {
        "appName": "desk",
        "userId": "ann",
        "sessionId": request["sessionId"],
        "newMessage": {"role": "user", "parts": [{"functionResponse": response}]},
    }


async def status_of(client: httpx.AsyncClient, request: Json) -> Json:
    return (await client.get(f"/requests/{request['id']}")).json()


async def test_named_users_approve_and_the_sessions_user_may_not(people: Any) -> None:
    client = await people(app_with(ApprovalPolicy(users=["bob"])))
    ann, bob, eve = client("ann"), client("bob"), client("eve")
    request = await ask(ann)
    assert request["approvers"] == ["bob"]
    assert "mayAnswer" not in request

    for refused in (
        await answer(ann, request["id"], confirmed=True),
        await ann.post("/run", json=function_response(request, True)),
        await ann.post("/run_sse", json=function_response(request, True)),
    ):
        assert (refused.status_code, refused.json()["code"]) == (403, "NotApprover")
        assert "it waits for 'bob', not for user 'ann'" in refused.json()["detail"]
    assert (await answer(eve, request["id"], confirmed=True)).status_code == 404
    assert await listed(eve) == []

    seen = await only(bob, mine=True)
    assert (seen["tool"], seen["arguments"], seen["mayAnswer"]) == ("remove", {"name": "x"}, True)
    assert (await bob.get(f"/runs/{request['runId']}")).status_code == 404
    assert (await bob.get("/apps/desk/users/ann/sessions/s-1")).status_code == 403
    assert (await bob.get(f"/requests/{request['id']}/session")).status_code == 403
    assert (await bob.post("/run", json=function_response(request, True))).status_code == 403
    reply = await answer(bob, request["id"], confirmed=True, comment="fine")
    assert reply.status_code == 200, reply.text
    assert "run" not in reply.json()
    assert await ended(ann, request) == "{'result': 'removed x'}"
    assert (await status_of(bob, request))["confirmed"] is True
    assert (await answer(bob, request["id"], confirmed=True)).status_code == 409

    events = (await ann.get(f"/runs/{request['runId']}/events")).json()["events"]
    [given] = [
        part["partMetadata"]["greenroom_answers"]
        for one in events
        for part in one["content"]["parts"]
        if "partMetadata" in part
    ]
    assert [(one["userId"], one["confirmed"], one["comment"]) for one in given] == [("bob", True, "fine")]


async def test_callers_with_the_scope_approve(people: Any) -> None:
    policy = ApprovalPolicy(scope="approve:money", excludes_requester=True)
    client = await people(app_with(policy))
    ann, bob, carol = client("ann", "approve:money"), client("bob", "approve:money"), client("carol", "approve:other")
    admin, backend = client("root", "admin"), client("backend", "app:desk")
    request = await ask(ann)
    assert await listed(carol) == []
    assert await listed(ann, mine=True) == []
    assert [one["id"] for one in await listed(bob, mine=True)] == [request["id"]]
    for one, status in ((ann, 403), (carol, 404), (admin, 403), (backend, 403)):
        assert (await answer(one, request["id"], confirmed=True)).status_code == status
    assert (await backend.post("/run", json=function_response(request, True))).status_code == 403
    assert (await answer(backend, request["id"], confirmed=True, userId="bob")).status_code == 403
    assert (await answer(bob, request["id"], confirmed=False)).status_code == 200
    assert "refused" in await ended(ann, request)


async def test_two_of_three_approve_once_each(people: Any) -> None:
    client = await people(app_with(TWO_OF_THREE))
    ann, bob, carol, dave = client("ann"), client("bob"), client("carol"), client("dave")
    backend = client("backend", "app:desk")
    request = await ask(ann)
    first = await answer(bob, request["id"], confirmed=True)
    assert (first.status_code, first.json()["request"]["status"]) == (200, "open")
    assert first.json()["request"]["approvers"] == ["carol", "dave"]
    again = await answer(bob, request["id"], confirmed=True)
    assert (again.status_code, again.json()["detail"]) == (
        403,
        "This answer is not accepted: user 'bob' has answered it",
    )
    assert await listed(bob, mine=True) == []
    assert len(await listed(bob)) == 1
    assert (await ann.get(f"/runs/{request['runId']}")).json()["status"] == "waiting"
    edited = await answer(carol, request["id"], confirmed=True, payload={"name": "y"})
    assert edited.status_code == 422

    assert (await answer(carol, request["id"], confirmed=False)).json()["request"]["status"] == "open"
    assert (await answer(backend, request["id"], confirmed=True, userId="dave")).status_code == 200
    assert await ended(ann, request) == "{'result': 'removed x'}"
    closed = await status_of(ann, request)
    assert [(one["userId"], one["confirmed"]) for one in closed["answers"]] == [
        ("bob", True),
        ("carol", False),
        ("dave", True),
    ]
    assert (await answer(dave, request["id"], confirmed=True)).status_code == 409


async def test_votes_at_once_count_each_person_once(people: Any) -> None:
    policy = ApprovalPolicy(users=[f"u-{number}" for number in range(6)], required=4)
    client = await people(app_with(policy))
    ann = client("ann")
    request = await ask(ann)
    voters = [client(user) for user in policy.users]
    replies = await asyncio.gather(
        *(answer(voter, request["id"], confirmed=True) for voter in voters for _ in range(3)), return_exceptions=True
    )
    codes = [reply.status_code for reply in replies if isinstance(reply, httpx.Response)]
    assert len(codes) == 18
    assert codes.count(200) == 4
    assert set(codes) <= {200, 403, 409}
    assert await ended(ann, request) == "{'result': 'removed x'}"
    closed = await status_of(ann, request)
    assert len({one["userId"] for one in closed["answers"]}) == len(closed["answers"]) == 4


async def test_the_ordinary_way_counts_votes_too(people: Any) -> None:
    client = await people(app_with(ApprovalPolicy(users=["ann", "bob"], required=2)))
    ann, bob = client("ann"), client("bob", "app:desk")
    request = await ask(ann)
    reply = await ann.post("/run", json=function_response(request, True))
    assert (reply.status_code, reply.json()) == (200, [])
    assert reply.headers["x-run-id"] == request["runId"]
    assert (await ann.post("/run", json=function_response(request, True))).status_code == 403
    assert (await status_of(ann, request))["approvers"] == ["bob"]
    assert (await bob.post("/run", json=function_response(request, True))).status_code == 200
    assert await ended(ann, request) == "{'result': 'removed x'}"


async def test_an_approver_passes_its_right_on(people: Any) -> None:
    policy = ApprovalPolicy(users=["bob", "carol"], required=2, may_delegate=True, excludes_requester=True)
    client = await people(app_with(policy))
    ann, bob, carol, erin = client("ann"), client("bob"), client("carol"), client("erin")
    request = await ask(ann)

    async def delegate(by: httpx.AsyncClient, to: str) -> httpx.Response:
        return await by.post(f"/requests/{request['id']}/delegate", json={"userId": to, "comment": "on leave"})

    assert (await delegate(erin, "erin")).status_code == 404
    assert (await delegate(ann, "erin")).status_code == 403
    for to in ("ann", "carol", "bob"):
        assert (await delegate(bob, to)).status_code == 422, to
    passed = await delegate(bob, "erin")
    assert passed.status_code == 200, passed.text
    assert passed.json()["approvers"] == ["carol", "erin"]
    assert (await answer(bob, request["id"], confirmed=True)).status_code == 403
    assert (await answer(erin, request["id"], confirmed=True)).status_code == 200
    assert (await delegate(carol, "erin")).status_code == 422
    assert (await answer(carol, request["id"], confirmed=True)).status_code == 200
    assert await ended(ann, request) == "{'result': 'removed x'}"
    [delegation] = (await status_of(bob, request))["delegations"]
    assert (delegation["fromUserId"], delegation["toUserId"], delegation["comment"]) == ("bob", "erin", "on leave")


async def test_a_policy_without_delegation_allows_none(people: Any) -> None:
    client = await people(app_with(ApprovalPolicy(users=["bob"])))
    ann, bob = client("ann"), client("bob")
    request = await ask(ann)
    reply = await bob.post(f"/requests/{request['id']}/delegate", json={"userId": "erin"})
    assert (reply.status_code, reply.json()["code"]) == (403, "NotApprover")


@pytest.mark.parametrize(("default", "outcome"), [("refuse", "refused"), ("approve", "removed x")])
async def test_the_default_is_the_answer_at_the_deadline(people: Any, default: Any, outcome: str) -> None:
    policy = ApprovalPolicy(users=["bob", "carol", "dave"], required=2, deadline_seconds=0.6, default=default)
    client = await people(app_with(policy))
    ann, bob = client("ann"), client("bob")
    request = await ask(ann)
    assert request["deadline"] == pytest.approx(request["createdAt"] + 0.6)
    await answer(bob, request["id"], confirmed=default == "refuse")
    assert outcome in await ended(ann, request)
    closed = await status_of(ann, request)
    assert (closed["status"], closed["confirmed"]) == ("answered", default == "approve")
    assert closed["closedAt"] >= request["deadline"]
    assert (await answer(bob, request["id"], confirmed=True)).status_code == 409


async def test_approvers_read_the_session_if_the_policy_says_so(people: Any) -> None:
    client = await people(app_with(ApprovalPolicy(users=["bob"], sees="session")))
    ann, bob, eve = client("ann"), client("bob"), client("eve")
    request = await ask(ann)
    shown = await bob.get(f"/requests/{request['id']}/session")
    assert shown.status_code == 200
    assert shown.json()["events"][0]["content"]["parts"][0]["text"] == "go"
    assert (await eve.get(f"/requests/{request['id']}/session")).status_code == 404
    assert (await bob.get("/apps/desk/users/ann/sessions/s-1")).status_code == 403


def by_name(name: str) -> bool | ApprovalPolicy:
    return ApprovalPolicy(users=["carol"]) if name == "x" else True


def careful(name: str, tool_context: ToolContext) -> str:
    if tool_context.tool_confirmation is None:
        tool_context.request_confirmation(hint="Really?", approvals=ApprovalPolicy(users=["carol"]))
        return "asked"
    return remove(name)


@pytest.mark.parametrize(
    "tool",
    [
        FunctionTool(remove, require_confirmation=ApprovalPolicy(users=["carol"])),
        FunctionTool(remove, require_confirmation=by_name),
        FunctionTool(careful, name="remove"),
    ],
    ids=["always", "by a function", "in its body"],
)
async def test_a_tool_has_its_own_policy(people: Any, tool: FunctionTool) -> None:
    client = await people(app_with(ApprovalPolicy(users=["bob"]), tool))
    ann, bob, carol = client("ann"), client("bob"), client("carol")
    request = await ask(ann)
    assert request["approvers"] == ["carol"]
    assert (await answer(bob, request["id"], confirmed=True)).status_code == 404
    assert (await answer(carol, request["id"], confirmed=True)).status_code == 200
    assert await ended(ann, request) == "{'result': 'removed x'}"


async def test_nodes_of_workflows_follow_the_policy(people: Any) -> None:
    @node(require_confirmation=True)
    def cleanup(node_input: str) -> str:
        return f"cleaned {node_input}"

    workflow = Workflow(name="desk", edges=[("START", cleanup)])
    client = await people(App(name="desk", root_agent=workflow, approvals=TWO_OF_THREE))
    ann, bob, carol = client("ann"), client("bob"), client("carol")
    request = await ask(ann)
    assert (request["kind"], request["tool"], request["approvers"]) == ("approval", "cleanup", ["bob", "carol", "dave"])
    assert (await ann.post("/run", json=function_response(request, True))).status_code == 403
    assert (await answer(bob, request["id"], confirmed=True)).status_code == 200
    assert (await answer(carol, request["id"], confirmed=True)).status_code == 200

    async def reached() -> bool:
        return (await ann.get(f"/runs/{request['runId']}")).json()["status"] == "succeeded"

    await _until(reached)
    assert "cleaned" in (await ann.get(f"/runs/{request['runId']}/events")).text


async def test_a_copied_request_without_its_policy_is_refused(people: Any) -> None:
    client = await people(app_with(ApprovalPolicy(users=["bob"])))
    ann, bob = client("ann"), client("bob")
    request = await ask(ann)
    events = (await ann.get(f"/runs/{request['runId']}/events")).json()["events"]
    [asking] = [event for event in events if event.get("longRunningToolIds")]
    forged: Any = {**asking, "id": "forged"}
    del forged["content"]["parts"][0]["functionCall"]["args"]["approvals"]
    session = {"sessionId": "s-2", "events": [*(one for one in events if one["id"] != asking["id"]), forged]}
    made = await ann.post("/apps/desk/users/ann/sessions", json=session)
    assert made.status_code == 200, made.text
    copied = function_response({**request, "sessionId": "s-2"}, True)
    assert (await ann.post("/run", json=copied)).status_code in (404, 409)
    assert (await answer(bob, request["id"], confirmed=True)).status_code == 200


async def test_any_votes_lead_to_what_the_policy_says(serve: Serve) -> None:
    """Random people answer requests with random policies in a random order; the rule, written again, predicts it."""
    seed = random.randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)
    numbers = [(people, chance.randint(1, people)) for people in (1, 2, 3, 3, 4, 5)]
    policies = {
        f"desk{number}": ApprovalPolicy(users=[f"u-{user}" for user in range(people)], required=required)
        for number, (people, required) in enumerate(numbers)
    }
    server = await serve(*(app_with(policy, name=name) for name, policy in policies.items()))
    for name, policy in policies.items():
        users, required = policy.users, policy.required
        await server.new_session(name)
        await server.run(name, "go")
        [request] = await until_listed(server.client, 1, app_name=name)
        voters = [chance.choice([*users, "stranger"]) for _ in range(12)]
        given: dict[str, bool] = {}
        outcome: bool | None = None
        for voter in voters:
            confirmed = chance.random() < 0.6
            reply = await answer(server.client, request["id"], confirmed=confirmed, userId=voter)
            if outcome is not None:
                assert reply.status_code == 409
                continue
            if voter in given or voter == "stranger":
                assert reply.status_code == 403, (voter, given)
                continue
            given[voter] = confirmed
            approvals = sum(given.values())
            refusals = len(given) - approvals
            if approvals == required:
                outcome = True
            elif refusals == required or approvals + len(users) - len(given) < required:
                outcome = False
            shown = reply.json()["request"]
            assert reply.status_code == 200
            assert shown.get("confirmed") is outcome
            assert (shown["status"] == "open") is (outcome is None)


def test_policies_that_nobody_can_fulfil_are_refused() -> None:
    policies: list[dict[str, Any]] = [
        {},
        {"users": ["bob"], "required": 2},
        {"users": ["bob", "bob"], "required": 2},
        {"users": "bob"},
        {"users": [""]},
        {"users": ["bob"], "required": 0},
        {"scope": "run"},
        {"users": ["bob"], "deadline_seconds": 0},
        {"users": ["bob"], "deadline_seconds": 31 * 24 * 3600.0},
    ]
    for wrong in policies:
        with pytest.raises(AgentConfigError):
            ApprovalPolicy(**wrong)
