"""The debug file: every point of a run, whole, one document for each segment."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest
import yaml

from greenroom.agents.llm_agent import LlmAgent
from greenroom.errors import ModelError, PluginFailed
from greenroom.plugins.debug_logging import DebugLoggingPlugin
from greenroom.records.generation import GenerateContentConfig
from greenroom.testing.scripted_model import ScriptedModel
from tests.agents.talk import call
from tests.plugins.watched import WatchedTalk


def price(item: str) -> dict[str, int]:
    """Says what an item costs."""
    return {"price": len(item)}


def shop(*script: Any) -> LlmAgent:
    return LlmAgent(
        name="shop",
        instruction="Sell.",
        model=ScriptedModel(list(script)),
        tools=[price],
        generate_content_config=GenerateContentConfig(http_options={"headers": {"Authorization": "Bearer s3cret"}}),
    )


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text()))


async def test_without_a_path_it_is_a_file_of_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    await WatchedTalk(shop("Hello."), DebugLoggingPlugin()).say("hi")
    assert len(documents(tmp_path / "adk_debug.yaml")) == 1


async def test_each_run_is_one_document_with_everything_in_it(tmp_path: Path) -> None:
    path = tmp_path / "adk_debug.yaml"
    talk = WatchedTalk(
        shop(call("price", "c-1", item="tea"), "Three.", "Bye."), DebugLoggingPlugin(output_path=path), state={"a": 1}
    )
    events = await talk.say("what is tea?")
    await talk.say("bye")
    first, second = documents(path)
    assert (first["invocation_id"], first["session_id"], first["app_name"], first["user_id"]) == (
        events[0].invocation_id,
        "s-1",
        "app",
        "ada",
    )
    assert [entry["entry_type"] for entry in first["entries"]] == [
        "user_message",
        "invocation_start",
        "agent_start",
        "llm_request",
        "llm_response",
        "event",
        "tool_call",
        "tool_response",
        "event",
        "llm_request",
        "llm_response",
        "event",
        "agent_end",
        "invocation_end",
    ]
    asked, made, came = (first["entries"][at] for at in (3, 6, 7))
    assert asked["request"]["config"]["system_instruction"].startswith("Sell.")
    assert asked["tools"] == ["price"]
    assert (made["tool"], made["function_call_id"], made["args"]) == ("price", "c-1", {"item": "tea"})
    assert came["result"] == {"price": 3}
    assert first["session_state"] == {"a": 1}
    assert second["entries"][-1]["entry_type"] == "invocation_end"
    assert "s3cret" not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_state_and_instructions_can_be_left_out(tmp_path: Path) -> None:
    path = tmp_path / "debug.yaml"
    plugin = DebugLoggingPlugin(output_path=path, include_session_state=False, include_system_instruction=False)
    await WatchedTalk(shop("Hello."), plugin).say("hi")
    (run,) = documents(path)
    assert "session_state" not in run
    assert all("system_instruction" not in e["request"]["config"] for e in run["entries"] if "request" in e)


async def test_a_run_that_fails_is_written_with_its_error(tmp_path: Path) -> None:
    path = tmp_path / "debug.yaml"
    with pytest.raises(ModelError):
        await WatchedTalk(shop(ModelError("down", model="m")), DebugLoggingPlugin(output_path=path)).say("hi")
    (run,) = documents(path)
    errors = [(e["entry_type"], e["error_message"]) for e in run["entries"] if "error_message" in e]
    assert errors == [("llm_error", "down"), ("agent_error", "down"), ("invocation_error", "down")]


async def test_a_file_that_cant_be_written_fails_the_run(tmp_path: Path) -> None:
    plugin = DebugLoggingPlugin(output_path=tmp_path / "nowhere" / "debug.yaml")
    with pytest.raises(PluginFailed, match="after_run_callback: FileNotFoundError"):
        await WatchedTalk(shop("Hello."), plugin).say("hi")
