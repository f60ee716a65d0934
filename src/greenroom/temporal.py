"""An activity for Temporal that runs an agent on a greenroom server.

An activity may be attempted several times, and all its attempts share one run: its idempotency key is made of the
workflow's run and the activity's id. For example, the worker dies in the second of three steps:

    attempt 1   starts run r-1, reads events 1 to 3       heartbeat: r-1, 3
                the worker is killed                      run r-1 continues, and stores events 4 and 5
    attempt 2   follows run r-1 from event 4 to its end   heartbeat: r-1, 5; the result is read from the log
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from greenroom.client.async_client import AsyncClient
from greenroom.client.run_stream import RunStream
from greenroom.errors import (
    CallerError,
    GreenroomError,
    MissingExtra,
    SessionExists,
    SessionNotFound,
    TooManyRequests,
    Unavailable,
)
from greenroom.log.state import kept_events, log_state_of
from greenroom.records.content import Content, FunctionResponse, Part
from greenroom.records.copy_on_write import CopyOnWriteList
from greenroom.records.event import Event
from greenroom.records.run import RETRYABLE, Run, RunStatus
from greenroom.records.state import REMOVED

try:
    from temporalio import activity
    from temporalio.client import WorkflowExecutionStatus
    from temporalio.exceptions import ApplicationError
    from temporalio.service import RPCError, RPCStatusCode
except ImportError as missing:
    raise MissingExtra("temporal", missing.name or "temporalio") from missing

_HEARTBEAT_SECONDS = 10.0
"""The pause between heartbeats of activities without a `heartbeat_timeout`."""


@dataclass(frozen=True)
class AgentResponse:
    """The response to a call for which a run waits; `AgentRequest.respond` makes it."""

    id: str
    name: str
    response: dict[str, Any]


@dataclass(frozen=True)
class AgentRequest:
    """A call for whose response a run waits: an approval, a login, input, or a long-running tool."""

    id: str
    name: str
    """Of the tool; `adk_request_confirmation` for an approval."""
    args: dict[str, Any]

    def respond(self, response: dict[str, Any]) -> AgentResponse:
        """Answers the call; `{"confirmed": True}` approves."""
        return AgentResponse(self.id, self.name, response)


@dataclass(frozen=True)
class AgentRunInput:
    """A message to an agent."""

    app_name: str
    user_id: str
    message: str | dict[str, Any] | None = None
    """A text, or a content as in the HTTP interface: `{"parts": [{"text": …}, {"inlineData": …}]}`."""
    session_id: str | None = None
    """The conversation; it is created if there is none. By default the activity has a session of its own."""
    responses: list[AgentResponse] = field(default_factory=list[AgentResponse])
    """Responses to the requests of an earlier result; they continue its run."""
    state_delta: dict[str, Any] | None = None
    """Changes of the session's state before the agent begins."""
    deadline_seconds: float | None = None
    """The server fails the run after this time, whatever becomes of the workflow."""

    def content(self) -> Content | None:
        """The user's message. Raises InvalidRequest."""
        if isinstance(self.message, dict):
            return Content.model_validate({"role": "user", **self.message})

        parts = [
            Part(function_response=FunctionResponse(id=one.id, name=one.name, response=one.response))
            for one in self.responses
        ]
        if self.message is not None:
            parts.append(Part(text=self.message))
        return Content(role="user", parts=parts) if parts else None


@dataclass(frozen=True)
class AgentTokens:
    """Tokens of all model calls of a run."""

    input_tokens: int = 0
    output_tokens: int = 0


@dataclass(frozen=True)
class AgentRunResult:
    """The outcome of a run that has succeeded, or that waits for the responses to its requests."""

    run_id: str
    session_id: str
    status: str
    """`succeeded` or `waiting`."""
    text: str = ""
    """The last answer that has a text."""
    output: Any = None
    """The last structured output, as of a workflow's last node."""
    state_delta: dict[str, Any] = field(default_factory=dict[str, Any])
    """The changes of the session's state by the run; None for a key that was removed."""
    requests: list[AgentRequest] = field(default_factory=list[AgentRequest])
    """The requests for which the run waits."""
    usage: AgentTokens = AgentTokens()


class AgentActivity:
    """Runs agents of one server as activities: `Worker(…, activities=[AgentActivity(client).run])`."""

    def __init__(self, client: AsyncClient, *, poll_seconds: float = 5.0) -> None:
        """poll_seconds: how often the activity looks whether a run that sleeps has continued."""
        self._client = client
        self._poll_seconds = poll_seconds

    @activity.defn(name="run_agent")
    async def run(self, request: AgentRunInput) -> AgentRunResult:
        """Sends a message to an agent and returns its answer.

        Raises ApplicationError, with the code of the error as its type, and the ids of the session and of the run in
        its details. It is retryable if the server can't be reached, refuses requests for now, or has an internal error;
        a run that has failed or was cancelled is not.
        """
        attempt = _Attempt(self._client, request, self._poll_seconds)
        beating = asyncio.create_task(attempt.beat())
        try:
            return await attempt.result()
        except asyncio.CancelledError:
            await attempt.end_cancelled()
            raise
        except GreenroomError as error:
            raise attempt.failure(error) from error
        finally:
            beating.cancel()
            await attempt.close()


class _Attempt:
    """One attempt of an activity.

    run_id, last_seq: the heartbeat, which is first that of the attempt before.
    """

    def __init__(self, client: AsyncClient, request: AgentRunInput, poll_seconds: float) -> None:
        self._client = client
        self._request = request
        self._poll_seconds = poll_seconds
        self._info = activity.info()
        self._key = f"temporal-{self._info.workflow_run_id or self._info.activity_run_id}-" + quote(
            self._info.activity_id, safe=""
        )
        self.session_id = request.session_id or self._key
        self.run_id: str | None = None
        self.last_seq: int | None = None
        if len(self._info.heartbeat_details) == 2:
            self.run_id, self.last_seq = self._info.heartbeat_details
        self._starting: asyncio.Task[RunStream] | None = None

    async def beat(self) -> None:
        """Sends heartbeats until it is cancelled. Their replies bring cancellations."""
        timeout = self._info.heartbeat_timeout
        pause = timeout.total_seconds() / 3 if timeout else _HEARTBEAT_SECONDS
        while True:
            self._send_heartbeat()
            await asyncio.sleep(pause)

    def _send_heartbeat(self) -> None:
        if self._info.is_local:
            return  # Temporal's server doesn't know it before its end
        if self.run_id is not None:
            activity.heartbeat(self.run_id, self.last_seq)
        else:
            activity.heartbeat()

    async def result(self) -> AgentRunResult:
        """Starts the run, or follows the one that an earlier attempt has started, until it ends or needs somebody."""
        if self.run_id is None:
            self._starting = asyncio.create_task(self._start())
            stream = await asyncio.shield(self._starting)
        else:
            stream = await self._client.follow(self.run_id, after=self.last_seq)

        looked_at: int | None = None
        while True:
            run = await self._read(stream)
            if run.status is not RunStatus.WAITING:
                return await self._result_of(run)
            if looked_at is None or looked_at != self.last_seq:
                result = await self._result_of(run)
                if result.requests:
                    return result
                looked_at = self.last_seq

            # It sleeps until a time or a signal.
            await asyncio.sleep(self._poll_seconds)
            stream = await self._client.follow(run.id, after=self.last_seq)

    async def _start(self) -> RunStream:
        request = self._request
        content = request.content()

        async def run() -> RunStream:
            return await self._client.run(
                app_name=request.app_name,
                user_id=request.user_id,
                session_id=self.session_id,
                message=content,
                state_delta=request.state_delta,
                deadline_seconds=request.deadline_seconds,
                idempotency_key=self._key,
            )

        try:
            return await run()
        except SessionNotFound:
            if request.responses:
                raise

        with contextlib.suppress(SessionExists):
            await self._client.create_session(
                app_name=request.app_name, user_id=request.user_id, session_id=self.session_id
            )
        return await run()

    async def _read(self, stream: RunStream) -> Run:
        """Reads a stream to its end and returns the record. Raises ApplicationError for a run that has failed."""
        self.run_id = stream.run.id
        self.last_seq = stream.last_seq
        self._send_heartbeat()
        try:
            async for _ in stream:
                self.last_seq = stream.last_seq
                self._send_heartbeat()
        except GreenroomError:
            if stream.run.status not in RETRYABLE:
                raise
        finally:
            await stream.aclose()

        run = stream.run
        self.last_seq = stream.last_seq
        if run.status in RETRYABLE:
            code = run.error.code if run.error is not None else "RunCancelled"
            message = run.error.message if run.error is not None else f"Run {run.id!r} was cancelled"
            raise self._application_error(code, message, is_retryable=False)
        return run

    async def _result_of(self, run: Run) -> AgentRunResult:
        """Reads the result from the run's events in the log, since earlier attempts have read some of them."""
        events = CopyOnWriteList[Event]()
        after = run.after_seq
        while True:
            page = await self._client.list_events(
                app_name=run.app_name, user_id=run.user_id, session_id=run.session_id, after=after
            )
            if not page.events:
                break
            events.extend(event for event in page.events if event.invocation_id == run.id)
            after = page.last_seq

        text = ""
        output: Any = None
        state_delta: dict[str, Any] = {}
        for event in kept_events(events):
            for key, value in event.actions.state_delta.items():
                state_delta[key] = None if value == REMOVED else value
            if event.author == "user":
                continue
            if event.output is not None:
                output = event.output
            if event.content is not None and event.is_final_response():
                text = event.content.text() or text

        usage = AgentTokens()
        if run.usage is not None:
            usage = AgentTokens(input_tokens=run.usage.input_tokens, output_tokens=run.usage.output_tokens)
        requests: list[AgentRequest] = []
        if run.status is RunStatus.WAITING:
            open_calls = log_state_of(events).open_calls()
            requests = [
                AgentRequest(id=call_id, name=call.name or "", args=call.args or {})
                for call_id, call in open_calls.items()
                if call_id not in run.wake_ups
            ]

        return AgentRunResult(
            run_id=run.id,
            session_id=run.session_id,
            status=run.status.value,
            text=text,
            output=output,
            state_delta=state_delta,
            requests=requests,
            usage=usage,
        )

    async def end_cancelled(self) -> None:
        """Cancels the run if nobody needs it any more, and returns when it has ended.

        It is left to the next attempt if the worker stops, or the activity is paused or reset. Raises ApplicationError
        if the run could not be cancelled.
        """
        details = activity.cancellation_details()
        if details is None:
            return
        is_gone = (details.not_found or details.timed_out) and not await self._is_pending()
        if not details.cancel_requested and not is_gone:
            return

        try:
            if self._starting is not None:
                self.run_id = (await self._starting).run.id
            if self.run_id is not None:
                await self._client.cancel_run(self.run_id)
        except CallerError:
            pass  # there is no run
        except GreenroomError as error:
            raise self.failure(error) from error

    async def _is_pending(self) -> bool:
        """Whether the workflow still waits for the activity: then this attempt is only an outdated one."""
        info = self._info
        if info.workflow_id is None:
            return True
        handle = activity.client().get_workflow_handle(info.workflow_id, run_id=info.workflow_run_id)
        try:
            workflow = await handle.describe()
        except RPCError as error:
            return error.status is not RPCStatusCode.NOT_FOUND
        if workflow.status is not WorkflowExecutionStatus.RUNNING:
            return False
        return any(one.activity_id == info.activity_id for one in workflow.raw_description.pending_activities)

    def failure(self, error: GreenroomError) -> ApplicationError:
        """Translates an error of a request to the server."""
        is_retryable = isinstance(error, (TooManyRequests, Unavailable)) or (
            error.status >= 500 and not isinstance(error, CallerError)
        )
        return self._application_error(error.code, error.detail, is_retryable=is_retryable)

    def _application_error(self, code: str, message: str, *, is_retryable: bool) -> ApplicationError:
        ids = {"session_id": self.session_id, "run_id": self.run_id}
        return ApplicationError(message, ids, type=code, non_retryable=not is_retryable)

    async def close(self) -> None:
        if self._starting is not None and not self._starting.done():
            self._starting.cancel()
            await asyncio.gather(self._starting, return_exceptions=True)
