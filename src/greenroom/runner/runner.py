"""Runs an app's agents in a session: a message in, events out."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing
from functools import partial
from typing import Self

import msgspec

from greenroom.agents.agent import BaseAgent
from greenroom.agents.llm_agent import check_root, resources_of
from greenroom.apps.app import App
from greenroom.artifacts.service import BaseArtifactService
from greenroom.credentials.in_memory import InMemoryCredentialService
from greenroom.credentials.service import BaseCredentialService
from greenroom.errors import AgentConfigError, GreenroomError, RunCancelled, SessionNotFound
from greenroom.event_streams.stream import EventStream
from greenroom.invocation.context import InvocationContext, Services, Steering
from greenroom.invocation.live_requests import LiveRequestQueue
from greenroom.invocation.sleep import SignalUrlMaker
from greenroom.log.progress import RunProgress
from greenroom.log.state import log_state_of
from greenroom.memory.service import BaseMemoryService
from greenroom.plugins.plugin import CLOSE_SECONDS, BasePlugin, PluginManager
from greenroom.records.audit import AuditEntry
from greenroom.records.base import JsonObject
from greenroom.records.content import Content, UserContent
from greenroom.records.event import Event, EventActions
from greenroom.records.genai_types import own
from greenroom.records.identifiers import new_invocation_id
from greenroom.records.run import Caller, RunConfig, RunStatus, StreamingMode
from greenroom.records.session import Session
from greenroom.records.state import apply_delta
from greenroom.runner.accept import (
    SINCE_COMPACTION,
    accept_message,
    answered_call,
    check_is_of_one_kind,
    check_run,
    is_to_task,
    needs_older_events,
)
from greenroom.runner.commit import RunLog, apply_plugin_changes, last_events, single
from greenroom.runner.compaction import compact
from greenroom.runner.next_agent import next_agent
from greenroom.runner.remember import remember
from greenroom.runner.rewind import rewind_event
from greenroom.runner.scripting import in_thread, shown_lines
from greenroom.runner.uploads import save_blobs
from greenroom.sessions.service import BaseSessionService
from greenroom.telemetry.span import NO_SPAN, Trace, TraceListener

AGENT_CLOSE_SECONDS = 10


class Runner:
    """Takes an app, or an agent and an app name. Without an app name, the agent's name is the app's.

    It does not keep two runs on one session apart: a server does (`runs.engine`), other callers must.
    """

    def __init__(
        self,
        *,
        app: App | None = None,
        agent: BaseAgent | None = None,
        node: BaseAgent | None = None,
        app_name: str | None = None,
        session_service: BaseSessionService,
        artifact_service: BaseArtifactService | None = None,
        memory_service: BaseMemoryService | None = None,
        credential_service: BaseCredentialService | None = None,
        plugins: Sequence[BasePlugin] | None = None,
        event_stream: EventStream | None = None,
        plugin_close_timeout: float = CLOSE_SECONDS,
        trace_listeners: Sequence[TraceListener] = (),
        auto_create_session: bool = False,
        signal_urls: SignalUrlMaker | None = None,
        steering: Steering | None = None,
        audit: Callable[[Sequence[AuditEntry]], Awaitable[None]] | None = None,
    ) -> None:
        """Creates a runner.

        node: another name of `agent`, for workflows. trace_listeners: get the trace of each run that has ended; without
        any, nothing is traced. auto_create_session: create missing sessions; otherwise, runs in them raise
        SessionNotFound.
        """
        agent = agent if node is None else node
        if (app is None) == (agent is None) or (app is not None and plugins is not None):
            raise AgentConfigError("Give a Runner either an app, or an agent and its plugins")
        self.app = app
        self._is_resumable = False
        self.run_config = app.run_config if app is not None else None
        self.redaction = app.redaction if app is not None else None
        if app is not None:
            self.agent = app.root_agent
            self.app_name = app_name or app.name
            resumability = app.resumability_config
            self._is_resumable = resumability is not None and resumability.is_resumable
        elif agent is not None:
            self.agent = agent
            self.app_name = app_name or agent.name

        check_root(self.agent)
        self.session_service = session_service
        self.artifact_service = artifact_service
        self.memory_service = memory_service
        self.credential_service = credential_service or InMemoryCredentialService()
        self.services = Services(
            sessions=session_service,
            artifacts=artifact_service,
            memory=memory_service,
            credentials=self.credential_service,
            default_model=(app.default_model if app is not None else None) or "",
            context_cache=app.context_cache_config if app is not None else None,
            compaction=app.events_compaction_config if app is not None else None,
            signal_urls=signal_urls,
            approvals=app.approvals if app is not None else None,
            steering=steering,
            audit=audit,
            redaction=self.redaction,
        )
        self._stream = event_stream
        self._trace_listeners = trace_listeners
        self._auto_create_session = auto_create_session
        self.plugin_manager = PluginManager(plugins if app is None else app.plugins, close_seconds=plugin_close_timeout)

    def run(
        self, *, user_id: str, session_id: str, new_message: Content | None = None, run_config: RunConfig | None = None
    ) -> Iterator[Event]:
        """`run_async` for code without an event loop, such as scripts and notebooks: it runs in a thread of its own."""
        run = partial(self.run_async, user_id=user_id, session_id=session_id, new_message=new_message)
        return in_thread(partial(run, run_config=run_config))

    async def run_debug(
        self,
        user_messages: str | Content | Sequence[str | Content],
        *,
        user_id: str = "debug_user_id",
        session_id: str = "debug_session_id",
        run_config: RunConfig | None = None,
        quiet: bool = False,
        verbose: bool = False,
    ) -> list[Event]:
        """Yields the events of one run per message, in a session that is created if it is missing. For experiments.

        Prints the texts of final responses unless `quiet`; with `verbose` function calls and their responses, too.
        """
        config = msgspec.structs.replace(run_config or RunConfig(), auto_create_session=True)
        events: list[Event] = []
        for message in [user_messages] if isinstance(user_messages, (str, Content)) else user_messages:
            content = message if isinstance(message, Content) else UserContent(message)
            run = self.run_async(user_id=user_id, session_id=session_id, new_message=content, run_config=config)
            async for event in run:
                events.append(event)
                for line in () if quiet else shown_lines(event, verbose):
                    print(f"{event.author} > {line}")
        return events

    async def run_async(
        self,
        *,
        user_id: str,
        session_id: str,
        new_message: Content | None = None,
        state_delta: JsonObject | None = None,
        run_config: RunConfig | None = None,
        invocation_id: str | None = None,
    ) -> AsyncGenerator[Event]:
        """The events of one run, the user's own left out; each complete one is stored before it is yielded.

        Checkpoints of workflow agents, and steps of agents that run as tools, are yielded for a resumable app only.
        A reader that stops early stops the run, as `InvocationContext.abort` does; its open calls are then answered as
        interrupted. Raises SessionNotFound, RunNotFound, InvalidRequest, and what failed the run, after its event.
        """
        new_message = own(new_message)
        check_is_of_one_kind(new_message)
        run = self.run_message(
            user_id=user_id,
            session_id=session_id,
            new_message=new_message,
            state_delta=state_delta,
            run_config=run_config,
            invocation_id=invocation_id,
        )

        async with aclosing(run) as events:
            async for event in events:
                yield event

    async def run_message(
        self,
        *,
        user_id: str,
        session_id: str,
        new_message: Content | None = None,
        state_delta: JsonObject | None = None,
        run_config: RunConfig | None = None,
        invocation_id: str | None = None,
    ) -> AsyncGenerator[Event]:
        """`run_async` that also takes a message with function responses and other parts, as other protocols send it.

        The model is shown the responses beside their calls, then the other parts.
        """
        if self.redaction is not None and new_message is not None:
            new_message = await self.redaction.redact_content(new_message)
        config = (run_config or RunConfig()).over(self.run_config)
        session = await self._open_session(user_id, session_id, config)
        if needs_older_events(session.events, new_message, invocation_id):
            session = await self._open_session(user_id, session_id, config, whole=True)
        check_run(session.events, new_message, state_delta, invocation_id)
        message, answered, run_id = accept_message(session.events, new_message, invocation_id)
        if answered is not None:
            message = await self.exchange_credentials(session, message)
        log = self.open_log(session, run_id or new_invocation_id(), config)
        after = session.events.end
        run = self.execute(log, message, answered=answered, state_delta=state_delta, run_config=config)

        async with aclosing(self._owned(log, run)) as events:
            async for event in events:
                if self._is_shown(event):
                    yield event

        await self.compact(log)
        if self.app is not None and self.app.memory_policy is not None:
            await remember(self.app.memory_policy, self.services, session.key, log.invocation_id, after=after)

    def _is_shown(self, event: Event) -> bool:
        if not self._is_resumable:
            return not event.is_internal() and not event.is_checkpoint()
        path = event.node_path
        return event.actions.agent_state is None or not path or "/" in path  # ADK has none for a workflow's start

    async def run_live(
        self,
        *,
        user_id: str,
        session_id: str,
        live_request_queue: LiveRequestQueue,
        run_config: RunConfig | None = None,
    ) -> AsyncGenerator[Event]:
        """A live conversation until the queue is closed, or the model ends it. Audio, images and video that the model
        makes are yielded and not stored, every other complete event is stored first.

        Text that the client sends is yielded too, as the user's event. Raises as `run_async` does, and AgentConfigError
        when the agent or its model can't run live.
        """
        config = live_config((run_config or RunConfig()).over(self.run_config))
        session = await self._open_session(user_id, session_id, config)
        log = self.open_log(session, new_invocation_id(), config)
        async with aclosing(self._owned(log, self.live(log, live_request_queue, run_config=config))) as events:
            async for event in events:
                yield event

    async def rewind_async(self, *, user_id: str, session_id: str, rewind_before_invocation_id: str) -> None:
        """Takes a session back to where that run began: its events and later ones stay stored, and count no longer.

        Restores the session's own state and artifacts. No run may be active. Raises SessionNotFound and RunNotFound.
        """
        session = await self._open_session(user_id, session_id, RunConfig(), whole=True)
        event = await rewind_event(session, rewind_before_invocation_id, self.artifact_service)
        await self.session_service.append(session, event)

    async def _owned(self, log: RunLog, run: AsyncGenerator[Event]) -> AsyncGenerator[Event]:
        """A run that belongs to its reader, and is cancelled when the reader leaves."""
        status = RunStatus.FAILED
        try:
            async with aclosing(run) as events:
                async for event in events:
                    yield event
            status = RunStatus.SUCCEEDED
        except RunCancelled:
            status = RunStatus.CANCELLED
        except (asyncio.CancelledError, GeneratorExit):
            status = RunStatus.CANCELLED
            reason = log.stopped_by or RunCancelled(log.invocation_id, "its caller went away")
            await asyncio.shield(self.record_abort(log, reason))
            raise
        finally:
            if log.trace is not None:
                log.trace.end(status, self._trace_listeners)

    async def exchange_credentials(self, session: Session, message: Content | None) -> Content | None:
        """Returns the message in the form in which it is stored: grants in it are exchanged for credentials, which are
        stored elsewhere.

        Raises ApprovalRefused, and ToolError if a provider fails.
        """
        # Few answers need it, and it loads all that exchanges logins.
        from greenroom.agents.human_input.credential_exchange import exchange_credentials

        return await exchange_credentials(self.credential_service, session, message)

    def open_log(
        self,
        session: Session,
        invocation_id: str,
        run_config: RunConfig,
        *,
        traceparent: str | None = None,
        caller: Caller | None = None,
    ) -> RunLog:
        """Opens the log of a run. The caller ends its trace.

        traceparent: of the request that started the run.
        """
        log = RunLog(
            session=session,
            invocation_id=invocation_id,
            sessions=self.session_service,
            stream=self._stream,
            custom_metadata=run_config.custom_metadata,
            is_live=run_config.streaming_mode is StreamingMode.BIDI,
            caller=caller,
            redaction=self.redaction,
        )
        if self._trace_listeners:
            log.trace = Trace(log.key, invocation_id, traceparent=traceparent)
            if self.redaction is not None:
                log.trace.run.redact = self.redaction.traced
        return log

    def execute(
        self,
        log: RunLog,
        new_message: Content | None,
        *,
        answered: Event | None,
        state_delta: JsonObject | None,
        run_config: RunConfig,
    ) -> AsyncGenerator[Event]:
        """A run from its message on. An error is stored as an event, yielded, and raised.

        new_message, answered: as `accept_message` returned them.
        """
        ctx = self._context(log, self.agent, new_message, run_config)

        async def enter() -> AsyncGenerator[Event]:
            scope = None
            if answered is not None and is_to_task(new_message, answered):
                scope = answered.isolation_scope
            event = await event_of_message(ctx, new_message, state_delta, scope=scope)
            if event is not None:
                await log.commit(event)
            ctx.user_content = event.content if event is not None else None
            agent = next_agent(self.agent, log.session.events, answered)
            ctx.agent = agent
            if answered is not None or ctx.user_content is None:
                logged = log_state_of(log.session.events).find_run(log.invocation_id)
                if logged is not None:
                    ctx.resumed_from = logged.indexes[0]
                    ctx.llm_calls.count = logged.progress.model_calls
            return await self._begin(ctx, agent)

        return self._drive(ctx, log, enter)

    def live(self, log: RunLog, queue: LiveRequestQueue, *, run_config: RunConfig) -> AsyncGenerator[Event]:
        """A live run. run_config: from `live_config`."""
        agent = next_agent(self.agent, log.session.events, None)
        ctx = self._context(log, agent, None, run_config)
        ctx.live_request_queue = queue
        return self._drive(ctx, log, lambda: self._begin(ctx, agent))

    def resume(self, log: RunLog, progress: RunProgress, *, run_config: RunConfig) -> AsyncGenerator[Event]:
        """Continues a run that was cut off: each agent on the way finds in the log how far it got."""
        events = log.session.events
        answered = answered_call(events, progress.user_content)
        agent = next_agent(self.agent, events, answered, before=progress.message_at)
        ctx = self._context(log, agent, progress.user_content, run_config)
        ctx.resumed_from = progress.begins_at
        ctx.was_cut_off = True
        ctx.llm_calls.count = progress.model_calls
        return self._drive(ctx, log, lambda: self._begin(ctx, agent))

    async def compact(self, log: RunLog) -> None:
        await compact(log, self.agent, self.services)

    async def record_abort(self, log: RunLog, reason: GreenroomError) -> Event:
        """Closes the log of a stopped run: open calls are answered, and unfinished messages are stored. Then notifies
        the plugins.
        """
        try:
            return await log.close(reason, author=self.agent.name)
        finally:
            if isinstance(reason, RunCancelled):
                await self._notify_end(log, "after_run_callback")
            else:
                await self._notify_end(log, "on_run_error_callback", error=reason)

    async def close(self) -> None:
        """Closes the toolsets and code executors of the agents, including agents that are tools, each within 10
        seconds, and the plugins. The services belong to the caller.

        Raises the errors as one ExceptionGroup, after all have been closed.
        """
        errors: list[Exception] = []
        for resource in resources_of(self.agent):
            try:
                async with asyncio.timeout(AGENT_CLOSE_SECONDS):
                    await resource.close()
            except Exception as error:  # the others must be closed all the same
                errors.append(error)
        try:
            await self.plugin_manager.close()
        except ExceptionGroup as group:
            errors += group.exceptions
        if errors:
            raise ExceptionGroup("The runner could not be closed whole", errors)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _open_session(self, user_id: str, session_id: str, config: RunConfig, *, whole: bool = False) -> Session:
        key: JsonObject = {"app_name": self.app_name, "user_id": user_id, "session_id": session_id}
        which = None if whole else config.get_session_config or SINCE_COMPACTION
        session = await self.session_service.get_session(**key, config=which)
        if session is None and not (config.auto_create_session or self._auto_create_session):
            raise SessionNotFound(**key)
        return session or await self.session_service.create_session(**key)

    async def _begin(self, ctx: InvocationContext, agent: BaseAgent) -> AsyncGenerator[Event]:
        answer: Content | None = await self.plugin_manager.first_result("before_run_callback", invocation_context=ctx)
        if answer is not None:
            return single(Event(author="model", content=answer))
        return agent.run_async(ctx) if ctx.live_request_queue is None else agent.run_live(ctx)

    async def _drive(
        self, ctx: InvocationContext, log: RunLog, enter: Callable[[], Awaitable[AsyncGenerator[Event]]]
    ) -> AsyncGenerator[Event]:
        is_watched = "on_event_callback" in self.plugin_manager.listeners
        cancellations = Cancellations()
        held: dict[str, list[Event]] = {}
        log.pending_end_hook = ctx
        with ctx.span or NO_SPAN:
            try:
                async with aclosing(await enter()) as events:
                    async for event in events:
                        cancellations.check()
                        if is_watched:
                            await apply_plugin_changes(event, ctx)
                            if event.partial and event.content is not None and not event.content.parts:
                                continue  # a plugin keeps its text back
                        if ctx.unstored:
                            await log.commit(*ctx.take_handled())
                        if log.publish_unstored(event):
                            yield event
                        elif event.id in ctx.stored_later:
                            held.setdefault(ctx.stored_later.pop(event.id), []).append(event)
                        else:
                            group = [*held.pop(event.id, ()), event, *ctx.stored_with.pop(event.id, ())]
                            await log.commit(*group)
                            for stored in group:
                                yield stored
                        if ctx.is_aborted:
                            raise RunCancelled(log.invocation_id, "its agent or a tool has aborted it")
                    cancellations.check()
                    if ctx.unstored:
                        await log.commit(*ctx.take_handled())
                log.pending_end_hook = None
                await self.plugin_manager.first_result("after_run_callback", invocation_context=ctx)
            except Exception as error:  # whatever agents, models, tools or plugins raise is the run's outcome
                cancellations.check()
                log.pending_end_hook = ctx
                if isinstance(error, RunCancelled):
                    events = [await self.record_abort(log, error)]
                else:
                    await self._notify_end(log, "on_run_error_callback", error=error)
                    events = last_events(ctx, log, error)
                    await log.commit(*events)
                for event in events:
                    yield event
                raise

    async def _notify_end(self, log: RunLog, hook: str, **arguments: object) -> None:
        """Notifies the plugins of the end of the segment, if they know of its beginning and not yet of its end."""
        ctx = log.pending_end_hook
        log.pending_end_hook = None
        if ctx is not None:
            await self.plugin_manager.notify(hook, invocation_context=ctx, **arguments)

    def _context(
        self, log: RunLog, agent: BaseAgent, user_content: Content | None, run_config: RunConfig
    ) -> InvocationContext:
        ctx = InvocationContext(
            services=self.services,
            session=log.session,
            invocation_id=log.invocation_id,
            agent=agent,
            run_config=run_config,
            user_content=user_content,
            caller=log.caller,
            plugins=self.plugin_manager,
            is_resumable=self._is_resumable,
            span=log.trace.begin() if log.trace is not None else None,
        )
        ctx.store = log.commit_summary
        return ctx


async def event_of_message(
    ctx: InvocationContext,
    message: Content | None,
    state_delta: JsonObject | None,
    *,
    scope: str | None = None,
    request_id: str | None = None,
) -> Event | None:
    """The user's event, as plugins changed the message; None where there is nothing to store.

    request_id: names the artifacts; by default the id of the run.
    """
    artifact_delta: dict[str, int] = {}
    if message is not None and "on_user_message_callback" in ctx.plugins.listeners:
        apply_delta(ctx.session.state, state_delta or {})
        arguments = {"invocation_context": ctx, "user_message": message}
        message = await ctx.plugins.first_result("on_user_message_callback", **arguments) or message
    if message is not None and ctx.run_config.save_input_blobs_as_artifacts:
        message, artifact_delta = await save_blobs(message, ctx, request_id or ctx.invocation_id)
    if message is None and not state_delta:
        return None
    actions = EventActions(state_delta=dict(state_delta or {}), artifact_delta=artifact_delta)
    return Event(
        invocation_id=ctx.invocation_id, author="user", content=message, actions=actions, isolation_scope=scope
    )


class Cancellations:
    """Finds the cancellation of a task that its tools, models or callbacks have caught and not raised again."""

    __slots__ = ("_before", "_task")

    def __init__(self) -> None:
        self._task = asyncio.current_task()
        self._before = self._task.cancelling() if self._task is not None else 0

    def check(self) -> None:
        """Raises CancelledError if the task was cancelled since then."""
        task = self._task
        if task is not None and task.cancelling() > self._before and task is asyncio.current_task():
            raise asyncio.CancelledError


def live_config(run_config: RunConfig) -> RunConfig:
    """The settings with the defaults of a live run: it answers with audio, unless they say otherwise."""
    config = copy.copy(run_config)
    config.streaming_mode = StreamingMode.BIDI
    config.response_modalities = run_config.response_modalities or ["AUDIO"]
    return config
