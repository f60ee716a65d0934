"""Feedback over HTTP: one server in memory and on SQLite, and four on PostgreSQL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.agents import echo
from tests.server.conftest import Serve, Store
from tests.server.security.keys import Keys, bearer
from tests.server.serving import Json, Serving

SESSION = "/apps/echo/users/ann/sessions/s-1"


@pytest.fixture(params=["memory", "sqlite", "replicas"])
def store(request: pytest.FixtureRequest) -> Store:
    return request.param


async def answered(server: Serving, headers: dict[str, str] | None = None) -> str:
    """The path of the answer of a run in ann's session."""
    created = await server.client.post(SESSION, json={}, headers=headers)
    assert created.status_code == 200, created.text
    run = await server.run("echo", headers=headers)
    assert run.status_code == 200, run.text
    return f"{SESSION}/events/{run.json()[-1]['id']}"


async def give(server: Serving, event: str, headers: dict[str, str] | None = None, **fields: Any) -> httpx.Response:
    return await server.client.post(f"{event}/feedback", json=fields, headers=headers)


async def listed(server: Serving, path: str, headers: dict[str, str] | None = None) -> list[Json]:
    reply = await server.client.get(path, headers=headers)
    assert reply.status_code == 200, reply.text
    return reply.json()["feedback"]


async def test_feedback_is_kept_with_the_event_and_its_run(serve: Serve) -> None:
    server = await serve(echo())
    event = await answered(server)
    reply = await give(server, event, name="helpful", score=False, comment="too short")
    assert reply.status_code == 200, reply.text
    given = reply.json()
    assert (given["score"], given["comment"], given["source"], given["subject"]) == (False, "too short", "user", "ann")
    assert event.endswith(given["eventId"])
    assert (await server.client.get(f"/runs/{given['runId']}")).status_code == 200
    assert await listed(server, f"{SESSION}/feedback") == [given]
    assert await listed(server, "/apps/echo/feedback?user_id=ann&name=helpful&max_score=0") == [given]
    assert await listed(server, "/apps/echo/feedback?min_score=1") == []

    changed = (await give(server, event, name="helpful", score=True)).json()
    assert changed["id"] == given["id"]
    assert "comment" not in changed
    assert await listed(server, f"{SESSION}/feedback") == [changed]

    await give(server, event, name="tone", label="friendly")
    assert (await server.client.delete(f"{event}/feedback?name=helpful")).status_code == 200
    assert [one["name"] for one in await listed(server, f"{SESSION}/feedback")] == ["tone"]


async def test_runs_are_found_by_their_feedback(serve: Serve) -> None:
    server = await serve(echo())
    runs: list[str] = []
    for score in range(5):
        event = (
            await answered(server) if not runs else f"{SESSION}/events/{(await server.run('echo')).json()[-1]['id']}"
        )
        for label in ("a", "b"):  # two feedback of one name need two names here: one subject has one of each
            runs.append((await give(server, event, name=f"stars-{label}", score=score, label=label)).json()["runId"])
    ids = list(dict.fromkeys(runs))

    async def found(query: str) -> list[str]:
        reply = await server.client.get(f"/runs?app_name=echo&{query}")
        assert reply.status_code == 200, reply.text
        return [run["id"] for run in reply.json()["runs"]]

    assert await found("feedback=stars-a") == ids[::-1]
    assert await found("feedback=stars-a&max_score=1") == [ids[1], ids[0]]
    assert await found("feedback=stars-a&min_score=1&max_score=3&limit=2") == [ids[3], ids[2]]
    assert await found("feedback=stars-a&feedback_label=b") == []
    assert await found("feedback=stars-b&feedback_label=b&status=succeeded&status=failed") == ids[::-1]
    assert await found("feedback=stars-b&status=failed") == []
    assert await found("feedback=stars-b&user_id=bob") == []
    assert await found("feedback=other") == []

    first = (await server.client.get("/runs?app_name=echo&feedback=stars-a&limit=3")).json()
    rest = await found(f"feedback=stars-a&limit=3&page_token={first['nextPageToken']}")
    assert [run["id"] for run in first["runs"]] + rest == ids[::-1]
    for wrong in ("feedback=stars-a", "app_name=echo&max_score=1", "app_name=echo&feedback_label=a"):
        refused = await server.client.get(f"/runs?{wrong}")
        assert (refused.status_code, refused.json()["code"]) == (422, "InvalidRequest"), wrong


async def test_feedback_ends_with_its_session(serve: Serve) -> None:
    server = await serve(echo())
    event = await answered(server)
    assert (await give(server, event, name="helpful", score=True)).status_code == 200
    assert (await server.client.delete(SESSION)).status_code == 200
    assert await listed(server, "/apps/echo/feedback") == []
    for refused in (
        await give(server, event, name="helpful", score=True),
        await server.client.delete(f"{event}/feedback"),
        await server.client.get(f"{SESSION}/feedback"),
    ):
        assert (refused.status_code, refused.json()["code"]) == (404, "SessionNotFound")


async def test_faulty_feedback_is_refused_and_nothing_is_stored(serve: Serve) -> None:
    server = await serve(echo())
    event = await answered(server)
    faults: list[Json] = [
        {},
        {"name": "helpful"},
        {"score": 1},
        {"name": "a b", "score": 1},
        {"name": "n" * 65, "score": 1},
        {"name": "helpful", "score": "good"},
        {"name": "helpful", "label": "x" * 201},
        {"name": "helpful", "label": "a\x00b"},
        {"name": "helpful", "comment": "x" * 10_001},
    ]
    for wrong in faults:
        refused = await give(server, event, **wrong)
        assert (refused.status_code, refused.json()["code"]) == (422, "InvalidRequest"), wrong
    absent = await give(server, f"{SESSION}/events/absent", name="helpful", score=1)
    assert (absent.status_code, absent.json()["code"]) == (404, "NotFound")
    assert await listed(server, f"{SESSION}/feedback") == []


async def test_each_caller_has_its_own_feedback_on_an_event(serve: Serve, tmp_path: Path, store: Store) -> None:
    keys = Keys(tmp_path / "keys.json")
    server = await serve(echo(), auth=keys.auth)
    ann = bearer(keys("ann", "run", "read"))
    judge = bearer(keys("judge", "run", "read", "app:echo"))
    bob = bearer(keys("bob", "run", "read"))
    event = await answered(server, ann)
    assert (await give(server, event, ann, name="helpful", score=True)).json()["source"] == "user"
    by_judge = (await give(server, event, judge, name="helpful", score=0.2)).json()
    assert (by_judge["source"], by_judge["subject"]) == ("service", "judge")

    assert (await give(server, event, bob, name="helpful", score=False)).status_code == 403
    assert (await server.client.delete(f"{event}/feedback", headers=bob)).status_code == 403
    assert (await server.client.get("/apps/echo/feedback?user_id=ann", headers=bob)).status_code == 403
    assert await listed(server, "/apps/echo/feedback", bob) == []

    assert len(await listed(server, "/apps/echo/feedback", ann)) == 2
    assert await listed(server, "/apps/echo/feedback?source=service", judge) == [by_judge]
    assert (await server.client.delete(f"{event}/feedback", headers=ann)).status_code == 200
    assert await listed(server, "/apps/echo/feedback", judge) == [by_judge]
