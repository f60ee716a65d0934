"""A live conversation with an agent, and its events as short lines."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any

from greenroom.agents.agent import BaseAgent
from greenroom.invocation.live_requests import LiveRequestQueue
from greenroom.plugins.plugin import BasePlugin
from greenroom.records.content import Blob, Content, Part
from greenroom.records.event import Event
from greenroom.records.run import RunConfig
from greenroom.runner.in_memory import InMemoryRunner

MICROPHONE = "audio/pcm;rate=16000"


class Call:
    """events: all that were shown so far. error: what failed the run."""

    def __init__(self, runner: InMemoryRunner) -> None:
        self.runner = runner
        self.queue = LiveRequestQueue()
        self.events: list[Event] = []
        self.error: BaseException | None = None
        self._more = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def say(self, text: str) -> None:
        self.queue.send_content(Content(role="user", parts=[Part(text=text)]))

    def speak(self, data: bytes = b"\x00\x01" * 160) -> None:
        self.queue.send_realtime(Blob(data=data, mime_type=MICROPHONE))

    async def until(self, condition: Callable[[Event], Any], *, times: int = 1) -> Event:
        """The event for which this holds, as often as that."""
        async with asyncio.timeout(5):
            while len(found := [event for event in self.events if condition(event)]) < times:
                if self.error is not None:
                    raise self.error
                assert self._task is not None
                assert not self._task.done(), lines_of(self.events)
                self._more.clear()
                await self._more.wait()
        return found[times - 1]

    async def turns(self, count: int = 1) -> None:
        await self.until(lambda event: event.turn_complete, times=count)

    async def end(self) -> list[Event]:
        """Closes the connection, and waits for the end."""
        self.queue.close()
        return await self.ended()

    async def ended(self) -> list[Event]:
        async with asyncio.timeout(5):
            assert self._task is not None
            await self._task
        if self.error is not None:
            raise self.error
        return self.events

    async def log(self) -> list[Event]:
        session = await self.runner.session_service.get_session(app_name="app", user_id="ada", session_id="s-1")
        assert session is not None
        return list(session.events)

    async def _run(self, config: RunConfig | None) -> None:
        run = self.runner.run_live(user_id="ada", session_id="s-1", live_request_queue=self.queue, run_config=config)
        try:
            async with aclosing(run) as events:
                async for event in events:
                    self.events.append(event)
                    self._more.set()
        except Exception as error:  # the test says what it expects
            self.error = error
        finally:
            self._more.set()


@contextlib.asynccontextmanager
async def calling(
    agent: BaseAgent,
    *,
    config: RunConfig | None = None,
    plugins: Sequence[BasePlugin] = (),
    runner: InMemoryRunner | None = None,
) -> AsyncGenerator[Call]:
    """A call, which is cut off when the block is left. No task is left behind."""
    before = asyncio.all_tasks()
    call = Call(runner or InMemoryRunner(agent, app_name="app", plugins=plugins))
    if runner is None:
        await call.runner.session_service.create_session(app_name="app", user_id="ada", session_id="s-1")
    call._task = asyncio.create_task(call._run(config))
    try:
        yield call
    finally:
        call._task.cancel()
        await asyncio.gather(call._task, return_exceptions=True)
        await asyncio.sleep(0)
        assert asyncio.all_tasks() <= before


def lines_of(events: Sequence[Event]) -> list[str]:
    """A line for each event; pieces are left out."""
    return [line for event in events if not event.partial for line in _lines(event)]


def _lines(event: Event) -> list[str]:
    lines: list[str] = []
    for part in (event.content.parts if event.content is not None else None) or ():
        if part.text is not None:
            lines.append(f"{event.author}: {part.text}")
        elif part.function_call is not None:
            lines.append(f"{event.author} calls {part.function_call.name}")
        elif part.function_response is not None:
            lines.append(f"{event.author} got {part.function_response.response}")
        elif part.file_data is not None:
            lines.append(f"{event.author} recorded {part.file_data.mime_type}")
    if event.input_transcription is not None:
        lines.append(f"{event.author} spoke: {event.input_transcription.text}")
    if event.output_transcription is not None:
        lines.append(f"{event.author} spoke: {event.output_transcription.text}")
    for name in ("interrupted", "turn_complete", "go_away", "live_session_resumption_update", "error_code"):
        if (value := getattr(event, name)) is not None:
            lines.append(f"{name}" if value is True else f"{name}: {value}")
    return lines
