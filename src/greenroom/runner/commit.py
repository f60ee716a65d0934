"""The log of a run: events are stored, then published; a run that is stopped leaves no call open."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass

from greenroom.errors import BranchFailed, GreenroomError, RunCancelled, Unavailable, code_of, message_of
from greenroom.event_streams.stream import EventStream, StreamItem
from greenroom.invocation.context import InvocationContext
from greenroom.log.calls import INTERRUPTED, REFUSED, is_within
from greenroom.log.progress import ABORTED
from greenroom.log.state import log_state_of
from greenroom.records.base import JsonObject
from greenroom.records.content import Content, FunctionResponse, Part
from greenroom.records.event import Event, without_reserved
from greenroom.records.genai_types import own_content
from greenroom.records.login_secrets import redact
from greenroom.records.run import Caller
from greenroom.records.session import Session
from greenroom.redaction.rules import Redaction
from greenroom.sessions.service import BaseSessionService, StoredEvent
from greenroom.telemetry.span import Trace
from greenroom.tools.result import is_plain, make_storable, to_plain

_MEDIA = ("audio/", "video/", "image/")


def answers_to_decided_calls(session: Session, invocation_id: str) -> list[Event]:
    """Returns responses to the calls on which a person has decided, and that have not been made yet."""
    events: list[Event] = []
    log_state = log_state_of(session.events)
    messages = log_state.run(invocation_id).messages if log_state.has_run(invocation_id) else ()
    for decided in log_state.decided_at(messages[-1]) if messages else ():
        is_refused = decided.answer is not None and not decided.answer.confirmed
        outcome = REFUSED if is_refused else INTERRUPTED
        response = FunctionResponse(id=decided.call.id, name=decided.call.name, response=dict(outcome))
        content = Content(role="user", parts=[Part(function_response=response)])
        events.append(Event(author=decided.author, branch=decided.branch, content=content))
    return events


def answers_to_calls(session: Session, invocation_id: str) -> dict[str | None, Event]:
    """Returns responses to all other unanswered calls: one event for each isolation scope."""
    answers: dict[str | None, Event] = {}
    state = log_state_of(session.events)
    run = state.find_run(invocation_id)
    if run is None:
        return answers
    for unanswered in run.unanswered_calls(since=state.begin_of_segment(invocation_id)):
        call = unanswered.call
        calling = unanswered.event
        if call is None or calling is None:
            continue
        response = FunctionResponse(id=call.id, name=call.name, response=dict(INTERRUPTED))
        answer = answers.setdefault(calling.isolation_scope, Event(author=calling.author))
        answer.author = calling.author
        answer.branch = calling.branch
        answer.isolation_scope = calling.isolation_scope
        parts = answer.content.parts if answer.content is not None else None
        answer.content = Content(role="user", parts=[*(parts or ()), Part(function_response=response)])
    return answers


@dataclass(kw_only=True, eq=False)
class RunLog:
    """Stores and publishes a run's events. Keeps the chunks of messages that are being written, in case they are cut
    off.

    pending_end_hook: the context of the running segment, until the plugins have been notified of its end. stopped_by:
    why a run that belongs to its reader is cancelled; None when the reader leaves. lost: raised instead of storing
    anything more, when another server has taken over the session.
    """

    session: Session
    invocation_id: str
    sessions: BaseSessionService
    stream: EventStream | None
    custom_metadata: JsonObject | None
    is_live: bool = False
    trace: Trace | None = None
    caller: Caller | None = None
    redaction: Redaction | None = None
    pending_end_hook: InvocationContext | None = None
    stopped_by: GreenroomError | None = None
    lost: GreenroomError | None = None

    def __post_init__(self) -> None:
        self.summaries: list[Event] = []
        """Compactions that were stored, until their usage has been counted."""
        self.key = self.session.key
        self._open: dict[tuple[str, str | None], list[Event]] = {}
        self._commits = 0
        """Commits under way."""
        self._no_commits: asyncio.Event | None = None
        """Set when none is under way any more; made by who waits for it."""
        self.custom_metadata = without_reserved(self.custom_metadata)

    def publish_unstored(self, event: Event) -> bool:
        """Publishes a partial event, or media that a model makes in a live run. False for an event to be stored."""
        is_media = self.is_live and event.author != "user" and _holds_media(event)
        if not event.partial and not is_media:
            return False
        self._prepare(event)
        if not is_media:
            key = (event.author, event.branch)
            chunks = self._open.get(key)
            if chunks is None or chunks[0].id != event.id:
                self._open[key] = [event]
            else:
                chunks.append(event)
        if self.stream is not None:
            self.stream.publish(self.key, StreamItem(event, run_id=self.invocation_id, seq=None))
        return True

    async def commit(self, *events: Event) -> None:
        """Stores complete events, with their state deltas, in one step, all or none, and publishes them.

        A store that can't do this stores them one after the other.
        """
        if self.lost is not None:
            raise self.lost
        if len(events) > 1 and "several events in one step" in self.sessions.not_offered:
            for event in events:
                await self.commit(event)
            return
        for event in events:
            self._prepare(event)
            if self.redaction is not None:
                make_storable(event.actions)
                await self.redaction.redact_event(event)
        self._commits += 1
        try:
            stored = await self.sessions.append(self.session, *events)
        except asyncio.CancelledError:
            # They may be stored all the same. Appending again says where: readers and the end of the run need it.
            with contextlib.suppress(Unavailable):
                self._publish(events, await self.sessions.append(self.session, *events))
            raise
        except (TypeError, ValueError, RecursionError, NotImplementedError):
            for event in events:  # callbacks may put any object into the state
                make_storable(event.actions)
            stored = await self.sessions.append(self.session, *events)
        finally:
            self._commits -= 1
            if not self._commits and self._no_commits is not None:
                self._no_commits.set()
        self._publish(events, stored)

    async def commit_summary(self, event: Event) -> None:
        """Stores a compaction. Clients of the run are not sent it, as in ADK; readers of the session are."""
        if self.lost is not None:
            raise self.lost
        if self.redaction is not None:
            await self.redaction.redact_event(event)
        [stored] = await self.sessions.append(self.session, event)
        self.summaries.append(event)
        if self.stream is not None:
            item = StreamItem(event, run_id=event.invocation_id, seq=stored.seq, json=stored.json)
            self.stream.publish(self.key, item)

    def _prepare(self, event: Event) -> None:
        if not event.invocation_id:
            event.invocation_id = self.invocation_id
        if event.content is not None:
            event.content = own_content(event.content)
            for part in event.content.parts or ():
                if part.function_call is not None and not is_plain(part.function_call.args):
                    part.function_call.args = to_plain(part.function_call.args)
        if self.custom_metadata:
            event.custom_metadata = {**self.custom_metadata, **(event.custom_metadata or {})}
        if event.custom_metadata or event.actions.requested_auth_configs or event.long_running_tool_ids:
            redact(event)

    def _publish(self, events: Sequence[Event], stored: Sequence[StoredEvent]) -> None:
        if self._open:
            for event in events:
                self._open.pop((event.author, event.branch), None)
        if self.stream is not None:
            for event, one in zip(events, stored, strict=True):
                item = StreamItem(event, run_id=self.invocation_id, seq=one.seq, json=one.json)
                self.stream.publish(self.key, item)

    def cut_off(
        self, *, error_code: str, error_message: str, author: str, branch: str | None = None, is_apart: bool = False
    ) -> list[Event]:
        """Returns the events that end a failed run, the last of them with the error.

        That event holds the received part of the message that failed: the only message, or the branch's; unless it must
        be separate. Other messages get events of their own.
        """
        opened = [event for event in map(self._interrupted, self._open.values()) if event is not None]
        self._open = {}
        blamed = [event for event in opened if branch is None or is_within(event.branch, branch)]
        end = blamed[0] if len(blamed) == 1 and not is_apart else Event(author=author)
        end.invocation_id = self.invocation_id
        end.error_code = error_code
        end.error_message = error_message
        return [*(event for event in opened if event is not end), end]

    async def close(self, reason: GreenroomError, *, author: str) -> Event:
        """Answers the open calls of a stopped run, and stores the received content, the reason with the last event."""
        while self._commits:  # of the run's task, which a slow store keeps from ending: they may hold answers
            self._no_commits = asyncio.Event()
            await self._no_commits.wait()
        for event in answers_to_decided_calls(self.session, self.invocation_id):
            await self.commit(event)
        answers = answers_to_calls(self.session, self.invocation_id)
        code = ABORTED if isinstance(reason, RunCancelled) else reason.code
        outer = answers.pop(None, None)
        *others, event = self.cut_off(
            error_code=code, error_message=reason.detail, author=author, is_apart=outer is not None
        )
        for other in (*others, *answers.values()):
            await self.commit(other)
        if outer is not None:
            event.author = outer.author
            event.branch = outer.branch
            event.content = outer.content
        await self.commit(event)
        return event

    def _interrupted(self, chunks: list[Event]) -> Event | None:
        """Returns the received part of a message; None when no text was received."""
        first = chunks[0]
        text = "".join(chunk.content.text() for chunk in chunks if chunk.content is not None)
        if not text:
            return None
        return Event(
            id=first.id,
            invocation_id=self.invocation_id,
            author=first.author,
            branch=first.branch,
            content=Content(role="model", parts=[Part(text=text)]),
            interrupted=True,
        )


async def apply_plugin_changes(event: Event, ctx: InvocationContext) -> None:
    """Applies the plugins' changes to an event before it is stored; its id and time stay."""
    changed: Event | None = await ctx.plugins.first_result("on_event_callback", invocation_context=ctx, event=event)
    if changed is None or changed is event:
        return
    for name in Event.__struct_fields__:
        value = getattr(changed, name)
        if value is not None and name not in ("id", "invocation_id", "timestamp"):
            setattr(event, name, value)


def last_events(ctx: InvocationContext, log: RunLog, error: Exception) -> list[Event]:
    """Returns the last events of a failed run, the last with the error: if a tool raised it, the responses of that
    turn. A branch beside it may have failed in the same moment; its responses are stored without an error."""
    branch = error.branch if isinstance(error, BranchFailed) else None
    unstored = ctx.take_handled()
    of_turn = [event for event in unstored if branch is None or is_within(event.branch, branch)]
    *cut_off, end = log.cut_off(
        error_code=code_of(error),
        error_message=message_of(error),
        author=ctx.agent.name,
        branch=branch,
        is_apart=bool(of_turn),
    )
    if of_turn:
        of_turn[-1].error_code = end.error_code
        of_turn[-1].error_message = end.error_message
        end = of_turn[-1]
    return [*cut_off, *(event for event in unstored if event is not end), end]


async def single(event: Event) -> AsyncGenerator[Event]:
    """A run of one event."""
    yield event


def _holds_media(event: Event) -> bool:
    """Whether the event holds inline audio, video or images."""
    parts = (event.content.parts if event.content is not None else None) or ()
    return any(part.inline_data is not None and (part.inline_data.mime_type or "").startswith(_MEDIA) for part in parts)
