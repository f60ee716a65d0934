"""Answers A2A's requests by the run engine. Nothing is kept here: tasks are read from runs and their sessions' logs."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC

import a2a.types as a2a
import msgspec
from a2a.server.context import ServerCallContext
from a2a.server.request_handlers.request_handler import (
    RequestHandler,
    validate_request_params,  # pyright: ignore[reportUnknownVariableType]
)
from a2a.utils import errors
from a2a.utils.task import apply_history_length, validate_history_length, validate_page_size
from google.protobuf.json_format import ParseDict, ParseError
from msgspec import UNSET

from greenroom.a2a.metadata import with_integers, without_internal
from greenroom.a2a.parts import from_json_parts
from greenroom.errors import (
    ApprovalRefused,
    AppVersionChanged,
    GreenroomError,
    IdempotencyConflict,
    InvalidRequest,
    NotApprover,
    RequestClosed,
    RunNotFound,
    SessionBusy,
    SessionFull,
    SessionNotFound,
)
from greenroom.event_streams.stream import LiveItem, RunEnded
from greenroom.gates.a2a import push
from greenroom.gates.a2a.requests import SendConfiguration, SendRequest, SentMessage, parse
from greenroom.gates.a2a.subscription import TaskSubscription, is_terminal
from greenroom.gates.a2a.task_events import (
    REJECTED,
    REQUEST,
    STATES,
    TaskEvent,
    TaskEvents,
    parts_of,
    read_run,
    to_message,
    to_task,
)
from greenroom.gates.run_start import NewSession, find_session, response_part, seconds, start
from greenroom.records import wire
from greenroom.records.base import JsonObject
from greenroom.records.content import Content, FunctionCall, Part
from greenroom.records.human_requests import REQUESTS
from greenroom.records.run import AgentRunRequest, Run, RunFilter, RunStatus
from greenroom.records.session import GetSessionConfig, Session, SessionKey
from greenroom.runs.engine import Attachment
from greenroom.runs.push_notifications import state_of
from greenroom.server.access.identity import EVERYBODY
from greenroom.server.endpoint import MAX_ID_BYTES
from greenroom.server.request_context import RequestContext
from greenroom.server.routes.run import PAGE_LIMIT

CALL = "greenroom.call"
"""The key of the `A2aCall` in an ASGI scope, and in the state of the SDK's context."""

START_AT = "greenroom:startAt"
DELAY_SECONDS = "greenroom:delaySeconds"
"""Keys of a message's metadata with the time at which its run starts."""

METADATA = "a2a_metadata"
"""The key of a run's custom metadata that has the metadata of the request. Source: ADK."""

DEFAULT_PAGE_SIZE = 50
NO_ANSWER = "The message must contain a function response to the open call"

_ERRORS: dict[type[GreenroomError], type[errors.A2AError]] = {
    RunNotFound: errors.TaskNotFoundError,
    SessionNotFound: errors.TaskNotFoundError,
    InvalidRequest: errors.InvalidParamsError,
    ApprovalRefused: errors.InvalidParamsError,
    NotApprover: errors.InvalidParamsError,
    RequestClosed: errors.InvalidParamsError,
    IdempotencyConflict: errors.InvalidParamsError,
    SessionBusy: errors.UnsupportedOperationError,
    SessionFull: errors.UnsupportedOperationError,
    AppVersionChanged: errors.UnsupportedOperationError,
}
_STATUSES = {a2a.TaskState.Value(state): status for status, state in STATES.items()} | {
    a2a.TaskState.TASK_STATE_AUTH_REQUIRED: RunStatus.WAITING,
    a2a.TaskState.Value(REJECTED): RunStatus.SUCCEEDED,
}


@dataclass
class A2aCall:
    """An A2A request and what its handler needs."""

    context: RequestContext
    card: Callable[[RequestContext], Awaitable[a2a.AgentCard]]
    """Builds the app's card."""
    is_followed: bool = True
    """False where a stream ends after the task, since its endpoint writes the rest."""
    attachments: list[Attachment] = field(default_factory=list[Attachment])
    """Subscriptions that are closed with the reply."""
    events: TaskEvents | None = None
    """The updates of the task that the last attachment streams."""
    failed: errors.A2AError | None = None
    """The error of a message that was sent without the SDK, which encodes the error."""
    refused: GreenroomError | None = None
    """An error that has an HTTP status but no A2A code."""
    is_subscription: bool = False
    """Whether the stream lasts while the task waits."""

    @property
    def app_name(self) -> str:
        return self.context.path["app_name"]

    def close(self) -> None:
        for attachment in self.attachments:
            attachment.close()

    @contextmanager
    def translated_errors(self) -> Generator[None]:
        try:
            yield
        except GreenroomError as error:
            kind = _ERRORS.get(type(error))
            if kind is not None:
                raise kind(message=error.detail) from error
            self.refused = error
            raise errors.InternalError(message=error.detail) from error

    async def run(self, task_id: str) -> Run:
        """The run of a task; the one that has read the message, if that was sent to another task. Raises RunNotFound,
        also for another app's run.
        """
        run = await self.context.engine.get(task_id)
        if run.app_name != self.app_name:
            raise RunNotFound(task_id)
        if run.read_at_seq is not None and run.steered_into is not None:
            return await self.run(run.steered_into)
        return run

    async def read(self, run: Run, *, keeps_artifacts: bool = True) -> tuple[TaskEvents, int]:
        return await read_run(self.context.sessions.as_service(), run, keeps_artifacts=keeps_artifacts)

    async def task(self, run: Run, *, keeps_artifacts: bool = True) -> a2a.Task:
        events, _ = await self.read(run, keeps_artifacts=keeps_artifacts)
        return to_task(events.task(run))

    async def send(self, request: SendRequest) -> JsonObject:
        """Starts or continues the task of a message, and waits for it unless the client does not.
        Returns the response: the task, or the agent's bare message."""
        configuration = request.configuration
        with self.translated_errors():
            started = await _start(self, request, attach=not configuration.return_immediately)
            if started.unanswered is not None:
                return {"task": started.unanswered}
            run = started.run
            if started.attachment is not None:
                run = await _ended(started.attachment)
                run = await self.run(run.id)
            events, _ = await self.read(run)
            if run.status is RunStatus.SUCCEEDED and events.bare_message is not None:
                return {"message": events.bare_message}
            return {"task": events.task(run, history_length=configuration.history_length)}

    async def send_stream(self, request: SendRequest) -> JsonObject:
        """Starts or continues the task of a message, and attaches to it. Returns the task as it begins."""
        with self.translated_errors():
            started = await _start(self, request, attach=True, streaming=True)
            if started.unanswered is not None:
                return started.unanswered
            self.events = started.events
            return started.events.task(started.run, history_length=request.configuration.history_length)

    async def follow(self) -> AsyncGenerator[TaskEvent]:
        """Yields what follows the task in a stream; nothing where the endpoint writes it."""
        events = self.events
        with self.translated_errors():
            while events is not None and self.is_followed:
                for item in await self.attachments[-1].next_batch():
                    for update in self.updates(item, events):
                        yield to_message(update)
                    if self.is_last(item):
                        return

    def updates(self, item: LiveItem, events: TaskEvents) -> list[JsonObject]:
        """An item of the task's stream as StreamResponses."""
        if isinstance(item, RunEnded):
            return [events.status(item.run)]
        updates = events.read(item.event)
        if self.is_subscription and item.event.author == "user":
            updates = [events.working()]
        return updates

    def is_last(self, item: LiveItem) -> bool:
        """True if the stream ends with this item."""
        return isinstance(item, RunEnded) and (not self.is_subscription or is_terminal(item.run))


@dataclass
class _Started:
    """A run that a message started or continued."""

    run: Run
    events: TaskEvents
    attachment: Attachment | None = None
    unanswered: JsonObject | None = None
    """The task, if the message doesn't answer its open request."""


def _call(context: ServerCallContext) -> A2aCall:
    call: A2aCall = context.state[CALL]
    if call.failed is not None:
        raise call.failed
    return call


class RunHandler(RequestHandler):
    """The SDK's handler of requests, for all apps: each request has its `A2aCall`."""

    @validate_request_params
    async def on_message_send(
        self, params: a2a.SendMessageRequest, context: ServerCallContext
    ) -> a2a.Task | a2a.Message:
        response = await _call(context).send(parse(params))
        if "message" in response:
            return ParseDict(wire.to_plain(response["message"]), a2a.Message())
        return to_task(response["task"])

    @validate_request_params
    async def on_message_send_stream(
        self, params: a2a.SendMessageRequest, context: ServerCallContext
    ) -> AsyncGenerator[TaskEvent]:
        call = _call(context)
        yield to_task(await call.send_stream(parse(params)))
        async for update in call.follow():
            yield update

    @validate_request_params
    async def on_subscribe_to_task(
        self, params: a2a.SubscribeToTaskRequest, context: ServerCallContext
    ) -> AsyncGenerator[TaskEvent]:
        call = _call(context)
        with call.translated_errors():
            run = await call.run(params.id)
            if is_terminal(run):
                raise errors.UnsupportedOperationError(message=f"The task {run.id} has ended")
            events, seq = await call.read(run)
            call.attachments.append(TaskSubscription(call.context.engine, run, after=seq))
            call.events = events
            call.is_subscription = True
            yield to_task(events.task(run))

        async for update in call.follow():
            yield update

    @validate_request_params
    async def on_get_task(self, params: a2a.GetTaskRequest, context: ServerCallContext) -> a2a.Task:
        validate_history_length(params)
        call = _call(context)
        with call.translated_errors():
            return apply_history_length(await call.task(await call.run(params.id)), params)

    @validate_request_params
    async def on_list_tasks(self, params: a2a.ListTasksRequest, context: ServerCallContext) -> a2a.ListTasksResponse:
        validate_history_length(params)
        if params.HasField("page_size"):
            validate_page_size(params.page_size)
        size = params.page_size or DEFAULT_PAGE_SIZE
        call = _call(context)
        if params.status and params.status not in _STATUSES:
            return a2a.ListTasksResponse(page_size=size)

        run_filter = RunFilter(app_names=[call.app_name], session_id=params.context_id or None)
        if params.status:
            run_filter.statuses = [_STATUSES[params.status]]
        after = 0.0
        if params.HasField("status_timestamp_after"):
            after = params.status_timestamp_after.ToDatetime(tzinfo=UTC).timestamp()
        with call.translated_errors():
            counted = await call.context.engine.list_runs(run_filter, limit=PAGE_LIMIT)
            page = await call.context.engine.list_runs(run_filter, limit=size, page_token=params.page_token or None)
            tasks = [
                apply_history_length(await call.task(run, keeps_artifacts=params.include_artifacts), params)
                for run in page.runs
                if (run.ended_at or run.started_at or run.created_at) >= after and run.steered_into is None
            ]

        matching = [task for task in tasks if not params.status or task.status.state == params.status]
        return a2a.ListTasksResponse(
            tasks=matching, next_page_token=page.next_page_token or "", page_size=size, total_size=len(counted.runs)
        )

    @validate_request_params
    async def on_cancel_task(self, params: a2a.CancelTaskRequest, context: ServerCallContext) -> a2a.Task:
        call = _call(context)
        with call.translated_errors():
            run = await call.run(params.id)
            if is_terminal(run):
                raise errors.TaskNotCancelableError
            run = await call.context.engine.cancel(run.id, reason="requested by a client")
            return await call.task(run)

    async def on_get_extended_agent_card(
        self, params: a2a.GetExtendedAgentCardRequest, context: ServerCallContext
    ) -> a2a.AgentCard:
        call = _call(context)
        with call.translated_errors():
            card = await call.card(call.context)
        if not card.capabilities.extended_agent_card:
            raise errors.UnsupportedOperationError(message="This agent has no extended card")
        return card

    @validate_request_params
    async def on_create_task_push_notification_config(
        self, params: a2a.TaskPushNotificationConfig, context: ServerCallContext
    ) -> a2a.TaskPushNotificationConfig:
        call = _call(context)
        with call.translated_errors():
            run = await call.run(params.task_id)
            return await push.save(call.context, run, params, reported=state_of(run))

    @validate_request_params
    async def on_get_task_push_notification_config(
        self, params: a2a.GetTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> a2a.TaskPushNotificationConfig:
        call = _call(context)
        with call.translated_errors():
            run = await call.run(params.task_id)
            configs = {config.id: config for config in await push.list_of(call.context, run)}
        if params.id not in configs:
            raise errors.TaskNotFoundError(message=f"The task has no push notification configuration {params.id!r}")
        return configs[params.id]

    @validate_request_params
    async def on_list_task_push_notification_configs(
        self, params: a2a.ListTaskPushNotificationConfigsRequest, context: ServerCallContext
    ) -> a2a.ListTaskPushNotificationConfigsResponse:
        call = _call(context)
        with call.translated_errors():
            configs = await push.list_of(call.context, await call.run(params.task_id))
        return a2a.ListTaskPushNotificationConfigsResponse(configs=configs)

    @validate_request_params
    async def on_delete_task_push_notification_config(
        self, params: a2a.DeleteTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> None:
        call = _call(context)
        with call.translated_errors():
            run = await call.run(params.task_id)
            await call.context.webhooks.delete_push_config(run.id, params.id)


async def _ended(attachment: Attachment) -> Run:
    """The run at its end."""
    try:
        while True:
            for item in await attachment.next_batch():
                if isinstance(item, RunEnded):
                    return item.run
    finally:
        attachment.close()


async def _start(call: A2aCall, request: SendRequest, *, attach: bool, streaming: bool = False) -> _Started:
    """Starts the run of a message, or continues the one of its task."""
    message = request.message
    context = call.context
    config = _push_config(request.configuration)
    if config is not None:
        push.check(context, config)
    parts = from_json_parts(message.parts)
    if not parts:
        raise errors.InvalidParamsError(message="The message has no parts")

    await _check_media_types(call, message)
    header = header_of(msgspec.to_builtins(msgspec.structs.replace(message, parts=[])))

    earlier_events: TaskEvents | None = None
    if message.task_id:
        earlier = await _run_of_task(call, message)
        if earlier.status is RunStatus.RUNNING:
            run_request = _run_request(request, earlier.session_key, parts, header, streaming=streaming)
            started = await _steer(call, run_request, earlier, message, attach=attach)
            if config is not None:
                await push.save(context, started.run, config)
            return started
        key = SessionKey(earlier.app_name, earlier.user_id, earlier.session_id)
        session = await find_session(context, key)
        earlier_events, _ = await call.read(earlier)
        answers = answers_of(parts, session, earlier_events.open_calls)
        if answers is None:
            return _Started(earlier, earlier_events, unanswered=earlier_events.task(earlier, note=NO_ANSWER))

        header = with_words(header, parts, answers)
        parts = answers
    else:
        key = _session_key(call, message)
        session = await context.sessions.get_session(**key._asdict(), config=GetSessionConfig(num_recent_events=1))

    run_request = _run_request(request, key, parts, header, streaming=streaming)
    # A context that the server chooses differs with each attempt, so only the others can be repeated.
    repeatable = message.context_id or message.task_id
    run, attachment = await start(
        context,
        run_request,
        new_session=NewSession() if session is None else None,
        attach=attach,
        idempotency_key=f"a2a:{message.message_id}" if repeatable else None,
    )
    if attachment is not None:
        call.attachments.append(attachment)
    if config is not None:
        await push.save(context, run, config)
    events = TaskEvents(run, keeps_artifacts=False) if earlier_events is None else earlier_events
    events.add_message(parts, header=header)
    return _Started(run, events, attachment)


def _run_request(
    request: SendRequest, key: SessionKey, parts: list[Part], header: JsonObject, *, streaming: bool
) -> AgentRunRequest:
    metadata = request.message.metadata or JsonObject()
    return AgentRunRequest(
        **key._asdict(),
        new_message=Content(role="user", parts=parts),
        streaming=streaming,
        start_at=seconds(metadata, START_AT, location=("message", "metadata")),
        delay_seconds=seconds(metadata, DELAY_SECONDS, location=("message", "metadata")),
        custom_metadata={REQUEST: header, METADATA: without_internal(with_integers(request.metadata))},
    )


async def _steer(
    call: A2aCall, run_request: AgentRunRequest, task: Run, message: SentMessage, *, attach: bool
) -> _Started:
    """Sends a message to a task that is working. If that ends first, the message starts a new task.

    A stream follows the task of the message; other requests wait for the task that has read it.
    """
    engine = call.context.engine
    is_stream = run_request.streaming
    run_request.multitask_strategy = "steer"
    run, attachment = await start(
        call.context,
        run_request,
        attach=attach and not is_stream,
        idempotency_key=f"a2a:{message.message_id}",
    )
    followed = task if run.steered_into == task.id else run
    events, seq = await call.read(followed)
    if is_stream:
        attachment = await engine.attach(followed.id, after=seq)
    if attachment is not None:
        call.attachments.append(attachment)
    return _Started(await engine.get(followed.id), events, attachment)


async def _run_of_task(call: A2aCall, message: SentMessage) -> Run:
    """The run of the message's task, which must work, or wait for a message. Raises RunNotFound and A2A's errors."""
    run = await call.run(message.task_id)
    if message.context_id and message.context_id != run.session_id:
        raise errors.InvalidParamsError(message=f"The task is of the context {run.session_id!r}")
    if run.status not in (RunStatus.WAITING, RunStatus.RUNNING):
        state = "has ended" if run.status.is_over else "is queued"
        raise errors.UnsupportedOperationError(message=f"The task {run.id} {state}")
    return run


def _session_key(call: A2aCall, message: SentMessage) -> SessionKey:
    """The session of a message without a task. Without authentication, each context has its own user."""
    identity = call.context.identity

    def key_of(context_id: str) -> SessionKey:
        user_id = f"A2A_USER_{context_id}" if identity is EVERYBODY else identity.subject
        return SessionKey(call.app_name, user_id, context_id)

    given = message.context_id
    if "\x00" in given or len(given.encode()) > MAX_ID_BYTES:
        raise errors.InvalidParamsError(message=f"contextId must be at most {MAX_ID_BYTES} bytes long, without NUL")
    return key_of(given) if given else call.context.new_session_key(key_of)


async def _check_media_types(call: A2aCall, message: SentMessage) -> None:
    """Raises ContentTypeNotSupportedError for a media type that the card doesn't list, as the SDK's servers do."""
    media_types = {part.media_type for part in message.parts if part.media_type}
    if not media_types:
        return
    card = await call.card(call.context)
    modes = {mode for skill in card.skills for mode in skill.input_modes} | set(card.default_input_modes)
    if modes and (unknown := sorted(media_types - modes)):
        listed = ", ".join(sorted(modes))
        raise errors.ContentTypeNotSupportedError(message=f"The card lists {listed}, not {', '.join(unknown)}")


def _push_config(configuration: SendConfiguration) -> a2a.TaskPushNotificationConfig | None:
    config = configuration.task_push_notification_config
    if config is UNSET:
        return None
    try:
        return ParseDict(config, a2a.TaskPushNotificationConfig(), ignore_unknown_fields=True)
    except ParseError as error:
        raise errors.InvalidParamsError(message=str(error)) from None


def header_of(message: JsonObject) -> JsonObject:
    """The message without its parts, which are the content."""
    return without_internal(with_integers({key: entry for key, entry in message.items() if key != "parts"}))


def with_words(header: JsonObject, parts: list[Part], answers: list[Part]) -> JsonObject:
    """The header of a message whose text has become the response to a call: it keeps the parts for the history."""
    is_text_kept = any(part.text for part in answers) or not any(part.text for part in parts)
    return header if is_text_kept else {**header, "parts": parts_of(parts)}


def answers_of(parts: list[Part], session: Session | None, open_calls: Mapping[str, FunctionCall]) -> list[Part] | None:
    """The parts with responses to open calls; None if they have none. A text answers a call of a
    tool, but neither approves a call nor logs in."""
    answers: list[Part] = []
    for part in parts:
        answer = part.function_response
        if answer is None:
            answers.append(part)
        else:
            answers.append(response_part(session, answer.id or "", answer.response or {}))

    if any(part.function_response is not None for part in answers) or not open_calls:
        return answers

    call_id, call = list(open_calls.items())[-1]
    text = "".join(part.text or "" for part in parts)
    if call.name in REQUESTS or not text:
        return None
    return [response_part(session, call_id, {"result": text}), *(part for part in parts if not part.text)]
