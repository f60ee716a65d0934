"""Workflows over HTTP: what clients see, and who may answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from greenroom.agents.workflow.workflow import Workflow
from greenroom.records.human_requests import RequestInput
from tests.server.conftest import Serve, Store


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest) -> Store:
    return request.param


def order(node_input: str) -> str:
    return node_input.upper()


def ask(node_input: str) -> RequestInput:
    return RequestInput(interrupt_id="q-1", message=f"Take {node_input}?", response_schema=int)


def book(node_input: int) -> dict[str, int]:
    return {"guests": node_input}


def desk() -> Workflow:
    return Workflow(name="desk", edges=[("START", order, ask, book)])


def _answer(value: Any) -> dict[str, Any]:
    part = {"functionResponse": {"id": "q-1", "name": "adk_request_input", "response": {"result": value}}}
    return {"appName": "desk", "userId": "u", "sessionId": "s", "newMessage": {"role": "user", "parts": [part]}}


_GO = {
    "appName": "desk",
    "userId": "u",
    "sessionId": "s",
    "newMessage": {"role": "user", "parts": [{"text": "table"}]},
}


async def test_clients_of_adk_see_no_checkpoints(serve: Serve) -> None:
    """R1, W1: neither from `/run` nor in the session."""
    server = await serve(desk())
    await server.client.post("/apps/desk/users/u/sessions/s", json={})
    events = (await server.client.post("/run", json=_GO)).json()
    assert [event["nodeInfo"]["path"] for event in events] == ["desk@1/order@1", "desk@1/ask@1"]
    session = (await server.client.get("/apps/desk/users/u/sessions/s")).json()
    assert len(session["events"]) == 3


async def test_of_two_answers_one_continues_and_a_wrong_one_is_refused(serve: Serve, store: Store) -> None:
    """1.17.1, 1.16.10: the wrong answer is 422, and nothing of it is stored; the run has one continuation."""
    first = await serve(desk())
    await first.client.post("/apps/desk/users/u/sessions/s", json={})
    await first.client.post("/run", json=_GO)
    server = first  # the same stores
    before = (await server.client.get("/apps/desk/users/u/sessions/s")).json()["events"]
    wrong = await server.client.post("/run", json=_answer("many"))
    assert wrong.status_code == 422
    assert "expected integer" in wrong.text
    assert (await server.client.get("/apps/desk/users/u/sessions/s")).json()["events"] == before
    replies = await asyncio.gather(*(server.client.post("/run", json=_answer(number)) for number in (3, 4)))
    assert sorted(reply.status_code for reply in replies) == [200, 409]
    done = next(reply.json() for reply in replies if reply.status_code == 200)
    assert [event["output"] for event in done] in ([{"guests": 3}], [{"guests": 4}])
    events = (await server.client.get("/apps/desk/users/u/sessions/s")).json()["events"]
    assert len(events) == len(before) + 2


async def test_workflows_are_drawn_with_routes_and_the_path_of_an_event(serve: Serve, store: Store) -> None:
    """G1, 1.16.9."""

    def choose() -> str:
        return "x"

    inner = Workflow(name="inner", edges=[("START", book)])
    root = Workflow(name="desk", edges=[("START", choose, {"small": order, "large": inner})])
    server = await serve(root)
    drawn = (await server.client.get("/dev/apps/desk/build_graph_image")).json()
    assert set(drawn) == {"", "inner"}
    dot = drawn[""]["dotSrc"]
    assert '"desk" -> "choose"' in dot
    assert '"choose" -> "inner"' in dot
    assert 'label="large"' in dot
    graph = (await server.client.get("/dev/apps/desk/build_graph")).json()["root_agent"]["graph"]
    assert {"name": "inner", "type": "workflow"} in graph["nodes"]
    assert {"from_node": "choose", "to_node": "order", "route": "small"} in graph["edges"]


async def test_the_nodes_on_the_path_of_an_event_are_lit(serve: Serve) -> None:
    """G1."""
    server = await serve(Workflow(name="desk", edges=[("START", Workflow(name="inner", edges=[("START", order)]))]))
    await server.client.post("/apps/desk/users/u/sessions/s", json={})
    (event,) = (await server.client.post("/run", json=_GO)).json()
    reply = await server.client.get(f"/dev/apps/desk/users/u/sessions/s/events/{event['id']}/graph")
    lit = [line for line in reply.json()["dotSrc"].splitlines() if "#0F5223" in line]
    assert [line.split('"')[1] for line in lit] == ["desk", "inner", "order"]
