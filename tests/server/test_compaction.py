"""Compaction over HTTP: after the answer, out of the run's stream, in the session's log, and counted."""

from __future__ import annotations

import asyncio
from typing import Any

from greenroom.agents.llm_agent import LlmAgent
from greenroom.apps.app import App
from greenroom.invocation.compaction import BaseEventsSummarizer, EventsCompactionConfig, LlmEventSummarizer
from greenroom.records.answer_metadata import GenerateContentResponseUsageMetadata
from greenroom.records.content import Content, Part
from greenroom.records.event import Event
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from greenroom.testing.scripted_model import ScriptedModel
from tests.server.conftest import Serve


class Held(BaseEventsSummarizer):
    """Summarizes when it is released."""

    def __init__(self) -> None:
        usage = GenerateContentResponseUsageMetadata(prompt_token_count=7, total_token_count=9)
        reply = LlmResponse(content=Content(role="model", parts=[Part(text="in short")]), usage_metadata=usage)
        self._inner = LlmEventSummarizer(ScriptedModel(lambda _: reply, model="summarizer"))
        self.begun = asyncio.Event()
        self.released = asyncio.Event()

    async def maybe_summarize_events(self, *, events: list[Event]) -> Event | None:
        self.begun.set()
        await self.released.wait()
        return await self._inner.maybe_summarize_events(events=events)


def app_with(summarizer: BaseEventsSummarizer, model: ScriptedModel, **config: int) -> App:
    compaction = EventsCompactionConfig(summarizer=summarizer, **config)
    return App(name="desk", root_agent=LlmAgent(name="desk", model=model), events_compaction_config=compaction)


def echo(request: LlmRequest) -> str:
    return f"re {request.contents[-1].text()}"


async def test_neither_the_client_nor_the_next_run_waits_for_the_summary(serve: Serve) -> None:
    summarizer = Held()
    model = ScriptedModel(echo)
    async with asyncio.timeout(20):
        server = await serve(app_with(summarizer, model, compaction_interval=1, overlap_size=0))
        path = await server.new_session("desk")
        (answer,) = await server.sse("desk", "one")
        assert answer.text == "re one"
        await summarizer.begun.wait()
        assert [frame.text for frame in await server.sse("desk", "two")] == ["re two"]
        summarizer.released.set()
        while len(compactions := [e for e in await log_of(server, path) if "compaction" in e["actions"]]) < 2:
            await asyncio.sleep(0.01)
        (third,) = await server.sse("desk", "three")
        assert third.text == "re three"

    assert [content.text() for content in model.requests[-1].contents] == ["in short", "three"]  # the newer has both
    assert compactions[0]["author"] == "user"
    assert "content" not in compactions[0]
    assert compactions[0]["usageMetadata"]["totalTokenCount"] == 9
    run_id = answer.data["invocationId"]
    while (run := (await server.client.get(f"/runs/{run_id}")).json()).get("usage") is None:
        await asyncio.sleep(0.01)
    assert run["usage"]["totalTokenCount"] == 9
    used = (await server.client.get("/apps/desk/usage", params={"run_id": run_id, "group_by": "model"})).json()["usage"]
    assert [(one["model"], one["totalTokenCount"]) for one in used] == [("summarizer", 9)]


async def log_of(server: Any, path: str) -> list[Any]:
    return (await server.client.get(path)).json()["events"]


async def test_a_compaction_before_a_call_is_not_in_the_runs_stream(serve: Serve) -> None:
    summarizer = Held()
    model = ScriptedModel(echo)
    summarizer.released.set()
    server = await serve(app_with(summarizer, model, token_threshold=50, event_retention_size=2))
    path = await server.new_session("desk")
    for word in ("one " * 20, "two " * 20):
        (frame,) = await server.sse("desk", word)
        assert frame.text == f"re {word}"
    events = await log_of(server, path)
    assert ["compaction" in event["actions"] for event in events[:5]] == [False, False, False, True, False]
    assert frame.id == 5
