"""The base of agents that another framework runs.

The framework's own progress is kept in the session's log, as the states (`actions.agentState`) of its agent: a state
holds what is new since the one before, and is stored in one step with the events that it is about. So after a crash the
log has a message if and only if the framework knows that it was written. A small log of an agent that asks a person:

    1  user  "Refund order 7"
    2  desk  call c-1 look_up(order=7)      stored with 3
    3  desk  agentState {...}               the framework's progress: c-1 is to be made
    4  desk  response c-1 {"paid": 5}       stored with 5
    5  desk  agentState {...}               c-1 has been made: after a crash it isn't made again
    6  desk  call adk_request_input r-1     stored with 7
    7  desk  agentState {...}               the framework is halted at r-1; the run waits
    8  user  response r-1 {"result": "ok"}  the agent runs again, with the states of 3 to 7 and the answer to r-1
    9  desk  "Done."                        stored with 10
    10 desk  agentState {...}, endOfAgent   the agent's turn is over
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from typing import ClassVar

from greenroom.agents.agent import BaseAgent
from greenroom.agents.events import EventChannel
from greenroom.agents.frameworks.model_call import HostedModelCall, ModelRefused
from greenroom.agents.human_input.requests import request_event_for
from greenroom.errors import SessionNotFound
from greenroom.invocation.context import InvocationContext
from greenroom.log.agent_states import AgentThread, agent_state_indexes
from greenroom.log.calls import DecidedCall
from greenroom.log.state import LogState, log_state_of
from greenroom.records.approval_policy import note_policies, note_policy
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.content import Content, FunctionCall, FunctionResponse, Part
from greenroom.records.copy_on_write import CopyOnWriteList
from greenroom.records.event import Event, EventActions, ToolConfirmation
from greenroom.records.human_requests import REQUEST_INPUT, is_input_request, read_input
from greenroom.tools.confirmation import awaiting_confirmation


class HostedAgent(BaseAgent):
    """Base of agents that another framework runs. A subclass writes `run_framework`."""

    _never_waits = True
    is_hosted: ClassVar[bool] = True
    """Plugins can't change the messages that its model gets and gives."""

    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event]:
        turn = await HostedTurn.open(self, ctx)
        if turn is None:
            return

        async with aclosing(turn.events.run(self._execute(turn))) as events:
            async for event in events:
                yield event

    async def _execute(self, turn: HostedTurn) -> None:
        try:
            await self.run_framework(turn)
        except ModelRefused as refusal:
            await turn.end_with_error(refusal)
        else:
            if not turn.is_over:
                await turn.store(is_end=not turn.is_halted)

    @abstractmethod
    async def run_framework(self, turn: HostedTurn) -> None:
        """Runs the framework from what the turn begins with to its end, or until it halts for an answer.

        Everything is stored with `turn.store`. An error that is raised ends the run; what was stored remains, and a
        retry continues from there.
        """


class HostedTurn:
    """A turn of a hosted agent: what it begins with, and the way of its events into the log."""

    def __init__(self, agent: HostedAgent, ctx: InvocationContext) -> None:
        self.agent = agent
        self.ctx = ctx

        self.states: list[JsonObject] = []
        """The states that the agent has stored in this conversation, run by run in the order in which the runs began;
        those of this run come last. Runs that wait for a person are left out, as are those that began after this one.
        """

        self.ended_meanwhile: list[list[JsonObject]] = []
        """The states of each run that ended after the newest other run had begun: it had waited for a person. They are
        among `states`, before those of the newest one, which knows nothing of them.
        """

        self.messages: list[Content] = []
        """The user's messages since the newest state, oldest first. Empty where the turn continues."""

        self.is_continued = False
        """Whether the turn was begun before: it was cut off, or has halted and got its answers."""

        self.inputs: dict[str, JsonValue] = {}
        """Answers to requests for input, by the id of the request."""

        self.decisions: dict[str, DecidedCall] = {}
        """Decisions about calls that needed an approval, by the id of the call, with the approved arguments."""

        self.results: dict[str, JsonObject] = {}
        """Responses to the calls that a client answers, by the id of the call."""

        self.is_halted = False
        """Whether it waits for an answer."""

        self.is_over = False
        """Whether the end of the turn is stored."""

        self.calls_in_progress = 0
        """Model calls that have begun and not ended."""

        self.events = EventChannel()

    @classmethod
    async def open(cls, agent: HostedAgent, ctx: InvocationContext) -> HostedTurn | None:
        """Reads the log. None for a turn that is over, or waits for further answers."""
        events, offset = await _whole_log(ctx)
        thread = AgentThread(agent.name, ctx.branch, ctx.isolation_scope)
        by_run = _states_by_run(events, thread)
        own = by_run.pop(ctx.invocation_id, [])
        newest_own = own[-1] if own else -1

        turn = cls(agent, ctx)
        if ctx.resumed_from is not None:
            since = ctx.resumed_from + offset
            if newest_own >= since and events[newest_own].actions.end_of_agent:
                return None
            if ctx.is_waiting(ctx.resumed_from):
                return None
            turn.is_continued = newest_own >= since

        log_state = log_state_of(events)
        others = [
            indexes
            for run_id, indexes in by_run.items()
            if not log_state.is_waiting(run_id) and not (own and indexes[0] > own[0])
        ]
        earlier = [index for indexes in others for index in indexes]
        turn.states = _states_at(events, (*earlier, *own))

        if turn.is_continued:
            turn._read_answers(events, since=newest_own)
        else:
            turn.messages = _new_messages(events, ctx, since=max((newest_own, *earlier)))
            if others:
                begun_at = others[-1][0]
                turn.ended_meanwhile = [_states_at(events, one) for one in others[:-1] if one[-1] > begun_at]

        return turn

    def _read_answers(self, events: CopyOnWriteList[Event], *, since: int) -> None:
        """Reads the answers after the newest state, which may have come in several messages."""
        log_state = log_state_of(events)
        for index in reversed(log_state.run(self.ctx.invocation_id).indexes):
            if index <= since:
                return
            event = events[index]
            if event.author != "user":
                continue
            for decided in log_state.all_decided_at(index):
                self.decisions.setdefault(decided.call.id or "", decided)
            for response in event.get_function_responses():
                self._read_response(log_state, response)

    def _read_response(self, log_state: LogState, response: FunctionResponse) -> None:
        call_id = response.id or ""
        request = log_state.find_request(response.id)
        if request is None:
            self.results.setdefault(call_id, response.response or {})
        elif is_input_request(request.call):
            self.inputs.setdefault(call_id, read_input(request.call, response))

    # what the framework does

    def new_event(
        self,
        *parts: Part,
        role: str = "model",
        metadata: JsonObject | None = None,
        state_delta: JsonObject | None = None,
    ) -> Event:
        """A complete event of the agent, to be stored with `store`. role: "user" for responses of tools."""
        event = self.ctx.new_event(
            content=Content(role=role, parts=list(parts)) if parts else None,
            actions=EventActions(state_delta=state_delta or {}),
        )
        event.custom_metadata = metadata
        return event

    def publish(self, event: Event) -> None:
        """Shows a partial event to those who watch the run; it isn't stored."""
        event.partial = True
        self.events.put(event)

    async def store(self, *events: Event, state: JsonObject | None = None, is_end: bool = False) -> None:
        """Stores events and the new part of the framework's state in one step, and returns when they are stored.

        state: what has changed since the last one; None where nothing has. is_end: the turn is over.
        """
        if events and not is_end and state is None:
            state = {}  # with a state, the run isn't taken for finished by a text

        marker = None
        if state is not None or is_end:
            marker = self.ctx.new_event()
            marker.actions.agent_state = {} if state is None else state
            marker.actions.end_of_agent = is_end or None
            self.is_over = is_end

        for event in events:
            self.is_halted = self.is_halted or bool(event.long_running_tool_ids)
            if marker is not None:
                self.ctx.stored_later[event.id] = marker.id
            self.events.put(event)
        if marker is not None:
            await self.events.send(marker)

    def request_input(
        self,
        request_id: str,
        *,
        payload: JsonValue = None,
        message: str | None = None,
        response_schema: JsonValue = None,
    ) -> Event:
        """The event that asks a person for input. Its answer is in `inputs` of the turn that it continues.

        request_id: unique in the session.
        """
        arguments: JsonObject = {
            "interruptId": request_id,
            "payload": payload,
            "message": message,
            "response_schema": response_schema,
        }
        note_policy(arguments, self.ctx.services.approvals)
        event = self.new_event(Part(function_call=FunctionCall(id=request_id, name=REQUEST_INPUT, args=arguments)))
        event.long_running_tool_ids = [request_id]
        return event

    def request_approvals(self, calls: Sequence[FunctionCall], *, hints: Sequence[str] = ()) -> list[Event]:
        """The events that ask a person whether calls may be made. The decisions are in `decisions` of the turn that
        they continue.

        calls: with ids, and in an event that is stored before or with these.
        """
        confirmations = {
            call.id or "": ToolConfirmation(hint=hint)
            for call, hint in zip(calls, _padded(hints, len(calls)), strict=True)
        }
        responses = self.new_event(
            *(
                Part(
                    function_response=FunctionResponse(
                        id=call.id, name=call.name, response=awaiting_confirmation(call.name or "")
                    )
                )
                for call in calls
            ),
            role="user",
        )
        responses.actions.requested_tool_confirmations = confirmations
        responses.actions.skip_summarization = True
        note_policies(responses, dict.fromkeys(confirmations, self.ctx.services.approvals))

        request = request_event_for(responses, list(calls))
        assert request is not None
        return [request, responses]

    def model_call(self, *, model: str | None, provider_name: str) -> HostedModelCall:
        """A model call that the framework is about to make.

        provider_name: for traces, as OpenTelemetry lists it.
        """
        return HostedModelCall(self, model=model, provider_name=provider_name)

    async def end_with_error(self, refusal: ModelRefused, *, state: JsonObject | None = None) -> None:
        """Ends the turn with the error by which a model call, or what came of it, was refused.

        state: what has changed since the last one; None where nothing has.
        """
        event = self.ctx.new_event(actions=EventActions(end_of_agent=True, escalate=refusal.escalates or None))
        event.actions.agent_state = state
        event.usage_metadata = refusal.reply.usage_metadata
        event.error_code = refusal.reply.error_code
        event.error_message = refusal.reply.error_message
        event.custom_metadata = refusal.reply.custom_metadata
        self.is_over = True
        await self.events.send(event)


def _states_by_run(events: CopyOnWriteList[Event], thread: AgentThread) -> dict[str, list[int]]:
    """The indexes of the agent's states by run, in the order in which the runs began."""
    by_run: dict[str, list[int]] = {}
    log_state = log_state_of(events)
    for index in agent_state_indexes(events, thread):
        by_run.setdefault(log_state.run_with(events[index]), []).append(index)
    return by_run


def _states_at(events: CopyOnWriteList[Event], indexes: Iterable[int]) -> list[JsonObject]:
    """Returns the states at those indexes, without empty ones."""
    return [state for index in indexes if (state := events[index].actions.agent_state)]


async def _whole_log(ctx: InvocationContext) -> tuple[CopyOnWriteList[Event], int]:
    """The session's events from the first on, and the number of those that the run's view of the log leaves out."""
    events = ctx.session.events
    if not events.skipped and ctx.run_config.get_session_config is None:
        return events, 0

    key = ctx.session.key
    session = await ctx.services.sessions.get_session(**key._asdict())
    if session is None:
        raise SessionNotFound(**key._asdict())
    return session.events, len(session.events) - len(events)


def _new_messages(events: CopyOnWriteList[Event], ctx: InvocationContext, *, since: int) -> list[Content]:
    """The user's messages after that index of the log. An agent that others call as a tool gets only their request."""
    request = ctx.request or ctx.user_content
    if ctx.request is not None or ctx.isolation_scope is not None:
        return [request] if request is not None else []

    log_state = log_state_of(events)
    return [
        event.content
        for index, event in enumerate(events[since + 1 :], since + 1)
        if event.author == "user"
        and event.content is not None
        and event.isolation_scope is None
        and index not in log_state.rewound
        and not event.get_function_responses()
        and (event.invocation_id == ctx.invocation_id or not log_state.is_waiting(event.invocation_id))
    ]


def _padded(hints: Sequence[str], count: int) -> list[str]:
    return [*hints, *[""] * (count - len(hints))]
