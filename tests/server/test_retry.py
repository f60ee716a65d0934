"""Rewinds and retries by HTTP, and by both clients."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from greenroom.client.async_client import AsyncClient
from greenroom.errors import NotRetryable, RunNotFound, SessionBusy
from greenroom.records.content import FunctionCall
from greenroom.records.model_exchange import LlmRequest
from greenroom.records.run import RunStatus
from greenroom.tools.builtin.sleep import wait_for
from tests.server.agents import scripted
from tests.server.conftest import Serve
from tests.server.serving import Serving

PLACE: dict[str, Any] = {"app_name": "desk", "user_id": "ann", "session_id": "s-1"}


async def ended(server: Serving, run_id: str) -> dict[str, Any]:
    async with asyncio.timeout(5):
        while (run := (await server.client.get(f"/runs/{run_id}")).json())["status"] in ("queued", "running"):
            await asyncio.sleep(0.01)
    return run


async def test_failed_run_is_retried_once_per_key(serve: Serve) -> None:
    server = await serve(scripted("desk", [ValueError("overloaded"), "Fine."]))
    session = await server.new_session("desk")
    failed = (await server.run("desk")).headers["x-run-id"]

    retries = [await server.client.post(f"/runs/{failed}/retry", headers={"idempotency-key": "k"}) for _ in range(2)]
    assert [(reply.status_code, reply.json()["id"]) for reply in retries] == [(202, failed)] * 2
    assert retries[0].headers["location"].endswith(f"/runs/{failed}")
    run = await ended(server, failed)
    assert (run["status"], run["retries"], run.get("error")) == ("succeeded", 1, None)

    refused = await server.client.post(f"/runs/{failed}/retry")
    assert (refused.status_code, refused.json()["code"]) == (409, "NotRetryable")
    shown = (await server.client.get(session)).json()["events"]
    assert not any("greenroom:retry" in event.get("customMetadata", {}) for event in shown)
    whole = (await server.client.get(f"{session}?events=all")).json()["events"]
    assert sum("greenroom:retry" in event.get("customMetadata", {}) for event in whole) == 1


async def test_python_client_retries_in_a_fork(serve: Serve) -> None:
    server = await serve(scripted("desk", [ValueError("no"), "Later.", "Forked."]))
    await server.new_session("desk")
    failed = (await server.run("desk")).headers["x-run-id"]
    await server.run("desk", "next")
    async with AsyncClient(server.url) as client:
        with pytest.raises(NotRetryable):
            await client.retry_run(failed)
        with pytest.raises(RunNotFound):
            await client.retry_run("missing")
        forked = await client.retry_run(failed, fork=True)
        assert (forked.retry_of, forked.session_id == "s-1") == (failed, False)
        stream = await client.follow(forked.id)
        assert (await stream.wait()).status is RunStatus.SUCCEEDED


async def test_rewind_takes_back_a_run_and_cancels_it_if_it_waits(serve: Serve) -> None:
    sleeping = FunctionCall(name="wait_for", args={"signal": "go"})
    server = await serve(scripted("desk", ["One.", sleeping, "Two."], tools=[wait_for]))
    await server.new_session("desk", state={"a": 1})
    await server.run("desk", "one")
    waiting = (await server.run("desk", "two", stateDelta={"a": 2})).headers["x-run-id"]
    async with AsyncClient(server.url) as client:
        assert (await client.get_run(waiting)).status is RunStatus.WAITING
        rewind = await client.rewind_session(**PLACE, before_run=waiting)
        assert rewind.actions.rewind_before_invocation_id == waiting
        assert (await client.get_run(waiting)).status is RunStatus.CANCELLED
        with pytest.raises(NotRetryable, match="rewound"):
            await client.retry_run(waiting)
        with pytest.raises(RunNotFound):
            await client.rewind_session(**PLACE, before_run="missing")
        session = await client.get_session(**PLACE)
        assert session is not None
        assert session.events[-1].id == rewind.id


async def test_rewind_is_refused_while_a_run_is_active(serve: Serve) -> None:
    entered = asyncio.Event()
    release = asyncio.Event()

    async def hold() -> str:
        """Waits."""
        entered.set()
        await release.wait()
        return "done"

    holding = FunctionCall(name="hold", args={})
    server = await serve(scripted("desk", ["One.", holding, "Two."], tools=[hold]))
    session = await server.new_session("desk")
    first = (await server.run("desk", "one")).headers["x-run-id"]
    await server.client.post(f"{session}/runs", json={"newMessage": {"parts": [{"text": "two"}]}})
    async with asyncio.timeout(5):
        await entered.wait()
    async with AsyncClient(server.url) as client:
        with pytest.raises(SessionBusy):
            await client.rewind_session(**PLACE, before_run=first)
    release.set()


async def test_runs_are_retried_by_their_error(serve: Serve) -> None:
    def fails(request: LlmRequest) -> Any:
        said = request.contents[-1].text()
        if said == "odd" and not mended:
            return ValueError("odd")
        return KeyError("even") if said == "even" else "Fine."

    mended: list[bool] = []
    server = await serve(scripted("desk", fails))
    for number in range(4):
        await server.new_session("desk", session=f"s-{number}")
        await server.run("desk", "odd" if number % 2 else "even", sessionId=f"s-{number}")
    mended.append(True)

    async with AsyncClient(server.url) as client:
        odd = await client.list_runs(error_code="ValueError")
        assert [run.session_id for run in odd.runs] == ["s-3", "s-1"]
        assert not (await client.list_runs(error_code="ValueError", status=[RunStatus.SUCCEEDED])).runs
        assert len((await client.list_runs(error_code="ValueError", limit=1)).runs) == 1

        first = await client.retry_runs(error_code="ValueError", limit=1)
        assert [run.session_id for run in first.started] == ["s-3"]
        second = await client.retry_runs(error_code="ValueError", limit=1, page_token=first.next_page_token)
        assert [run.session_id for run in second.started] == ["s-1"]
        assert second.next_page_token is None
        for run in odd.runs:
            assert (await ended(server, run.id))["status"] == "succeeded"

        await server.run("desk", "fine", sessionId="s-0")
        rest = await client.retry_runs(app_name="desk")
        assert [run.session_id for run in rest.started] == ["s-2"]
        assert [(one.code, "later messages" in one.detail) for one in rest.refused] == [("NotRetryable", True)]


async def test_filter_of_retries_is_checked(serve: Serve) -> None:
    server = await serve(scripted("desk", ["Fine."]))
    for body in ({"status": ["running"]}, {"limit": 101}, {"limit": 0}, {"pageToken": "x"}, []):
        assert (await server.client.post("/runs/retry", json=body)).status_code == 422, body
    assert (await server.client.post("/runs/retry", json={})).json() == {
        "started": [], "refused": [], "nextPageToken": None,
    }  # fmt: skip
