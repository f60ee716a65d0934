"""Stored conversations, had again: with the recorded answers of models and tools, and where the new
one departs.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from greenroom.apps.app import App
from greenroom.errors import GreenroomError, ReplayConfigError, ReplayVerificationError, RunCancelled, error_of
from greenroom.evaluation.comparison import conversation_lines, diff
from greenroom.evaluation.invocations import invocations_of
from greenroom.evaluation.recorded_case import UserMessage, spec_of, with_open_calls
from greenroom.evaluation.tool_stubs import EnvironmentSimulationConfig, EnvironmentSimulationPlugin, recorded_tools
from greenroom.invocation.live_requests import LiveRequestQueue
from greenroom.plugins.recording import recording_of
from greenroom.plugins.replay import ReplayPlugin, comparable_events, comparable_state, difference
from greenroom.records.base import JsonObject
from greenroom.records.event import Event, EventActions
from greenroom.records.identifiers import new_state_patch_id
from greenroom.records.recording import Recording
from greenroom.records.run import RunConfig, StreamingMode
from greenroom.records.session import Session
from greenroom.runner.commit import RunLog
from greenroom.runner.in_memory import InMemoryRunner

USER = "adk_conformance_test_user"


class _ReplayRunner(InMemoryRunner):
    """A runner whose newest log can be read while its run is going on."""

    log: RunLog | None = None

    def open_log(self, *args: Any, **options: Any) -> RunLog:
        self.log = super().open_log(*args, **options)
        return self.log


class ConversationRunner:
    """A conversation in memory, used once."""

    def __init__(
        self,
        app: App,
        *,
        streams: bool = False,
        replay: ReplayPlugin | None = None,
        recordings: Sequence[Recording] = (),
        show: Callable[[Event], None] | None = None,
    ) -> None:
        """Prepares a replay.

        replay: a plugin of the app that gets the recordings of each turn.
        show: called with each event.
        """
        self._runner = _ReplayRunner(app=app)
        self._mode = StreamingMode.SSE if streams else StreamingMode.NONE
        self._replay = replay
        self._recordings = recordings
        self._show = show

    async def run(
        self,
        messages: Sequence[UserMessage],
        *,
        state: JsonObject | None = None,
        settings: Callable[[int], JsonObject] | None = None,
        continues: Callable[[], bool] = lambda: True,
    ) -> Session:
        """Sends the messages, and returns the resulting session.

        settings: returns the state of each turn.
        continues: called after each turn; False ends the conversation.

        Raises the error of a failed run; in a replay only ReplayVerificationError and ReplayConfigError.
        """
        store = self._runner.session_service
        try:
            session = await store.create_session(
                app_name=self._runner.app_name,
                user_id=USER,
                state=state,
            )
            for turn, message in enumerate(messages):
                delta = {**(message.state_delta or {}), **(settings(turn) if settings is not None else {})}
                if message.is_patch:
                    patch = EventActions(state_delta=delta)
                    await store.append(
                        session,
                        Event(author="user", invocation_id=new_state_patch_id(), actions=patch),
                    )
                else:
                    session = await self._turn(turn, message, session, delta)

                stored = await store.get_session(**session.key._asdict())
                assert stored is not None
                session = stored

                if not continues():
                    break

            return session
        finally:
            await self._runner.close()

    async def _turn(
        self,
        turn: int,
        message: UserMessage,
        session: Session,
        delta: JsonObject,
    ) -> Session:
        """Returns the session, or a fork of it where the recorded run was left unfinished."""
        options: dict[str, Any] = {
            "user_id": session.user_id,
            "session_id": session.id,
            "run_config": RunConfig(
                streaming_mode=StreamingMode.BIDI if message.live_run else self._mode,
                custom_metadata=message.custom_metadata,
            ),
        }
        if message.live_run:
            events = self._runner.run_live(live_request_queue=LiveRequestQueue(), **options)
        else:
            content = with_open_calls(message.as_content(), session.events, message.answered)
            events = self._runner.run_message(
                new_message=content,
                state_delta=delta or None,
                **options,
            )

        last: list[str] = []

        async def read() -> None:
            async for event in events:
                last.append(event.invocation_id)
                if self._show is not None:
                    self._show(event)

        if self._replay is None:
            await read()
            return session

        recordings = [recording for recording in self._recordings if recording.user_message_index == turn]
        stop = next((_reason(recording) for recording in recordings if recording.is_cancelled), None)
        task = asyncio.create_task(read())
        stopped_after: list[int] = []

        def cancel() -> None:
            log = self._runner.log
            assert log is not None
            log.stopped_by = stop
            stopped_after.append(log.session.events.end)
            task.cancel()

        self._replay.begin(recordings, cancel)

        try:
            await asyncio.gather(task, return_exceptions=True)
        finally:
            task.cancel()

        error = None if task.cancelled() else task.exception()
        if isinstance(error, (ReplayVerificationError, ReplayConfigError)):
            raise error

        if stop is not None and not stopped_after and last:
            # The run waited for somebody when it was stopped.
            log = self._runner.open_log(session, last[-1], options["run_config"])
            await self._runner.record_abort(log, stop)

        if stopped_after and any(recording.is_unfinished for recording in recordings):
            key = session.key._asdict()
            return await self._runner.session_service.fork_session(**key, seq=stopped_after[0])

        return session


def _reason(recording: Recording) -> GreenroomError:
    """The error that stopped the run of a recording."""
    if recording.error_code is None:
        return RunCancelled("", "as it was then")
    return error_of(recording.error_code, recording.error_message or "")


async def replay_session(app: App, then: Session, *, run_tools: bool = False) -> str:
    """Replays a stored session with the recorded replies of its models, and results of its tools.

    Returns the first departure, empty if there is none.

    app: maybe changed since.
    run_tools: for their side effects.
    """
    spec = spec_of(then)
    plugin = ReplayPlugin(run_tools=run_tools)
    try:
        runner = ConversationRunner(_with(app, plugin), replay=plugin, recordings=recording_of(then).recordings)
        now = await runner.run(spec.user_messages, state=spec.initial_state)
    except Exception as error:  # agents and tools may raise anything
        return f"{type(error).__name__}: {error}"
    finally:
        plugin.unwrap_models(app.root_agent)

    return departure(then, now)


def departure(then: Session, now: Session) -> str:
    """Returns the first event that differs, as a diff, or else the difference between the final states."""
    before = comparable_events(then.events)
    after = comparable_events(now.events)
    for index in range(max(len(before), len(after))):
        earlier = before[index : index + 1]
        other = after[index : index + 1]
        if earlier != other:
            return f"Event {index + 1} of {len(before)}:\n{difference(earlier, other)}"

    return difference(comparable_state(then.state), comparable_state(now.state))


async def rerun_session(app: App, then: Session) -> str:
    """Runs a stored session again with the models of the app, on the recorded results of its tools.

    Returns a diff from where the conversations part: in a message, a call or an answer. Calls that
    were not made then get an error as their result.
    """
    spec = spec_of(then)
    conversation = invocations_of(then.events)

    tools = recorded_tools([conversation])
    if tools:
        app = _with(
            app,
            EnvironmentSimulationPlugin(EnvironmentSimulationConfig(tool_simulation_configs=tools)),
        )

    try:
        now = await ConversationRunner(app).run(spec.user_messages, state=spec.initial_state)
    except Exception as error:  # agents and tools may raise anything
        return f"{type(error).__name__}: {error}"

    return diff(conversation_lines(conversation), conversation_lines(invocations_of(now.events)))


def _with(app: App, plugin: Any) -> App:
    return dataclasses.replace(app, plugins=[plugin, *app.plugins])
