"""Schedules over HTTP: one server in memory and on SQLite, and four on PostgreSQL."""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from greenroom.records.content import FunctionCall
from greenroom.records.model_exchange import LlmRequest
from greenroom.server.settings import LimitSettings
from greenroom.tools.tool import ToolContext
from tests.server.agents import echo, scripted
from tests.server.conftest import Serve, Store
from tests.server.security.keys import Keys, bearer
from tests.server.serving import Json, Serving, until

AT = "/apps/echo/schedules"


@pytest.fixture(params=["memory", "sqlite", "replicas"])
def store(request: pytest.FixtureRequest) -> Store:
    return request.param


def schedule_of(text: str = "hi", **fields: Any) -> Json:
    return {"userId": "ann", "request": {"newMessage": {"parts": [{"text": text}]}}, **fields}


async def create(server: Serving, text: str = "hi", **fields: Any) -> Json:
    reply = await server.client.post(AT, json=schedule_of(text, **fields))
    assert reply.status_code == 201, reply.text
    return reply.json()


async def history(server: Serving, schedule_id: str) -> list[Json]:
    reply = await server.client.get(f"{AT}/{schedule_id}/runs")
    assert reply.status_code == 200, reply.text
    return reply.json()["runs"]


async def entries(server: Serving, schedule_id: str, count: int = 1) -> list[Json]:
    """The history, when it has so many entries."""

    async def has_them() -> bool:
        return len(await history(server, schedule_id)) >= count

    await until(has_them)
    return await history(server, schedule_id)


async def finished(server: Serving, run_id: str) -> Json:
    found: Json = {}

    async def is_over() -> bool:
        found.update((await server.client.get(f"/runs/{run_id}")).json())
        return found["status"] not in ("queued", "running")

    await until(is_over)
    return found


async def test_the_next_times_of_a_schedule_are_shown_before_it_is_stored(serve: Serve) -> None:
    server = await serve(echo())

    async def times(limit: int | None = None, **fields: Any) -> list[float]:
        query = "" if limit is None else f"?limit={limit}"
        reply = await server.client.post(f"{AT}/preview{query}", json=schedule_of(**fields))
        assert reply.status_code == 200, reply.text
        return reply.json()["times"]

    found = await times(cron="30 7 * * *", timeZone="Europe/Berlin")
    assert len(found) == 5
    assert all(datetime.fromtimestamp(at, ZoneInfo("Europe/Berlin")).strftime("%H:%M") == "07:30" for at in found)
    at = time.time() + 100
    assert await times(at=at) == [at]
    assert await times(at=at - 200) == []
    assert await times(everySeconds=60, startAt=at, endAt=at + 150) == [at, at + 60, at + 120]
    assert len(await times(100, everySeconds=60)) == 20

    created = await create(server, everySeconds=1000)
    stored = (await server.client.get(f"{AT}/{created['id']}")).json()
    first, second = await times(2, everySeconds=1000, createdAt=stored["createdAt"])
    assert (first, second - first) == (stored["nextAt"], 1000)

    assert len((await server.client.get(AT)).json()["schedules"]) == 1
    cron = {"cron": "* * * * *"}
    faults: list[Json] = [{}, {"cron": "61 * * * *"}, {**cron, "at": 1}, {"everySeconds": 60, "createdAt": -1e308}]
    for wrong in faults:
        refused = await server.client.post(f"{AT}/preview", json=schedule_of(**wrong))
        assert refused.status_code == 422, refused.text


async def test_a_run_starts_once_at_its_time_in_a_new_session(serve: Serve) -> None:
    server = await serve(echo())
    at = time.time() + 0.3
    created = await create(server, at=at)
    assert created["nextAt"] == at
    assert created["overlap"] == "allow"

    (entry,) = await entries(server, created["id"])
    assert entry["outcome"] == "started"
    assert entry["dueAt"] == at
    assert at <= entry["at"] < at + 1
    run = await finished(server, entry["runId"])
    assert (run["status"], run["sessionId"]) == ("succeeded", entry["sessionId"])
    session = (await server.client.get(f"/apps/echo/users/ann/sessions/{entry['sessionId']}")).json()
    assert [event["content"]["parts"][0]["text"] for event in session["events"]] == ["hi", "You said hi"]

    after = (await server.client.get(f"{AT}/{created['id']}")).json()
    assert after["lastRunId"] == entry["runId"]
    assert "nextAt" not in after


async def test_runs_at_intervals_continue_one_session(serve: Serve) -> None:
    server = await serve(echo())
    await server.new_session("echo")
    created = await create(server, everySeconds=1, startAt=time.time() + 0.2, sessionId="s-1")
    listed = await entries(server, created["id"], 2)
    assert {entry["sessionId"] for entry in listed} == {"s-1"}
    assert listed[0]["dueAt"] == listed[1]["dueAt"] + 1
    assert (await server.client.delete(f"{AT}/{created['id']}")).status_code == 200
    assert (await server.client.get(f"{AT}/{created['id']}")).json()["code"] == "ScheduleNotFound"


async def test_a_paused_schedule_starts_nothing_and_leaves_out_its_times(serve: Serve) -> None:
    server = await serve(echo())
    created = await create(server, everySeconds=1000, startAt=time.time() - 5)
    assert created["nextAt"] > time.time() + 900
    paused = (await server.client.post(f"{AT}/{created['id']}/pause")).json()
    assert paused["isPaused"]
    assert "nextAt" not in paused
    resumed = (await server.client.post(f"{AT}/{created['id']}/resume")).json()
    assert "isPaused" not in resumed
    assert resumed["nextAt"] == created["nextAt"]


async def test_a_schedule_runs_now(serve: Serve) -> None:
    server = await serve(echo())
    created = await create(server, cron="0 9 * * *")
    path = f"{AT}/{created['id']}/run"
    first = await server.client.post(path, headers={"idempotency-key": "k"})
    assert first.status_code == 202
    again = await server.client.post(path, headers={"idempotency-key": "k"})
    assert again.json()["id"] == first.json()["id"]
    assert (await server.client.post(path, headers={"idempotency-key": "other"})).json()["id"] != first.json()["id"]
    (_, entry) = await history(server, created["id"])
    sessions = (await server.client.get("/apps/echo/users/ann/sessions")).json()
    assert len(sessions) == 2
    assert entry["isManual"]
    assert entry["runId"] == first.json()["id"]
    assert (await finished(server, entry["runId"]))["status"] == "succeeded"
    assert (await server.client.get(f"{AT}/{created['id']}")).json()["nextAt"] == created["nextAt"]


async def test_a_changed_schedule_has_new_times(serve: Serve) -> None:
    server = await serve(echo(), echo("other"))
    created = await create(server, cron="0 9 * * *", timeZone="Europe/Berlin")
    path = f"{AT}/{created['id']}"
    changed = schedule_of(cron="0 10 * * *", timeZone="Europe/Berlin", sessionId="s-9")
    reply = await server.client.put(path, json=changed)
    assert reply.status_code == 200, reply.text
    assert abs(reply.json()["nextAt"] - created["nextAt"]) in (3600, 23 * 3600)
    assert reply.json()["createdAt"] == created["createdAt"]
    assert reply.json()["overlap"] == "skip"
    assert (await server.client.get(path)).json() == reply.json()
    assert (await server.client.put(f"{AT}/absent", json=changed)).status_code == 404
    other = f"/apps/other/schedules/{created['id']}"
    assert (await server.client.get(other)).status_code == 404


async def test_lists_are_paged_and_of_one_user(serve: Serve) -> None:
    server = await serve(echo())
    ids = [(await create(server, cron="0 9 * * *"))["id"] for _ in range(3)]
    bobs = await server.client.post(AT, json={**schedule_of(cron="0 9 * * *"), "userId": "bob"})
    first = (await server.client.get(AT, params={"user_id": "ann", "limit": 2})).json()
    second = (await server.client.get(AT, params={"user_id": "ann", "page_token": first["nextPageToken"]})).json()
    assert [one["id"] for one in first["schedules"] + second["schedules"]] == ids[::-1]
    assert second["nextPageToken"] is None
    assert (await server.client.get(AT)).json()["schedules"][0]["id"] == bobs.json()["id"]
    await server.client.delete("/apps/echo/users/ann")
    assert len((await server.client.get(AT)).json()["schedules"]) == 1


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"cron": "0 9 * * *", "at": 2e9},
        {"cron": "0 9 * *"},
        {"cron": "0 0 9 * * *"},
        {"cron": "60 9 * * *"},
        {"cron": "0 0 30 2 *"},
        {"cron": "0 0 31 4,6 *"},
        {"cron": "0 9 * * *" + ",1" * 200},
        {"cron": "0 9 * * *", "timeZone": "Europe/Nowhere"},
        {"cron": "0 9 * * *", "timeZone": "../../etc/passwd"},
        {"cron": "0 9 * * *", "timeZone": "Europe"},
        {"cron": "0 9 * * *", "timeZone": ""},
        {"cron": "0 9 * * *", "overlap": "enqueue"},
        {"cron": "0 9 * * *", "sessionId": "s-1", "overlap": "allow"},
        {"cron": "0 9 * * *", "sessionId": ""},
        {"cron": "0 9 * * *", "id": "a/b"},
        {"cron": "0 9 * * *", "missed": "never"},
        {"cron": "0 9 * * *", "jitterSeconds": -1},
        {"cron": "0 9 * * *", "jitterSeconds": 1e9},
        {"cron": "0 9 * * *", "startAt": 10, "endAt": 5},
        {"cron": "0 9 * * *", "userId": ""},
        {"everySeconds": 0.1},
        {"everySeconds": 1e300},
        {"at": 1e300},
        {"at": -1},
        {"at": 2e9, "request": {"invocationId": "e-1"}},
        {"at": 2e9, "request": {"multitaskStrategy": "reject"}},
        {"at": 2e9, "request": {"deadlineSeconds": 0}},
        {"at": 2e9, "request": {"startAt": 3e9}},
        {"at": 2e9, "request": {"delaySeconds": 5}},
        {"at": 2e9, "request": {"newMessage": {"parts": [{"functionResponse": {"id": "c", "name": "f"}}]}}},
    ],
)
@pytest.mark.parametrize("store", ["memory"])
async def test_what_can_not_work_is_refused(serve: Serve, fields: Json) -> None:
    server = await serve(echo())
    reply = await server.client.post(AT, json=schedule_of(**fields))
    assert reply.status_code == 422, reply.text
    assert (await server.client.get(AT)).json()["schedules"] == []


@pytest.mark.parametrize("store", ["memory", "sqlite"])
async def test_ids_are_unique_and_numbers_limited(serve: Serve) -> None:
    server = await serve(echo(), limits=LimitSettings(schedules_per_user=2, schedules_per_app=3))
    await create(server, id="daily", cron="0 9 * * *")
    again = await server.client.post(AT, json=schedule_of(id="daily", cron="0 9 * * *"))
    assert (again.status_code, again.json()["code"]) == (409, "ScheduleConflict")
    await create(server, cron="0 9 * * *")
    third = await server.client.post(AT, json=schedule_of(cron="0 9 * * *"))
    assert (third.status_code, third.json()["code"]) == (409, "TooManySchedules")
    for expected in (201, 409):
        reply = await server.client.post(AT, json={**schedule_of(cron="0 9 * * *"), "userId": "bob"})
        assert reply.status_code == expected


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys(tmp_path / "keys.db")


@pytest.mark.parametrize("store", ["memory"])
async def test_runs_have_the_permissions_of_the_caller_who_stored_the_schedule_last(serve: Serve, keys: Keys) -> None:
    seen: list[Any] = []

    def look(tool_context: ToolContext) -> str:
        """Look."""
        seen.append(tool_context.caller)
        return "seen"

    def looks_once(request: LlmRequest) -> FunctionCall | str:
        has_looked = any(part.function_response for part in request.contents[-1].parts or ())
        return "done" if has_looked else FunctionCall(name="look")

    looking = scripted("echo", looks_once, tools=[look])
    server = await serve(looking, auth=keys.auth)
    admin = bearer(keys("root", "admin"))
    ann = bearer(key := keys("ann", "run", "read"))
    body = schedule_of(id="daily", cron="0 9 * * *")
    assert (await server.client.post(AT, json=body, headers=admin)).status_code == 201

    async def run_now(headers: dict[str, str]) -> Any:
        run = await server.client.post(f"{AT}/daily/run", headers=headers)
        assert run.status_code == 202, run.text
        await until(lambda: bool(seen))
        return seen.pop()

    assert (await run_now(ann)).user_id == "root"
    assert (await server.client.put(f"{AT}/daily", json=body, headers=ann)).status_code == 200
    assert ((caller := await run_now(admin)).user_id, caller.scopes) == ("ann", ["read", "run"])

    keys.revoke(key)

    async def is_refused() -> bool:
        return (await server.client.post(f"{AT}/daily/run", headers=admin)).status_code == 403

    await until(is_refused)  # the file of keys is read again twice a second
    due = {**body, "cron": None, "at": time.time() + 1.5}
    assert (await server.client.put(f"{AT}/daily", json=due, headers=bearer(keys("ann", "run")))).status_code == 200
    keys.revoke(keys("ann", "run"))
    server.client.headers.update(admin)
    await until(lambda: history_has(server, "refused"))


async def history_has(server: Serving, outcome: str) -> bool:
    return outcome in {entry["outcome"] for entry in await history(server, "daily")}


@pytest.mark.parametrize("store", ["memory"])
async def test_a_schedule_writes_the_state_that_its_caller_may(serve: Serve, keys: Keys) -> None:
    server = await serve(echo(), auth=keys.auth)
    body = schedule_of(cron="0 9 * * *")
    body["request"]["stateDelta"] = {"app:price": 1}
    for scopes, expected in ((("run",), 403), (("run", "manage"), 201)):
        reply = await server.client.post(AT, json=body, headers=bearer(keys("ann", *scopes)))
        assert reply.status_code == expected, reply.text
    others = {**schedule_of(cron="0 9 * * *"), "userId": "bob"}
    assert (await server.client.post(AT, json=others, headers=bearer(keys("ann", "run")))).status_code == 403
