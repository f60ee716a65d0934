"""Limits per caller, and the errors above them."""

from __future__ import annotations

import asyncio
import weakref
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest

from greenroom.errors import TooManyRequests
from greenroom.records.content import Blob, FunctionCall, Part
from greenroom.server.access.rate_limit import RequestRate
from greenroom.server.settings import LimitSettings
from greenroom.tools.tool import ToolContext
from tests.server.agents import Gate, echo, gated, scripted
from tests.server.conftest import Serve, Store
from tests.server.live_client import talking
from tests.server.security.keys import Keys, bearer
from tests.server.serving import Json, Serving, run_body, until

MESSAGE = {"newMessage": {"parts": [{"text": "hi"}]}}
PLACES = [(app, user, f"s-{n}") for app in ("gated", "other") for user in ("ann", "bob") for n in (1, 2)]


class _Caller(str):
    """Can be referenced weakly."""


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest) -> Store:
    return request.param


async def held(serve: Serve, gate: Gate, **limits: Any) -> Serving:
    """Two apps of which every run waits at the gate, and a few sessions of two users in each."""
    server = await serve(gated(gate), gated(gate, "other"), limits=LimitSettings(**limits))
    for place in PLACES:
        await server.new_session(*place)
    return server


async def start(server: Serving, app: str, user: str = "ann", session: str = "s-1", **more: Any) -> httpx.Response:
    return await server.client.post(f"/apps/{app}/users/{user}/sessions/{session}/runs", json={**MESSAGE, **more})


def check_refused(reply: httpx.Response, whose: str) -> None:
    assert (reply.status_code, reply.headers["retry-after"]) == (429, "1")
    assert reply.headers["content-type"] == "application/problem+json"
    assert (reply.json()["code"], reply.json()["type"]) == ("TooManyRuns", "urn:greenroom:error:too-many-runs")
    assert whose in reply.json()["detail"]


@pytest.mark.parametrize(
    ("limits", "whose", "refused", "let_in"),
    [
        ({"runs_per_user": 2}, "user", ("other", "ann", "s-1"), ("gated", "bob", "s-1")),
        ({"runs_per_app": 2}, "app", ("gated", "bob", "s-1"), ("other", "ann", "s-1")),
        ({"runs_per_server": 2}, "server", ("other", "bob", "s-1"), None),
    ],
    ids=["user", "app", "server"],
)
async def test_one_run_too_many_is_refused_before_anything_is_stored(
    serve: Serve,
    limits: dict[str, int],
    whose: str,
    refused: tuple[str, str, str],
    let_in: tuple[str, str, str] | None,
) -> None:
    gate = Gate()
    server = await held(serve, gate, **limits)
    runs = [(await start(server, "gated", "ann", session)).json()["id"] for session in ("s-1", "s-2")]
    app, user, session = refused
    body = run_body(app, userId=user, sessionId=session)
    for path in ("/run", "/run_sse"):
        check_refused(await server.client.post(path, json=body), whose)
    check_refused(await start(server, *refused), whose)
    path = f"/apps/{app}/users/{user}/sessions/{session}"
    assert (await server.client.get(path)).json()["events"] == []
    if let_in is not None:
        runs.append((await start(server, *let_in)).json()["id"])
    gate.open()
    for run_id in runs:
        await server.wait_for_status(run_id, "succeeded")
    assert (await server.client.post("/run", json=body)).status_code == 200


async def test_of_many_at_once_no_more_than_the_limit_begin(serve: Serve) -> None:
    gate = Gate()
    server = await serve(gated(gate), limits=LimitSettings(runs_per_user=5), auto_create_session=True)
    replies = await asyncio.gather(*(start(server, "gated", "ann", f"n-{n}") for n in range(40)))
    assert Counter(reply.status_code for reply in replies) == {202: 5, 429: 35}
    made = {session["id"] for session in (await server.client.get("/apps/gated/users/ann/sessions")).json()}
    assert made == {f"n-{n}" for n, reply in enumerate(replies) if reply.status_code == 202}
    gate.open()


async def test_what_is_refused_makes_no_session(serve: Serve) -> None:
    server = await serve(auto_create_session=True)
    unasked = {"functionResponse": {"id": "c", "name": "f", "response": {}}}
    bodies: list[Json] = [
        {"invocationId": "e-nope"},
        {"newMessage": {"parts": [unasked]}},
        {"newMessage": {"parts": [{"functionCall": {"name": "f"}}]}},
    ]
    for wrong in bodies:
        for path in ("/run", "/run_sse"):
            reply = await server.client.post(path, json=run_body("echo", **wrong))
            assert reply.status_code in (404, 409, 422), reply.text
    assert (await server.client.get("/apps/echo/users/ann/sessions")).json() == []


async def test_first_runs_of_one_session_make_it_once(serve: Serve) -> None:
    server = await serve(auto_create_session=True)
    replies = await asyncio.gather(*(server.run("echo", f"m-{n}") for n in range(8)))
    assert [reply.status_code for reply in replies] == [200] * 8
    session = (await server.client.get("/apps/echo/users/ann/sessions/s-1")).json()
    assert len(session["events"]) == 16


async def test_what_waits_in_line_has_a_place_and_gives_it_back_however_it_ends(serve: Serve) -> None:
    gate = Gate()
    server = await held(serve, gate, runs_per_user=2)
    first, second = [(await start(server, "gated")).json()["id"] for _ in range(2)]
    check_refused(await start(server, "other"), "user")
    assert (await server.client.post(f"/runs/{second}/cancel")).json()["status"] == "cancelled"
    third = (await start(server, "other")).json()["id"]
    check_refused(await start(server, "other"), "user")
    assert (await server.client.post(f"/runs/{first}/cancel")).json()["status"] == "cancelled"
    assert (await start(server, "gated")).status_code == 202
    gate.open()
    await server.wait_for_status(third, "succeeded")


async def test_a_failed_run_gives_its_place_back(serve: Serve) -> None:
    def fail(_: object) -> str:
        raise RuntimeError("no")

    server = await serve(scripted("fails", fail), limits=LimitSettings(runs_per_user=1))
    await server.new_session("fails")
    for _ in range(3):
        assert (await server.run("fails")).status_code == 500


async def test_who_interrupts_a_run_takes_its_place(serve: Serve) -> None:
    gate = Gate()
    server = await held(serve, gate, runs_per_user=1)
    first = (await start(server, "gated")).json()["id"]
    await until(lambda: gate.entered)
    check_refused(await start(server, "gated", session="s-2", multitaskStrategy="interrupt"), "user")
    second = await start(server, "gated", multitaskStrategy="interrupt")
    assert second.status_code == 202
    await server.wait_for_status(first, "cancelled")
    gate.open()
    await server.wait_for_status(second.json()["id"], "succeeded")


async def test_a_repeated_request_is_led_to_its_run(serve: Serve) -> None:
    gate = Gate()
    server = await held(serve, gate, runs_per_user=1)
    path = "/apps/gated/users/ann/sessions/s-1/runs"
    headers = {"idempotency-key": "k"}
    first, again = [await server.client.post(path, json=MESSAGE, headers=headers) for _ in range(2)]
    assert (again.status_code, again.json()["id"]) == (202, first.json()["id"])
    gate.open()


async def test_a_live_run_has_a_place_as_well(serve: Serve) -> None:
    gate = Gate()
    server = await held(serve, gate, runs_per_user=1)
    await start(server, "gated")
    async with talking(server.port, app_name="other") as client:
        assert await client.closed() == (1013, "No more than 1 runs of the same user may be active at once")
    gate.open()


async def test_requests_are_counted_for_each_address(serve: Serve) -> None:
    server = await serve(limits=LimitSettings(requests_per_second=0.01, requests_at_once=3))
    statuses = [(await server.client.get("/list-apps")).status_code for _ in range(3)]
    assert statuses == [200] * 3
    reply = await server.client.post("/run", json=run_body("echo"))
    assert (reply.status_code, reply.json()["code"]) == (429, "TooManyRequests")
    assert 90 <= int(reply.headers["retry-after"]) <= 100
    assert (await server.client.get("/health")).status_code == 200


async def test_requests_are_counted_for_each_key(serve: Serve, tmp_path: Path) -> None:
    make = Keys(tmp_path / "keys.db")
    ann = make("ann", "read")
    other = make("ann", "read", "run")
    bob = make("bob", "read")
    server = await serve(auth=make.auth, limits=LimitSettings(requests_per_second=0.01, requests_at_once=1))
    for key in (ann, other, bob):
        replies = [await server.client.get("/list-apps", headers=bearer(key)) for _ in range(2)]
        assert [reply.status_code for reply in replies] == [200, 429]
    assert (await server.client.get("/list-apps")).status_code == 401


def test_requests_are_refilled_at_the_rate() -> None:
    now = 100.0
    rate = RequestRate(per_second=2, at_once=3, clock=lambda: now)

    def let_in(caller: str) -> int:
        count = 0
        with pytest.raises(TooManyRequests) as caught:
            while count < 10:
                rate.take(caller)
                count += 1
        assert 0 < caught.value.retry_after_seconds <= 0.5
        return count

    assert let_in("ann") == 3
    now += 0.5
    assert let_in("ann") == 1
    assert let_in("bob") == 3
    now += 60
    assert let_in("ann") == 3
    kept: weakref.WeakSet[_Caller] = weakref.WeakSet()

    for n in range(5000):
        now += 1
        caller = _Caller(f"one-{n}")
        kept.add(caller)
        rate.take(caller)

    assert len(kept) <= 1024, "callers whose buckets are full are forgotten"


async def test_an_artifact_may_be_as_large_as_the_limit(serve: Serve) -> None:
    server = await serve(limits=LimitSettings(artifact_bytes=6))
    path = await server.new_session("echo") + "/artifacts"
    for part, status in (
        ({"inlineData": {"mimeType": "x/y", "data": "AAAAAAAA"}}, 200),
        ({"inlineData": {"mimeType": "x/y", "data": "AAAAAAAAAA=="}}, 413),
        ({"text": "äöü"}, 200),
        ({"text": "äöüx"}, 413),
    ):
        reply = await server.client.post(path, json={"filename": "f", "artifact": part})
        assert reply.status_code == status, part
        if status == 413:
            assert (reply.json()["code"], reply.json()["detail"]) == (
                "TooLarge",
                "The artifact is larger than 6 bytes",
            )
    assert (await server.client.put(f"{path}/f", content=b"1234567")).status_code == 413
    assert (await server.client.put(f"{path}/f", content=b"123456")).status_code == 200
    assert (await server.client.get(f"{path}/f/versions")).json() == [0, 1, 2]


async def test_a_tool_can_not_save_more_than_the_limit_either(serve: Serve) -> None:
    said: list[str] = []

    async def keep(size: int, tool_context: ToolContext) -> str:
        """Keep."""
        try:
            await tool_context.save_artifact("f", Part(inline_data=Blob(data=b"x" * size, mime_type="x/y")))
        except Exception as error:
            said.append(f"{type(error).__name__}: {error}")
        return "done"

    calls = [FunctionCall(name="keep", args={"size": 6}), FunctionCall(name="keep", args={"size": 7}), "through"]
    server = await serve(scripted("keeper", calls, tools=[keep]), limits=LimitSettings(artifact_bytes=6))
    path = await server.new_session("keeper")
    assert (await server.run("keeper")).status_code == 200
    assert said == ["TooLarge: The artifact is larger than 6 bytes"]
    assert (await server.client.get(f"{path}/artifacts/f/versions")).json() == [0]


async def test_a_full_session_takes_no_further_run(serve: Serve) -> None:
    server = await serve(limits=LimitSettings(events_per_session=3))
    path = await server.new_session("echo")
    assert (await server.run("echo")).status_code == 200
    assert (await server.run("echo")).status_code == 200  # what has begun goes on beyond the limit
    for reply in (
        await server.run("echo"),
        await server.client.post("/run_sse", json=run_body("echo")),
        await server.client.post(f"{path}/runs", json=MESSAGE),
        await server.client.patch(path, json={"stateDelta": {"a": 1}}),
    ):
        assert (reply.status_code, reply.json()["code"]) == (409, "SessionFull")
    assert len((await server.client.get(path)).json()["events"]) == 4
    brought = [{"author": "user", "content": {"parts": [{"text": str(n)}]}} for n in range(4)]
    reply = await server.client.post("/apps/echo/users/ann/sessions", json={"events": brought})
    assert (reply.status_code, reply.json()["errors"][0]["loc"]) == (422, ["body", "events"])
    await server.new_session("echo", session="s-2")
    assert (await server.run("echo", sessionId="s-2")).status_code == 200


async def test_by_default_nothing_is_limited(serve: Serve) -> None:
    server = await serve(echo())
    await server.new_session("echo")
    replies = await asyncio.gather(*(server.run("echo") for _ in range(50)))
    assert {reply.status_code for reply in replies} == {200}


async def test_results_of_evaluations_are_bounded(serve: Serve) -> None:
    server = await serve(echo(), limits=LimitSettings(eval_results=2, eval_result_bytes=100_000))
    where = "/dev/apps/echo"
    for set_id, text in (("small", "x"), ("large", "x" * 100_000)):
        turn = {"userContent": {"parts": [{"text": text}]}, "finalResponse": {"parts": [{"text": "x"}]}}
        eval_set = {"eval_set_id": set_id, "eval_cases": [{"evalId": "c", "conversation": [turn]}]}
        assert (await server.client.post(f"{where}/eval-sets", json={"evalSet": eval_set})).status_code == 200

    results = [(await server.client.get(f"{where}/eval_results")).json()]
    for _ in range(3):
        assert (await server.client.post(f"{where}/eval-sets/small/run", json={})).status_code == 200
        results.append((await server.client.get(f"{where}/eval_results")).json())
    assert [len(names) for names in results] == [0, 1, 2, 2]
    assert results[-1][0] == results[-2][1]

    streamed = {"accept": "text/event-stream"}
    reply = await server.client.post(f"{where}/eval-sets/large/run", json={}, headers=streamed)
    assert reply.text.endswith('event: end\ndata: {"evalResultId":null}\n\n')
    assert (await server.client.get(f"{where}/eval_results")).json() == results[-1]
