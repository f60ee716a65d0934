"""The server that is killed around compactions: `python -m tests.durability.compaction_server FOLDER SOCKET`.

In the run of the third message each app waits for the file `continue`, and makes the file `APP.held` when it gets there.
The texts of its prompts are lines of `APP.prompts`.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from pathlib import Path

import uvicorn

from greenroom.agents.llm_agent import LlmAgent
from greenroom.apps.app import App
from greenroom.invocation.compaction import BaseEventsSummarizer, EventsCompactionConfig, LlmEventSummarizer
from greenroom.invocation.context import InvocationContext
from greenroom.plugins.plugin import BasePlugin
from greenroom.records.event import Event
from greenroom.records.model_exchange import LlmRequest
from greenroom.server.application import create_app
from greenroom.sessions.sqlite import SqliteSessionService
from greenroom.testing.scripted_model import ScriptedModel

MESSAGES = "one, which is longer than the others by far", "two", "three", "four", "five"

HELD_AT_END, HELD_AFTER_RUN, HELD_BEFORE_CALL = "held_at_end", "held_after_run", "held_before_call"
"""Apps: the first waits between an answer and the end of its run, the others in the summarizer."""

_AFTER_THREE_RUNS = {"compaction_interval": 3, "overlap_size": 0}
_BEFORE_THIRD_CALL = {"token_threshold": 25, "event_retention_size": 1}
"""The prompt has 103 characters then, and 98 after the second run."""

APPS = {
    HELD_AT_END: _AFTER_THREE_RUNS,
    HELD_AFTER_RUN: _AFTER_THREE_RUNS,
    HELD_BEFORE_CALL: _BEFORE_THIRD_CALL,
}


def main() -> None:
    folder, listening = Path(sys.argv[1]), socket.socket(fileno=int(sys.argv[2]))
    apps = [_app(folder, name) for name in APPS]
    app = create_app(agents=apps, session_service=SqliteSessionService(folder / "greenroom.db"))
    uvicorn.Server(uvicorn.Config(app, lifespan="on", log_level="warning")).run(sockets=[listening])


def _app(folder: Path, name: str) -> App:
    def answer(request: LlmRequest) -> str:
        texts = [content.text() for content in request.contents]
        with (folder / f"{name}.prompts").open("a") as prompts:
            prompts.write(json.dumps(texts) + "\n")
        return f"re {texts[-1]}"

    held = _Held(folder, name)
    config = EventsCompactionConfig(summarizer=_Summarizer(held), **APPS[name])
    plugins: list[BasePlugin] = [held] if name == HELD_AT_END else []
    agent = LlmAgent(name=name, model=ScriptedModel(answer))
    return App(name=name, root_agent=agent, plugins=plugins, events_compaction_config=config)


class _Held(BasePlugin):
    """As a plugin, it holds the end of the third run."""

    def __init__(self, folder: Path, app_name: str) -> None:
        super().__init__(name="held")
        self._folder = folder
        self._app_name = app_name

    async def wait(self) -> None:
        (self._folder / f"{self._app_name}.held").touch()
        while not (self._folder / "continue").exists():
            await asyncio.sleep(0.01)

    async def after_run_callback(self, *, invocation_context: InvocationContext) -> None:
        message = invocation_context.user_content
        if message is not None and message.text() == MESSAGES[2]:
            await self.wait()


class _Summarizer(BaseEventsSummarizer):
    def __init__(self, held: _Held) -> None:
        self._held = held
        self._inner = LlmEventSummarizer(ScriptedModel(lambda _: "in short"))

    async def maybe_summarize_events(self, *, events: list[Event]) -> Event | None:
        await self._held.wait()
        return await self._inner.maybe_summarize_events(events=events)


if __name__ == "__main__":
    main()
