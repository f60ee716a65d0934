"""A conversation with an agent, and its events as short lines."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import aclosing
from typing import Any

from greenroom.agents.agent import BaseAgent
from greenroom.apps.app import App, ResumabilityConfig
from greenroom.records.base import JsonObject
from greenroom.records.content import Content, FunctionCall, FunctionResponse, Part
from greenroom.records.event import Event
from greenroom.records.model_exchange import LlmRequest
from greenroom.records.run import RunConfig, StreamingMode
from greenroom.runner.in_memory import InMemoryRunner

STREAMED = RunConfig(streaming_mode=StreamingMode.SSE)


class Talk:
    """One conversation with an agent."""

    def __init__(self, agent: BaseAgent, *, state: JsonObject | None = None) -> None:
        # Resumable, so that checkpoints are seen.
        app = App(name="app", root_agent=agent, resumability_config=ResumabilityConfig(is_resumable=True))
        self.runner = InMemoryRunner(app=app)
        self.state_at_start = state
        self.session_id = "s-1"

    async def say(self, message: str | Content | None, **options: Any) -> list[Event]:
        """The events of one run, read to its end."""
        return [event async for event in self.events(message, **options)]

    async def events(self, message: str | Content | None, **options: Any):
        if await self._session() is None:
            await self.runner.session_service.create_session(
                app_name="app", user_id="ada", session_id=self.session_id, state=self.state_at_start
            )
        content = Content(role="user", parts=[Part(text=message)]) if isinstance(message, str) else message
        async with asyncio.timeout(30):
            run = self.runner.run_async(user_id="ada", session_id=self.session_id, new_message=content, **options)
            async with aclosing(run) as events:
                async for event in events:
                    yield event

    async def log(self) -> list[Event]:
        session = await self._session()
        return [] if session is None else list(session.events)

    async def state(self) -> JsonObject:
        session = await self._session()
        return {} if session is None else session.state

    async def _session(self):
        return await self.runner.session_service.get_session(app_name="app", user_id="ada", session_id=self.session_id)


def call(name: str, call_id: str | None = None, /, **args: Any) -> FunctionCall:
    return FunctionCall(id=call_id, name=name, args=args)


def answer(name: str, call_id: str | None, response: JsonObject) -> Content:
    part = Part(function_response=FunctionResponse(id=call_id, name=name, response=response))
    return Content(role="user", parts=[part])


def lines_of(events: Iterable[Event]) -> list[str]:
    """Contents of each event, a line per part; partial ones are marked with `…`."""
    lines: list[str] = []
    for event in events:
        who = f"{event.author}…" if event.partial else event.author
        lines += [f"{who}: {line}" for line in _parts(event.content)]
        if event.error_code is not None:
            lines.append(f"{who} ! {event.error_code}")
        if event.actions.state_delta:
            lines.append(f"{who} sets {event.actions.state_delta}")
    return lines


def shown(request: LlmRequest) -> list[str]:
    """The contents of a request, a line per part."""
    return [f"{content.role}: {line}" for content in request.contents for line in _parts(content)]


def _parts(content: Content | None) -> list[str]:
    lines: list[str] = []
    for part in (content.parts if content else None) or ():
        if part.function_call is not None:
            args = ", ".join(f"{key}={value!r}" for key, value in (part.function_call.args or {}).items())
            lines.append(f"{part.function_call.name}({args})")
        elif part.function_response is not None:
            lines.append(f"{part.function_response.name} -> {part.function_response.response}")
        elif part.text is not None:
            lines.append(f"({part.text})" if part.thought else part.text)
        else:
            lines.append("?")
    return lines


def checkpoints(events: Iterable[Event]) -> list[tuple[str, str | None, JsonObject | str]]:
    """Authors, branches and progress of checkpoints."""
    found: list[tuple[str, str | None, JsonObject | str]] = []
    for event in events:
        if event.actions.end_of_agent:
            found.append((event.author, event.branch, "done"))
        elif event.actions.agent_state is not None:
            found.append((event.author, event.branch, event.actions.agent_state))
    return found
