"""Recording a conversation, and replaying it with a model that must not be asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from greenroom.agents.agent import BaseAgent
from greenroom.plugins.plugin import BasePlugin
from greenroom.plugins.recording import RecordingsPlugin
from greenroom.plugins.recordings_file import RECORDINGS_CONFIG, REPLAY_CONFIG, load_recordings
from greenroom.plugins.replay import ReplayPlugin
from greenroom.records.base import JsonObject
from greenroom.records.content import Content
from greenroom.records.event import Event
from greenroom.records.recording import Recording
from greenroom.records.run import RunConfig, StreamingMode
from greenroom.testing.scripted_model import ScriptedModel
from tests.plugins.watched import WatchedTalk

Message = str | Content


def silent() -> ScriptedModel:
    """A model that fails when it is asked."""
    return ScriptedModel([])


async def record(agent: BaseAgent, folder: Path, *messages: Message, mode: str = "none") -> list[list[Event]]:
    return await _converse(WatchedTalk(agent, RecordingsPlugin()), RECORDINGS_CONFIG, folder, messages, mode)


async def replay(
    agent: BaseAgent, folder: Path, *messages: Message, mode: str = "none", plugin: BasePlugin | None = None
) -> list[list[Event]]:
    return await _converse(WatchedTalk(agent, plugin or ReplayPlugin()), REPLAY_CONFIG, folder, messages, mode)


async def _converse(
    talk: WatchedTalk, key: str, folder: Path, messages: tuple[Message, ...], mode: str
) -> list[list[Event]]:
    config = RunConfig(streaming_mode=StreamingMode.SSE if mode == "sse" else StreamingMode.NONE)
    turns: list[list[Event]] = []
    for turn, message in enumerate(messages):
        delta = {key: settings(folder, turn, mode)}
        turns.append(await talk.say(message, state_delta=delta, run_config=config))
    return turns


def settings(folder: Path, turn: int, mode: str = "none", **more: Any) -> JsonObject:
    return {"dir": str(folder), "user_message_index": turn, "streaming_mode": mode, **more}


def recorded(folder: Path, mode: str = "none") -> list[Recording]:
    name = "generated-recordings-sse.yaml" if mode == "sse" else "generated-recordings.yaml"
    return load_recordings(folder / name).recordings


def outline(recordings: list[Recording]) -> list[str]:
    """Turn, agent, and what was asked of whom."""
    lines: list[str] = []
    for one in recordings:
        if one.llm_recording is not None:
            what = f"model x{len(one.llm_recording.llm_responses)}"
        elif one.is_cancelled:
            what = "cancelled"
        else:
            call = one.tool_recording.tool_call if one.tool_recording else None
            what = f"{call.name if call else None}"
        lines.append(f"{one.user_message_index} {one.agent_name}: {what}")
    return lines
