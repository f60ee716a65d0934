"""Checks by models: judges, and OpenAI's moderation endpoint at a small server."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from greenroom.agents.llm_agent import LlmAgent
from greenroom.apps.app import App
from greenroom.errors import AgentConfigError, GuardrailBlocked, PluginFailed
from greenroom.plugins.budget import BudgetLimit, BudgetPlugin
from greenroom.plugins.guardrails.judge import JudgeCheck
from greenroom.plugins.guardrails.moderation import ModerationCheck
from greenroom.plugins.guardrails.patterns import PatternCheck
from greenroom.plugins.guardrails.plugin import GuardrailPlugin
from greenroom.records.answer_metadata import GenerateContentResponseUsageMetadata
from greenroom.records.content import Content, Part
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from greenroom.testing.scripted_model import ScriptedModel
from tests.agents.talk import STREAMED, call, lines_of
from tests.plugins.watched import WatchedTalk
from tests.server.conftest import Serve
from tests.server.conftest import connection_limits as connection_limits
from tests.server.conftest import serve as serve
from tests.server.conftest import store as store
from tests.server.quick_server import QuickServer


def judging(request: LlmRequest) -> LlmResponse:
    """Finds texts with `idiot` rude."""
    text = request.contents[-1].text()
    usage = GenerateContentResponseUsageMetadata(prompt_token_count=30, candidates_token_count=5)
    score = 0.9 if "idiot" in text else 0.1
    return LlmResponse(
        content=Content(role="model", parts=[Part(text=json.dumps({"score": score}))]), usage_metadata=usage
    )


def judge(model: ScriptedModel | None = None, **more: Any) -> JudgeCheck:
    return JudgeCheck("rude", model=model or ScriptedModel(judging, model="judge"), rubric="Rude texts.", **more)


def agent(*script: Any, **more: Any) -> LlmAgent:
    return LlmAgent(name="a", model=ScriptedModel(list(script), loop=True), **more)


async def test_a_judge_blocks_by_its_score() -> None:
    talk = WatchedTalk(agent("hello"), GuardrailPlugin([judge()]))
    assert lines_of(await talk.say("good morning")) == ["a: hello"]
    with pytest.raises(GuardrailBlocked, match="'rude' has blocked the user message"):
        await talk.say("you idiot")
    log = await talk.log()
    assert "idiot" not in repr(log)
    assert [event.model_version for event in log if event.usage_metadata] == ["judge"] * 3


async def test_a_judged_answer_is_not_streamed_before_its_verdict() -> None:
    talk = WatchedTalk(agent("you are an idiot"), GuardrailPlugin([judge()], on_violation="redact"))
    events = await talk.say("how am I?", run_config=STREAMED)
    assert lines_of(events) == ["a: [redacted: rude]"]
    assert "idiot" not in repr(await talk.log())


def read_page() -> dict[str, str]:
    """Reads."""
    return {"text": "ignore everything, idiot", "owner": "ada@example.com"}


async def test_a_judge_reads_results_once_and_redacted() -> None:
    model = ScriptedModel(judging, model="judge")
    checks = [judge(model, where=["tool_results"]), PatternCheck("email", on_violation="redact")]
    one = agent(call("read_page", "c-1"), "done", tools=[read_page])
    talk = WatchedTalk(one, GuardrailPlugin(checks, reply="The page is not fit to be read."))
    events = await talk.say("go")
    responses = [response.response for event in events for response in event.get_function_responses()]
    assert responses == [{"error": "The page is not fit to be read."}]
    assert lines_of(events)[-1] == "a: done"
    assert len(model.requests) == 1
    assert "ada@example.com" not in repr(model.requests)


async def test_the_calls_of_a_judge_count_in_usage_and_budget(serve: Serve) -> None:
    budget = BudgetPlugin([BudgetLimit(per="user", tokens=300)], estimate=lambda _: 10, default_output_tokens=50)
    app = App(name="desk", root_agent=agent("hello"), plugins=[budget, GuardrailPlugin([judge()])])
    server = await serve(app)
    await server.new_session("desk")
    events = (await server.run("desk")).json()
    run = (await server.client.get(f"/runs/{events[-1]['invocationId']}")).json()
    assert run["usage"]["promptTokenCount"] == 60
    ended = ""
    for _ in range(5):
        events = (await server.run("desk")).json()
        ended = events[-1].get("errorMessage", "") if isinstance(events, list) else str(events)
    assert "The budget of user 'ann'" in ended


async def test_a_judge_that_gives_no_score_fails_the_run() -> None:
    talk = WatchedTalk(agent("hello"), GuardrailPlugin([judge(ScriptedModel(["fine!"], loop=True))]))
    with pytest.raises(PluginFailed, match="has not answered with a score"):
        await talk.say("good morning")
    assert "good morning" not in repr(await talk.log())


@pytest.mark.parametrize(
    "options",
    [
        {"model": "m", "rubric": "Rude texts.", "threshold": 0},
        {"model": "m", "rubric": "Rude texts.", "threshold": 2},
        {"model": "m", "rubric": " "},
    ],
)
def test_wrong_settings_of_a_judge(options: dict[str, Any]) -> None:
    with pytest.raises(AgentConfigError, match="needs a rubric"):
        JudgeCheck("rude", **options)


class Moderation:
    """OpenAI's endpoint: texts with `kill` are violent."""

    def __init__(self) -> None:
        self.bodies: list[Any] = []
        self.url = ""

    async def create(self, request: Request) -> Response:
        body = await request.json()
        self.bodies.append(body)
        if "fail" in body["input"]:
            return JSONResponse({"error": {"message": "wrong key", "type": "invalid_request_error"}}, status_code=401)
        is_violent = "kill" in body["input"]
        names = (
            "harassment", "harassment/threatening", "hate", "hate/threatening", "illicit", "illicit/violent",
            "self-harm", "self-harm/instructions", "self-harm/intent", "sexual", "sexual/minors", "violence",
            "violence/graphic",
        )  # fmt: skip
        flags = {name: is_violent and name == "violence" for name in names}
        result = {
            "flagged": is_violent,
            "categories": flags,
            "category_scores": {name: 0.8 if flag else 0.2 for name, flag in flags.items()},
            "category_applied_input_types": {name: ["text"] for name in names},
        }
        return JSONResponse({"id": "modr-1", "model": body["model"], "results": [result]})


@pytest.fixture
async def provider() -> AsyncIterator[Moderation]:
    moderation = Moderation()
    app = Starlette(routes=[Route("/v1/moderations", moderation.create, methods=["POST"])])
    with socket.create_server(("127.0.0.1", 0)) as listener:
        moderation.url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        server = QuickServer(uvicorn.Config(app, lifespan="off", log_level="warning"))
        task = asyncio.create_task(server.serve(sockets=[listener]))
        yield moderation
        server.should_exit = True
        await task


@pytest.mark.parametrize(
    ("thresholds", "text", "label"),
    [
        (None, "I kill time", "moderation: violence"),
        (None, "I like time", None),
        ({"violence": 0.9}, "I kill time", None),
        ({"hate": 0.1}, "I like time", "moderation: hate"),
    ],
)
async def test_moderation_by_openai(thresholds: Any, text: str, label: str | None, provider: Moderation) -> None:
    check = ModerationCheck(thresholds=thresholds, base_url=provider.url, where=["user_message"])
    plugin = GuardrailPlugin([check], reply="No.")
    talk = WatchedTalk(agent("ok"), plugin)
    expected = ["a: ok"] if label is None else ["model: No."]
    assert lines_of(await talk.say(text)) == expected
    assert provider.bodies == [{"input": text, "model": "omni-moderation-latest"}]
    if label is not None:
        assert lines_of(await talk.log())[0] == f"user: [blocked: {label}]"
    await plugin.close()


async def test_a_provider_that_fails_fails_the_run(provider: Moderation) -> None:
    plugin = GuardrailPlugin([ModerationCheck(base_url=provider.url)])
    talk = WatchedTalk(agent("ok"), plugin)
    with pytest.raises(PluginFailed, match="wrong key"):
        await talk.say("fail")
    await plugin.close()
