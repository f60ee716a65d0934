"""Answers with feedback become cases of evaluation sets, which have versions and run without tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from greenroom import App
from greenroom.records.content import FunctionCall
from greenroom.records.model_exchange import LlmRequest
from greenroom.testing.scripted_model import Said
from tests.server.agents import echo, scripted
from tests.server.conftest import Serve
from tests.server.security.keys import Keys, bearer
from tests.server.serving import Json, Serving

SESSION = "/apps/desk/users/ann/sessions/s-1"
SETS = "/dev/apps/desk/eval-sets"
METRICS = {
    "evalMetrics": [{"metricName": "tool_call_count_v1"}, {"metricName": "response_match_score", "threshold": 1}]
}


class Desk:
    """An agent that calls its tool for each message but "hello", and what it was asked."""

    def __init__(self) -> None:
        self.calls = 0
        self.requests: list[LlmRequest] = []

    def find(self, city: str) -> str:
        """Find the weather."""
        self.calls += 1
        return f"rain in {city}"

    def answer(self, request: LlmRequest) -> Said:
        self.requests.append(request)
        last = (request.contents[-1].parts or [])[-1]
        if last.function_response is not None:
            return f"It says: {last.function_response.response}"
        return "Hi!" if last.text == "hello" else FunctionCall(name="find", args={"city": last.text or ""})

    async def served(self, serve: Serve) -> Serving:
        agent = scripted("desk", self.answer, tools=[self.find])
        return await serve(App(name="desk", root_agent=agent, version="v1"))


async def ask(server: Serving, text: str) -> str:
    """Returns the path of the answer."""
    reply = await server.run("desk", text)
    assert reply.status_code == 200, reply.text
    return f"{SESSION}/events/{reply.json()[-1]['id']}"


async def post(server: Serving, path: str, **body: Any) -> Json:
    reply = await server.client.post(path, json=body)
    assert reply.status_code == 200, reply.text
    return reply.json()


async def test_an_answer_becomes_a_case_that_runs_without_the_tools(serve: Serve) -> None:
    desk = Desk()
    server = await desk.served(serve)
    assert (await server.client.post(SESSION, json={"state": {"unit": "C"}})).status_code == 200
    await ask(server, "hello")
    bad = await ask(server, "Oslo")
    await ask(server, "Rome")
    await post(server, f"{bad}/feedback", name="helpful", score=False, comment="No answer to my question")

    made = await post(server, f"{bad}/case", evalSetId="complaints", expectedResponse="Rain.")
    assert (made["evalSetVersion"], len(made["added"]), made["skipped"]) == (1, 1, [])
    [case] = (await server.client.get(f"{SETS}/complaints")).json()["eval_cases"]
    assert [turn["userContent"]["parts"][0]["text"] for turn in case["conversation"]] == ["hello", "Oslo"]
    assert case["conversation"][-1]["finalResponse"]["parts"][0]["text"] == "Rain."
    assert case["sessionInput"]["state"] == {"unit": "C"}
    assert "No answer to my question" in case["rubrics"][0]["rubricContent"]["textProperty"]
    assert bad.endswith(case["source"]["eventId"])
    assert case["source"]["appVersion"] == "v1"

    again = await post(server, f"{bad}/case", evalSetId="complaints")
    assert (again["evalSetVersion"], again["added"], len(again["skipped"])) == (1, [], 1)

    calls = desk.calls
    desk.requests.clear()
    [result] = (await post(server, f"{SETS}/complaints/run", **METRICS))["runEvalResults"]
    assert result.get("error") is None
    assert result["isOffline"] is True
    assert desk.calls == calls
    texts = [part.text for content in desk.requests[0].contents for part in content.parts or ()]
    assert texts == ["hello", "Hi!", "Oslo"]  # the turn before is given, and not run again
    [turn] = result["evalMetricResultPerInvocation"]
    assert "rain in Oslo" in turn["actualInvocation"]["finalResponse"]["parts"][0]["text"]
    assert (await server.client.get("/dev/apps/desk/eval-results")).status_code == 200


@pytest.mark.parametrize(
    ("event", "status"), [("user", "no answer to a message"), ("nope", 404)], ids=["a user's", "a missing one"]
)
async def test_other_events_become_no_cases(serve: Serve, event: str, status: int | str) -> None:
    server = await Desk().served(serve)
    assert (await server.client.post(SESSION, json={})).status_code == 200
    await ask(server, "hello")
    events = (await server.client.get(f"{SESSION}/events")).json()["events"]
    event_id = events[0]["id"] if event == "user" else event
    reply = await server.client.post(f"{SESSION}/events/{event_id}/case", json={"evalSetId": "complaints"})
    if isinstance(status, int):
        assert reply.status_code == status
    else:
        assert status in reply.json()["skipped"][0]["reason"]
    for body in ({}, {"evalSetId": "../x"}):
        refused = await server.client.post(f"{SESSION}/events/{event_id}/case", json=body)
        assert refused.status_code == 422, refused.text


async def test_a_set_grows_by_filters_and_each_version_can_be_run(serve: Serve) -> None:
    server = await Desk().served(serve)
    assert (await server.client.post(SESSION, json={})).status_code == 200
    scores = {text: await ask(server, text) for text in ("hello", "Oslo", "Rome")}
    for score, path in enumerate(scores.values(), 1):
        await post(server, f"{path}/feedback", name="stars", score=score, label="odd" if score % 2 else "even")

    added = await post(server, f"{SETS}/stars/add-feedback", name="stars", maxScore=1)
    assert (added["evalSetVersion"], len(added["added"])) == (1, 1)
    added = await post(server, f"{SETS}/stars/add-feedback", label="odd")
    assert (added["evalSetVersion"], len(added["added"]), len(added["skipped"])) == (2, 1, 1)
    first = await post(server, f"{SETS}/stars/add-feedback", limit=1)
    assert first["nextPageToken"]
    rest = await post(server, f"{SETS}/stars/add-feedback", pageToken=first["nextPageToken"])
    assert [len(first["added"]), len(rest["added"])] == [0, 1]

    versions = (await server.client.get(f"{SETS}/stars/versions")).json()["versions"]
    assert [(one["version"], one["size"], len(one["added"])) for one in versions] == [(1, 1, 1), (2, 2, 1), (3, 3, 1)]
    second = (await server.client.get(f"{SETS}/stars?version=2")).json()
    assert (second["version"], len(second["eval_cases"])) == (2, 2)
    assert (await server.client.get(f"{SETS}/stars?version=9")).status_code == 404

    old = await post(server, f"{SETS}/stars/run", evalSetVersion=2, **METRICS)
    assert len(old["runEvalResults"]) == 2
    [result_id] = (await server.client.get("/dev/apps/desk/eval_results")).json()
    assert (await server.client.get(f"/dev/apps/desk/eval_results/{result_id}")).json()["evalSetVersion"] == 2
    refused = await server.client.post(f"{SETS}/stars/run", json={"evalSetVersion": 9, **METRICS})
    assert refused.status_code == 404


async def test_cases_need_the_scope_to_manage_and_the_session(serve: Serve, tmp_path: Path) -> None:
    keys = Keys(tmp_path / "keys.json")
    server = await serve(echo(), auth=keys.auth)
    ann = bearer(keys("ann", "run", "read"))
    created = await server.client.post("/apps/echo/users/ann/sessions/s-1", json={}, headers=ann)
    assert created.status_code == 200
    run = await server.run("echo", headers=ann)
    event = f"/apps/echo/users/ann/sessions/s-1/events/{run.json()[-1]['id']}"
    given = await server.client.post(f"{event}/feedback", json={"name": "helpful", "score": 0}, headers=ann)
    assert given.status_code == 200
    by_filter = "/dev/apps/echo/eval-sets/complaints/add-feedback"

    bob = bearer(keys("bob", "run", "read", "manage"))
    for headers in (ann, bob):
        refused = await server.client.post(f"{event}/case", json={"evalSetId": "complaints"}, headers=headers)
        assert refused.status_code == 403
    assert (await server.client.post(by_filter, json={"userId": "ann"}, headers=bob)).status_code == 403
    assert (await server.client.post(by_filter, json={}, headers=bob)).json()["added"] == []

    manager = bearer(keys("grace", "run", "read", "manage", "app:echo"))
    assert len((await server.client.post(by_filter, json={}, headers=manager)).json()["added"]) == 1
