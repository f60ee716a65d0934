"""Figures of runs equal those computed from their records and logs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.records.answer_metadata import GenerateContentResponseUsageMetadata
from greenroom.records.content import Content, FunctionCall, FunctionResponse, Part
from greenroom.records.model_exchange import LlmResponse
from greenroom.records.run import AgentRunRequest, RunFilter, RunStatus
from greenroom.records.statistics import Statistics
from greenroom.statistics.store import Retention, StatisticsQuery
from greenroom.testing.scripted_model import ScriptedModel, Turn
from greenroom.tools.functions.function_tool import FunctionTool
from tests.durability.engines import WHERE, Gate, Stores, asking, engine_over, finish, stores_in
from tests.statistics.recomputed import check, facts_of


@pytest.fixture(params=["memory", "sqlite"])
async def stores(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Stores]:
    async with stores_in(tmp_path if request.param == "sqlite" else None) as opened:
        yield opened


def answer(*parts: Part | FunctionCall, model: str = "gpt-4o", tokens: int = 100, cached: int = 0) -> LlmResponse:
    """An answer with its usage."""
    content = [part if isinstance(part, Part) else Part(function_call=part) for part in parts]
    usage = GenerateContentResponseUsageMetadata(
        prompt_token_count=tokens,
        candidates_token_count=tokens // 3,
        total_token_count=tokens + tokens // 3,
        cached_content_token_count=cached or None,
    )
    return LlmResponse(content=Content(role="model", parts=content), usage_metadata=usage, model_version=model)


def text(words: str, **options: Any) -> LlmResponse:
    return answer(Part(text=words), **options)


async def look_up(what: str) -> dict[str, str]:
    """Looks up."""
    await asyncio.sleep(0.02)
    return {"found": what}


def fall_over() -> dict[str, str]:
    """Fails."""
    raise ConnectionError("no route")


def refuse() -> dict[str, str]:
    """Reports an error."""
    return {"error": "closed today"}


def call(name: str, **arguments: str) -> FunctionCall:
    return FunctionCall(name=name, args=arguments)


def counting(stores: Stores, script: list[Turn], **options: Any) -> Any:
    agent = LlmAgent(name="desk", model=ScriptedModel(script), tools=[look_up, fall_over, refuse], **options)
    return engine_over(stores, agent, statistics_retention=Retention())


async def figures(stores: Stores, **options: Any) -> Statistics:
    return await stores.runs.statistics.query(StatisticsQuery(**options), currency="USD")


async def check_all(stores: Stores) -> None:
    """Compares all kinds of answers with what the records and the log say."""
    runs = (await stores.runs.list_runs(RunFilter(), limit=None)).runs
    facts = facts_of(runs, {"s-1": await stores.log()})
    asked: list[dict[str, Any]] = [
        {},
        {"group_by": "app", "step": 60},
        {"group_by": "model", "step": 300},
        {"group_by": "tool", "step": 3600},
        {"group_by": "user"},
        {"user_id": "ann"},
        {"model": "gpt-4o"},
        {"tool": "look_up", "step": 60},
        {"app_names": ["another"]},
    ]
    for options in asked:
        query = StatisticsQuery(**options)
        check(await stores.runs.statistics.query(query, currency="USD"), query, facts)


async def test_runs_are_counted_as_their_records_and_logs_say(stores: Stores) -> None:
    script: list[Turn] = [
        answer(call("look_up", what="a"), call("refuse"), cached=30),
        text("first", model="house-model"),
        answer(call("look_up", what="b"), call("fall_over")),
        text("second", tokens=333),
        ValueError("no"),
        answer(call("no_such_tool")),
        text("third"),
    ]
    async with counting(stores, script) as engine:
        ends = [(await finish(engine, asking("go"))).status for _ in range(5)]
    assert ends == ["succeeded", "failed", "succeeded", "failed", "succeeded"]
    await check_all(stores)
    total = (await figures(stores)).groups[0].total
    assert total.runs == {"succeeded": 3, "failed": 2}
    assert total.errors == {"ConnectionError": 1, "ValueError": 1}
    assert (total.model_calls, total.tool_calls, total.unpriced_tokens) == (6, 5, 133)
    by_tool = {group.key: group.total for group in (await figures(stores, group_by="tool")).groups}
    assert by_tool["fall_over"].errors == {"ConnectionError": 1}
    assert by_tool["refuse"].errors == {"error": 1}
    assert by_tool["look_up"].errors == {}
    assert 0.0195 < (by_tool["look_up"].duration.p50 or 0) < 0.5
    await stores.runs.statistics.fold()
    await check_all(stores)


async def test_the_first_text_of_a_stream_is_its_first_chunk(stores: Stores) -> None:
    model = ScriptedModel(["one two three"], delay=0.05)
    async with engine_over(stores, LlmAgent(name="desk", model=model), statistics_retention=Retention()) as engine:
        run = await finish(engine, asking("go", streaming=True))
    assert run.first_text_at is not None
    assert run.ended_at is not None
    assert 0.05 <= run.first_text_at - run.created_at < run.ended_at - run.created_at - 0.09
    await check_all(stores)


async def test_a_run_that_waits_is_counted_when_it_ends_with_its_last_wait_for_people_left_out(stores: Stores) -> None:
    pay = FunctionTool(look_up, require_confirmation=True)
    script: list[Turn] = [answer(call("look_up", what="a")), text("done")]
    agent = LlmAgent(name="desk", model=ScriptedModel(script), tools=[pay])
    async with engine_over(stores, agent, statistics_retention=Retention()) as engine:
        run = await finish(engine, asking("go"))
        assert run.status is RunStatus.WAITING
        total = (await figures(stores)).groups[0].total
        assert (total.runs, total.model_calls, total.tool_calls, total.input_tokens) == ({}, 1, 1, 100)

        await asyncio.sleep(0.3)
        (request_id,) = run.asked
        confirmed = FunctionResponse(id=request_id, name="adk_request_confirmation", response={"confirmed": True})
        message = Content(role="user", parts=[Part(function_response=confirmed)])
        run = await finish(engine, AgentRunRequest(**WHERE, new_message=message))
    assert run.status is RunStatus.SUCCEEDED
    assert run.ended_at is not None
    assert run.requested_at is not None
    total = (await figures(stores)).groups[0].total
    assert (total.runs, total.model_calls, total.tool_calls, total.input_tokens) == ({"succeeded": 1}, 2, 1, 200)
    assert total.duration.p50 == pytest.approx(run.ended_at - run.requested_at, rel=0.03)
    assert run.requested_at - run.created_at >= 0.3
    of_tool = (await figures(stores, tool="look_up")).groups[0].total
    assert of_tool.errors == {}
    assert of_tool.duration.count == 0


async def test_a_retry_counts_as_another_end_and_what_it_did_before_is_not_counted_again(stores: Stores) -> None:
    script: list[Turn] = [answer(call("look_up", what="a")), ValueError("no"), text("done")]
    async with counting(stores, script) as engine:
        run = await finish(engine, asking("go"))
        assert run.status is RunStatus.FAILED
        await engine.retry(run.id)
        async with asyncio.timeout(5):
            while (await engine.get(run.id)).status is not RunStatus.SUCCEEDED:
                await asyncio.sleep(0.01)
    total = (await figures(stores)).groups[0].total
    assert total.runs == {"failed": 1, "succeeded": 1}
    assert total.errors == {"ValueError": 1}
    assert (total.model_calls, total.tool_calls, total.input_tokens) == (2, 1, 200)
    assert total.duration.count == 2
    assert total.first_text.count == 1


async def test_cancelled_runs_are_counted_while_they_run_and_while_they_wait(stores: Stores) -> None:
    gate = Gate()
    agent = LlmAgent(name="desk", model=ScriptedModel([answer(call("wait"))]), tools=[gate.wait])
    async with engine_over(stores, agent, statistics_retention=Retention()) as engine:
        run, _ = await engine.start(asking("go"))
        await gate.entered.wait()
        await engine.cancel(run.id, reason="enough")
    total = (await figures(stores)).groups[0].total
    assert (total.runs, total.errors, total.tool_calls) == ({"cancelled": 1}, {}, 1)
    await check_all(stores)


async def test_a_process_that_resumes_a_run_counts_all_of_it_once(tmp_path: Path) -> None:
    gate = Gate()
    script: list[Turn] = [answer(call("wait"))]
    async with stores_in(tmp_path) as stores:
        agent = LlmAgent(name="desk", model=ScriptedModel(script), tools=[gate.wait])
        async with engine_over(stores, agent, statistics_retention=Retention()) as engine:
            await engine.start(asking("go"))
            await gate.entered.wait()
    async with stores_in(tmp_path) as stores:
        assert (await figures(stores)).groups[0].points == []
        gate.open.set()
        agent = LlmAgent(name="desk", model=ScriptedModel([text("done")]), tools=[gate.wait])
        async with engine_over(stores, agent, statistics_retention=Retention()) as engine:
            assert await engine.recover() == 1
            async with asyncio.timeout(5):
                while not (await stores.runs.list_runs(RunFilter())).runs[0].status.is_over:
                    await asyncio.sleep(0.01)
        total = (await figures(stores)).groups[0].total
        assert (total.runs, total.model_calls, total.input_tokens) == ({"succeeded": 1}, 2, 200)
        await check_all(stores)


async def test_without_statistics_nothing_is_counted(stores: Stores) -> None:
    async with engine_over(stores, LlmAgent(name="desk", model=ScriptedModel([text("a")]))) as engine:
        run = await finish(engine, asking("go"))
    assert (run.first_text_at, run.counted, run.counted_seq) == (None, 0, 0)
    assert (await figures(stores)).groups[0].points == []
