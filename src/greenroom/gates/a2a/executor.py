"""An executor for servers that are built with A2A's SDK. Source of the names and the sequence of events: ADK 2.13.

The gate doesn't need it: its tasks are runs of the engine, and survive a crash. With the executor, the SDK stores the
tasks in its own store, and a run is one call of `execute`.
"""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import msgspec

from greenroom.errors import InvalidRequest, MissingExtra
from greenroom.records.base import JsonObject
from greenroom.records.content import Content, Part
from greenroom.records.declarative import Declarative
from greenroom.records.event import Event
from greenroom.records.run import AgentRunRequest, Run, RunConfig, RunError, RunStatus, StreamingMode
from greenroom.records.session import SessionKey
from greenroom.runner.runner import Runner

try:
    import a2a.types as a2a
    from a2a.server.agent_execution import AgentExecutor, RequestContext
    from a2a.server.events import EventQueue
    from google.protobuf.json_format import MessageToDict
except ImportError as error:
    raise MissingExtra("a2a", "a2a-sdk") from error

from greenroom.a2a.metadata import with_integers, without_internal
from greenroom.a2a.part_metadata import AggregationMode
from greenroom.a2a.parts import from_a2a_part, to_a2a_part
from greenroom.gates.a2a.handler import METADATA, NO_ANSWER, REQUEST, answers_of, header_of, with_words
from greenroom.gates.a2a.task_events import TaskEvent, TaskEvents, to_message, to_task

PartConverter: TypeAlias = Callable[[Any], Any]
"""From one part to another, to several, or to None, which leaves it out."""

_PAUSED = (a2a.TaskState.TASK_STATE_INPUT_REQUIRED, a2a.TaskState.TASK_STATE_AUTH_REQUIRED)
_log = logging.getLogger("greenroom.a2a")


@dataclass(frozen=True)
class ExecutorContext:
    """Context of the interceptors, which they get with each event."""

    app_name: str
    user_id: str
    session_id: str
    runner: Runner
    request: RequestContext
    """The SDK's request: the message with its ids, parts and metadata, the task and the caller."""


class ExecuteInterceptor(Declarative):
    """Hooks around an execution. Several are called in order, `after_agent` in reverse order."""

    before_agent: Callable[[RequestContext], Awaitable[RequestContext]] | None = None
    """Returns the request to execute, the given one or another."""
    after_event: Callable[[ExecutorContext, TaskEvent, Event], Awaitable[TaskEvent | list[TaskEvent] | None]] | None = (
        None
    )
    """Called with each update and the event that the update was made from; returns an update, a
    list of them, or None, which drops it."""
    after_agent: Callable[[ExecutorContext, a2a.TaskStatusUpdateEvent], Awaitable[a2a.TaskStatusUpdateEvent]] | None = (
        None
    )
    """Returns the last status."""


def convert_a2a_request_to_agent_run_request(
    request: RequestContext, part_converter: PartConverter = from_a2a_part
) -> AgentRunRequest:
    """The message as a run in the session of its context id, of the authenticated user or else of
    one that is named after the context. Raises InvalidRequest for a message without parts."""
    message = request.message
    context_id = request.context_id or ""
    parts = _converted(message.parts if message is not None else (), part_converter)
    if message is None or not parts:
        raise InvalidRequest("The message has no parts")

    metadata = without_internal(cast("JsonObject", with_integers(request.metadata)))
    return AgentRunRequest(
        user_id=request.call_context.user.user_name or f"A2A_USER_{context_id}",
        session_id=context_id,
        new_message=Content(role="user", parts=parts),
        streaming=True,
        custom_metadata={REQUEST: header_of(MessageToDict(message)), METADATA: metadata},
    )


def _converted(parts: Iterable[Any], convert: PartConverter) -> list[Any]:
    converted: list[Any] = []
    for part in parts:
        result = convert(part)
        if isinstance(result, list):
            converted += cast("list[Any]", result)
        elif result is not None:
            converted.append(result)
    return converted


class A2aAgentExecutorConfig(Declarative):
    """Options of an `A2aAgentExecutor`."""

    a2a_part_converter: PartConverter = from_a2a_part
    """Converts incoming parts."""
    gen_ai_part_converter: PartConverter = to_a2a_part
    """Converts outgoing parts."""
    request_converter: Callable[[RequestContext, PartConverter], AgentRunRequest] = (
        convert_a2a_request_to_agent_run_request
    )
    """Makes the run's request."""
    adk_event_converter: Callable[[Event, dict[str, str], str, str, PartConverter], Sequence[TaskEvent]] | None = None
    """Called with an event, a map that it may use during the execution, the ids of task and
    context, and the converter of parts; returns the updates to send."""
    execute_interceptors: list[ExecuteInterceptor] | None = None
    aggregation_mode: AggregationMode = AggregationMode.AS_IS
    """The way in which the agent's parts are sent. EXTERNAL_HANDOFF leaves out calls and sends
    responses as text, for clients that don't know the agent's tools; calls whose responses are
    awaited are always sent."""


class A2aAgentExecutor(AgentExecutor):
    """Executes A2A requests by a Runner. runner: or a function that makes it, also asynchronous, at the first request.

    use_legacy, force_new_version: without effect; updates always have ADK's newer form.
    """

    def __init__(
        self,
        *,
        runner: Runner | Callable[[], Runner | Awaitable[Runner]],
        config: A2aAgentExecutorConfig | None = None,
        use_legacy: bool = False,
        force_new_version: bool = False,
    ) -> None:
        self._runner = runner
        self._config = config or A2aAgentExecutorConfig()

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Sends the task if it is new, then its updates, and last a final or waiting status. Raises InvalidRequest."""
        for interceptor in self._config.execute_interceptors or ():
            if interceptor.before_agent is not None:
                context = await interceptor.before_agent(context)
        if not isinstance(self._runner, Runner):
            made = self._runner()
            self._runner = await made if inspect.isawaitable(made) else made
        await _Execution(self._runner, self._config, context, event_queue).execute()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Sends the last status; the SDK cancels the execution."""
        run = _run_of(context, RunStatus.CANCELLED)
        await event_queue.enqueue_event(to_message(TaskEvents(run, keeps_artifacts=False).status(run)))


def _run_of(context: RequestContext, status: RunStatus, app_name: str = "", user_id: str = "") -> Run:
    return Run(
        id=context.task_id or "",
        app_name=app_name,
        user_id=user_id,
        session_id=context.context_id or "",
        status=status,
        created_at=time.time(),
    )


class _Execution:
    def __init__(
        self, runner: Runner, config: A2aAgentExecutorConfig, context: RequestContext, queue: EventQueue
    ) -> None:
        self._runner = runner
        self._config = config
        self._context = context
        self._queue = queue
        self._request = config.request_converter(context, config.a2a_part_converter)
        self._message = self._request.new_message or Content(role="user", parts=[])
        self._key = SessionKey(runner.app_name, self._request.user_id, self._request.session_id)
        self._run = _run_of(context, RunStatus.RUNNING, runner.app_name, self._request.user_id)
        self._events = TaskEvents(self._run, keeps_artifacts=False, to_parts=self._to_parts)
        self._interceptors = config.execute_interceptors or ()
        self._seen: dict[str, str] = {}
        self._for_hooks = ExecutorContext(*self._key, runner=runner, request=context)

    def _to_parts(self, parts: Iterable[Part]) -> list[JsonObject]:
        sent = [made for part in parts if (made := self._config.aggregation_mode.apply(part)) is not None]
        return [MessageToDict(part) for part in _converted(sent, self._config.gen_ai_part_converter)]

    async def execute(self) -> None:
        task = self._context.current_task
        message = self._context.message
        session = await self._runner.services.sessions.get_session(**self._key._asdict())
        if session is None:
            session = await self._runner.services.sessions.create_session(**self._key._asdict())
        header = header_of(MessageToDict(message)) if message is not None else None

        if task is None:
            self._events.add_message(self._message.parts, header=header)
            queued = msgspec.structs.replace(self._run, status=RunStatus.QUEUED)
            await self._queue.enqueue_event(to_task(self._events.task(queued)))
        elif task.status.state in _PAUSED:
            for event in session.events:
                self._events.read(event)

            answers = answers_of(self._message.parts or [], session, self._events.open_calls)
            if answers is None:
                status = a2a.TaskStatus(state=task.status.state, message=task.status.message)
                status.message.parts.append(a2a.Part(text=NO_ANSWER))
                await self._queue.enqueue_event(
                    a2a.TaskStatusUpdateEvent(task_id=self._run.id, context_id=self._run.session_id, status=status)
                )
                return

            if header is not None:
                header = with_words(header, self._message.parts or [], answers)
            self._message.parts = answers
            self._events.add_message(answers, header=header)

        await self._queue.enqueue_event(to_message(self._events.status(self._run)))
        await self._end(await self._run_agent())

    async def _run_agent(self) -> Run:
        """The run at its end."""
        request = self._request
        status = RunStatus.SUCCEEDED
        error = None
        config = RunConfig(
            streaming_mode=StreamingMode.SSE if request.streaming else StreamingMode.NONE,
            custom_metadata=request.custom_metadata,
        )
        run = self._runner.run_message(
            user_id=request.user_id,
            session_id=request.session_id,
            new_message=self._message,
            state_delta=request.state_delta,
            invocation_id=request.invocation_id,
            run_config=config,
        )

        try:
            async with aclosing(run) as events:
                async for event in events:
                    if event.error_code is not None or event.error_message is not None:
                        error = RunError(code=event.error_code or "", message=event.error_message or "")
                    for update in await self._updates(event):
                        await self._queue.enqueue_event(update)
        except Exception as raised:  # of the agent, its tools and its callbacks: the client gets the text, as ADK's do
            _log.warning("the task %s failed", self._run.id, exc_info=True)
            error = RunError(code=type(raised).__name__, message=str(raised))

        if error is not None:
            status = RunStatus.FAILED
        elif self._events.open_calls:
            status = RunStatus.WAITING

        return msgspec.structs.replace(self._run, status=status, error=error, ended_at=time.time())

    async def _updates(self, event: Event) -> Sequence[TaskEvent]:
        updates: Sequence[TaskEvent] = [to_message(update) for update in self._events.read(event)]
        if (convert := self._config.adk_event_converter) is not None:
            updates = convert(event, self._seen, self._run.id, self._run.session_id, self._config.gen_ai_part_converter)
        for interceptor in self._interceptors:
            if interceptor.after_event is None:
                continue
            changed: list[TaskEvent] = []
            for update in updates:
                result = await interceptor.after_event(self._for_hooks, update, event)
                if isinstance(result, list):
                    changed += result
                elif result is not None:
                    changed.append(result)
            updates = changed

        return updates

    async def _end(self, run: Run) -> None:
        status = cast("a2a.TaskStatusUpdateEvent", to_message(self._events.status(run)))
        for interceptor in reversed(self._interceptors):
            if interceptor.after_agent is not None:
                status = await interceptor.after_agent(self._for_hooks, status)
        await self._queue.enqueue_event(status)
