from __future__ import annotations

import logging
import re
from typing import Any

import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.plugins.logging_plugin import LoggingPlugin
from greenroom.plugins.plugin import ToolResultClassification
from greenroom.records.answer_metadata import GenerateContentResponseUsageMetadata
from greenroom.records.content import Content, Part
from greenroom.records.model_exchange import LlmResponse
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.tools.tool import BaseTool
from tests.agents.talk import STREAMED, call
from tests.plugins.watched import WatchedTalk


@pytest.fixture(autouse=True)
def all_levels(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="greenroom.plugins.logging")


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The lines, each with the run's id and the event's id taken out."""
    texts = [record.getMessage() for record in caplog.records if record.name == "greenroom.plugins.logging"]
    return [re.sub(r"event=\S+", "event=…", re.sub(r"^\[e-[-0-9a-f]{36}\] ", "", text)) for text in texts]


def echo(text: str) -> str:
    if text == "boom":
        raise ValueError("too loud")
    return text


async def test_every_point_is_one_line_with_its_ids(caplog: pytest.LogCaptureFixture) -> None:
    usage = GenerateContentResponseUsageMetadata(prompt_token_count=7, candidates_token_count=2)
    last = LlmResponse(content=Content(role="model", parts=[Part(text="two\nlines")]), usage_metadata=usage)
    model = ScriptedModel([call("echo", "c-1", text="hey"), last])
    talk = WatchedTalk(LlmAgent(name="a", model=model, tools=[echo], instruction="Echo."), LoggingPlugin())
    await talk.say("hi")
    await talk.runner.close()
    assert lines(caplog) == [
        "user message agent=a session=s-1 user=ada app=app content=hi",
        "run starts agent=a",
        "agent starts agent=a",
        'model request agent=a model=scripted system=Echo.\\n\\nYou are the agent "a". tools=echo contents=1 last=hi',
        'model reply agent=a content=calls echo({"text":"hey"})',
        'event agent=a event=… author=a content=calls echo({"text":"hey"})',
        'tool starts agent=a tool=echo call=c-1 arguments={"text":"hey"}',
        'tool ends agent=a tool=echo call=c-1 result="hey"',
        "event agent=a event=… author=a content=answers echo",
        'model request agent=a model=scripted system=Echo.\\n\\nYou are the agent "a". tools=echo contents=3 '
        "last=answers echo",
        "model reply agent=a content=two\\nlines tokens=7+2",
        "event agent=a event=… author=a final=True content=two\\nlines",
        "agent ends agent=a",
        "run ends agent=a",
        "runner closes",
    ]


async def test_errors_are_lines_of_their_own(caplog: pytest.LogCaptureFixture) -> None:
    talk = WatchedTalk(LlmAgent(name="a", model=ScriptedModel([call("echo", "c-1", text="boom")]), tools=[echo]))
    talk = WatchedTalk(talk.runner.agent, LoggingPlugin())
    with pytest.raises(ValueError, match="too loud"):
        await talk.say("hi")
    model = ScriptedModel([RuntimeError("on fire")])
    with pytest.raises(RuntimeError):
        await WatchedTalk(LlmAgent(name="b", model=model), LoggingPlugin()).say("hi")
    assert [line for line in lines(caplog) if "failed" in line] == [
        'tool failed agent=a tool=echo call=c-1 arguments={"text":"boom"} error=ValueError: too loud',
        "agent failed agent=a error=ValueError: too loud",
        "run failed agent=a error=ValueError: too loud",
        "model failed agent=b model=scripted error=RuntimeError: on fire",
        "agent failed agent=b error=RuntimeError: on fire",
        "run failed agent=b error=RuntimeError: on fire",
    ]
    levels = {r.levelno for r in caplog.records if r.name == "greenroom.plugins.logging" and "failed" in r.getMessage()}
    assert levels == {logging.ERROR}


async def test_contents_are_cut_at_200_characters_and_arguments_at_300(caplog: pytest.LogCaptureFixture) -> None:
    model = ScriptedModel([call("echo", text="y" * 500), "z" * 500])
    await WatchedTalk(LlmAgent(name="a", model=model, tools=[echo]), LoggingPlugin()).say("x" * 500)
    text = "\n".join(lines(caplog))
    assert f"content={'x' * 200}…\n" in text
    assert f"content={'z' * 200}…" in text
    assert f'arguments={{"text":"{"y" * 291}…\n' in text
    assert f'result="{"y" * 299}…\n' in text
    assert "y" * 300 not in text


async def test_chunks_are_marked(caplog: pytest.LogCaptureFixture) -> None:
    await WatchedTalk(LlmAgent(name="a", model=ScriptedModel(["hey"])), LoggingPlugin()).say("hi", run_config=STREAMED)
    assert "model reply agent=a partial=True content=hey" in lines(caplog)
    assert "event agent=a event=… author=a partial=True content=hey" in lines(caplog)


async def test_nothing_is_built_when_nobody_listens(caplog: pytest.LogCaptureFixture) -> None:
    quiet = logging.getLogger("greenroom.tests.quiet")
    quiet.setLevel(logging.CRITICAL)
    await WatchedTalk(LlmAgent(name="a", model=ScriptedModel(["hey"])), LoggingPlugin(logger=quiet)).say("hi")
    assert lines(caplog) == []


@pytest.mark.parametrize(
    ("result", "error"),
    [
        ({"isError": True}, "reported by the MCP server"),
        ({"isError": True, "fine": True}, ""),
        ({"response_type": "ERROR_HANDLED_BY_REFLECT_AND_RETRY_PLUGIN", "error_details": "odd"}, "odd"),
        ({"code": 7}, "code 7"),
        ({"code": 0}, ""),
    ],
)
async def test_results_that_report_errors_are_marked(
    caplog: pytest.LogCaptureFixture, result: dict[str, object], error: str
) -> None:
    """Row 8.6."""

    def classify(*, tool: BaseTool, result: Any, **_: Any) -> ToolResultClassification | None:
        assert tool.name == "check"
        if "fine" in result:
            return ToolResultClassification("OK")
        return ToolResultClassification("ERROR", f"code {result['code']}") if result.get("code") else None

    def check() -> dict[str, object]:
        return result

    agent = LlmAgent(name="a", model=ScriptedModel([call("check"), "done"]), tools=[check])
    await WatchedTalk(agent, LoggingPlugin(tool_result_classifier=classify)).say("go")
    (line,) = [line for line in lines(caplog) if line.startswith("tool ends")]
    assert (f"error={error}" in line) if error else ("error=" not in line)
