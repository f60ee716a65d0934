"""Running a workflow, and what its events say in short lines."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from greenroom.agents.agent import BaseAgent
from greenroom.records import wire
from greenroom.records.base import JsonObject
from greenroom.records.content import Content, FunctionResponse, Part
from greenroom.records.event import Event
from greenroom.runner.in_memory import InMemoryRunner


class Walk:
    """A session with a workflow. error: what the newest run raised."""

    def __init__(self, root: BaseAgent, *, state: JsonObject | None = None) -> None:
        self.runner = InMemoryRunner(node=root)
        self._key: dict[str, Any] = {"app_name": self.runner.app_name, "user_id": "ada", "session_id": "s-1"}
        self._state = state
        self.error: BaseException | None = None
        self.invocation_id = ""

    async def go(self, message: str | Content | None = "go", **options: Any) -> list[Event]:
        """The events of one run, without the checkpoints. What it raises is in `error`."""
        if await self.runner.session_service.get_session(**self._key) is None:
            await self.runner.session_service.create_session(**self._key, state=self._state)
        content = Content(role="user", parts=[Part(text=message)]) if isinstance(message, str) else message
        events: list[Event] = []
        self.error = None
        try:
            async for event in self.runner.run_async(user_id="ada", session_id="s-1", new_message=content, **options):
                events.append(event)
        except Exception as error:
            self.error = error
        if events:
            self.invocation_id = events[-1].invocation_id
        return events

    async def answer(self, request_id: str, value: Any) -> list[Event]:
        response = value if isinstance(value, dict) else {"result": value}
        part = Part(function_response=FunctionResponse(id=request_id, name="adk_request_input", response=response))
        return await self.go(Content(role="user", parts=[part]))

    async def log(self) -> list[Event]:
        session = await self.runner.session_service.get_session(**self._key)
        return [] if session is None else list(session.events)

    async def state(self) -> JsonObject:
        session = await self.runner.session_service.get_session(**self._key)
        return {} if session is None else dict(session.state)


def lines_of(events: Iterable[Event]) -> list[str]:
    """A line per event: the path below the workflow, the branch, and what the event holds."""
    lines: list[str] = []
    for event in events:
        path = (event.node_path or event.author).partition("/")
        line = [path[2] or path[0]]
        if event.branch:
            line.append(f"[{event.branch}]")
        if event.output is not None:
            line.append(f"= {event.output!r}")
        if event.content is not None:
            for part in event.content.parts or ():
                call, response = part.function_call, part.function_response
                line.append(repr(part.text) if call is None and response is None else f"{(call or response).name}()")  # type: ignore
        if event.actions.state_delta:
            line.append(f"sets {event.actions.state_delta}")
        if event.actions.route is not None:
            line.append(f"-> {event.actions.route}")
        if event.error_code is not None:
            line.append(f"! {event.error_code}")
        lines.append(" ".join(line))
    return lines


def plain(event: Event) -> JsonObject:
    """As JSON, without what is different each time, and without empty maps."""
    found: JsonObject = wire.to_plain(event)
    for name in ("id", "timestamp", "invocationId", "finishReason"):
        found.pop(name, None)
    found["actions"] = {key: value for key, value in found["actions"].items() if value}
    return {key: value for key, value in found.items() if value != {}}
