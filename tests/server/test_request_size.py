"""The cost of one request is bounded by its items and its nesting, before it is decoded."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from greenroom.errors import InvalidRequest
from greenroom.server.request_body import check_size
from greenroom.server.settings import LimitSettings
from tests.server.conftest import Serve
from tests.server.live_client import talking
from tests.server.serving import Serving, run_body

SESSIONS = "/apps/echo/users/ann/sessions"


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"a": [value]}
    return value


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (run_body("echo", stateDelta={str(n): n for n in range(19_000)}), 200),
        (run_body("echo", stateDelta={str(n): n for n in range(20_001)}), 422),
        (run_body("echo", stateDelta={str(n): {str(m): 0 for m in range(200)} for n in range(101)}), 422),
        (run_body("echo", newMessage={"parts": [{"text": "a"}] * 19_000}), 200),
        (run_body("echo", newMessage={"parts": [{"text": "a"}] * 20_001}), 422),
        (run_body("echo", stateDelta={"a": deep(49)}), 200),
        (run_body("echo", stateDelta={"a": deep(50)}), 422),
        (run_body("echo", '[{",' * 100_000), 200),
        (run_body("echo", '\\"[{,' * 100_000), 200),
        (run_body("echo", stateDelta={"a": "b\\", "c": [{}] * 101}), 200),
    ],
)
async def test_a_request_has_so_many_items_and_levels(server: Serving, body: dict[str, Any], status: int) -> None:
    await server.new_session("echo")
    reply = await server.client.post("/run", json=body)
    assert reply.status_code == status, reply.text[:300]
    if status == 422:
        assert reply.json()["code"] == "InvalidRequest"
        assert "20000 parts" in reply.json()["detail"] or "100 levels" in reply.json()["detail"]


async def test_the_limits_are_settings(serve: Serve) -> None:
    server = await serve(limits=LimitSettings(request_items=10, request_nesting=3))
    for state, status in (({"a": 1}, 200), ({"a": [[1]]}, 422), ({str(n): n for n in range(12)}, 422)):
        assert (await server.client.post(SESSIONS, json={"state": state})).status_code == status


async def test_a_frame_of_a_live_run_is_limited_too(serve: Serve) -> None:
    from greenroom.agents.llm_agent import LlmAgent
    from greenroom.testing import ScriptedLiveModel

    server = await serve(LlmAgent(name="desk", model=ScriptedLiveModel(["Hello."])))
    await server.new_session("desk")
    async with talking(server.port) as client:
        await client.send({"content": {"parts": [{"text": "a"}] * 20_001}})
        refused = await client.next()
        assert refused["error"].startswith("InvalidRequest")


async def test_very_many_keys_stall_nobody(server: Serving) -> None:
    body = json.dumps({"state": {str(n): n for n in range(300_000)}}).encode()
    sending = asyncio.create_task(
        server.client.post(SESSIONS, content=body, headers={"content-type": "application/json"})
    )
    slowest = 0.0
    while not sending.done():
        asked_at = time.perf_counter()
        await server.client.get("/version")
        slowest = max(slowest, time.perf_counter() - asked_at)
    assert (await sending).status_code == 422
    assert slowest < 1.0


@pytest.mark.parametrize(
    "data",
    [
        b"[" + b'"\\\\",' * 5_000_000 + b"1]",
        b'["' + b"\\\\" * 10_000_000 + b'",' + b"1," * 300_000 + b"1]",
        b"[" * 10_000_000,
        b"[" * 100_000 + b"]" * 100_000,
        b'["' + b"[{," * 7_000_000 + b'"]',
    ],
)
def test_the_check_itself_is_cheap(data: bytes) -> None:
    begun_at = time.process_time()
    try:
        check_size(data, max_items=20_000, max_nesting=100)
    except InvalidRequest:
        pass
    assert time.process_time() - begun_at < 0.5
