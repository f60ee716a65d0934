"""From a user's message to the first event of a run, and which agent takes it.

Source: ADK's runner. A message of function responses continues the run, and goes to the agent, that made the calls;
otherwise the agent that spoke last keeps the conversation, unless it may not be left for its parent.
"""

from __future__ import annotations

import copy
import logging
from typing import NamedTuple

from greenroom.agents.agent import BaseAgent
from greenroom.agents.agent_tool import caller_of
from greenroom.agents.llm_agent import LlmAgent
from greenroom.agents.transfer import entry_agent
from greenroom.errors import ApprovalRefused, InvalidRequest, RunNotFound
from greenroom.invocation.context import InvocationContext
from greenroom.log.rewind import rewound_indexes
from greenroom.log.state import LogState, log_state_of
from greenroom.records.base import JsonObject
from greenroom.records.content import Content, Part
from greenroom.records.copy_on_write import CopyOnWriteList
from greenroom.records.event import Event, EventActions
from greenroom.records.human_requests import is_input_request, read_input, responses_in
from greenroom.records.run import RunConfig, StreamingMode
from greenroom.records.session import GetSessionConfig

SINCE_COMPACTION = GetSessionConfig(from_compaction=True)


def needs_older_events(events: CopyOnWriteList[Event], message: Content | None, invocation_id: str | None) -> bool:
    """Whether a message continues a run, or answers a call, that is not among the events that were loaded."""
    answered = [response.id for response in responses_in(message)]
    if invocation_id is None and not answered:
        return False
    log_state = log_state_of(events)
    is_older = invocation_id is not None and not log_state.has_run(invocation_id)
    return is_older or not all(map(log_state.has_call, answered))


def check_run(
    events: CopyOnWriteList[Event], message: Content | None, state_delta: JsonObject | None, invocation_id: str | None
) -> None:
    """Raises RunNotFound for the id of a run to continue, with nothing new, that the session doesn't have."""
    if invocation_id is None or message is not None or state_delta:
        return
    if not log_state_of(events).has_run(invocation_id):
        raise RunNotFound(invocation_id)


class Intake(NamedTuple):
    """A message that was checked against its session. answered: the event with the calls that it answers, or of the
    task that waits for it."""

    message: Content | None
    answered: Event | None
    invocation_id: str

    @property
    def is_for_task(self) -> bool:
        return self.answered is not None and not responses_in(self.message)


_PARTS = ("body", "newMessage", "parts")


def check_is_of_one_kind(message: Content | None) -> None:
    """Raises InvalidRequest for function responses beside other parts, which ADK's interfaces refuse, too.

    Other protocols send both in one request; their gates put the responses first.
    """
    parts = (message.parts if message is not None else None) or ()
    responses = sum(part.function_response is not None for part in parts)
    if 0 < responses < len(parts) and not any(part.function_call is not None for part in parts):
        raise InvalidRequest("A message holds either function responses or other parts, not both", location=_PARTS)


def checked_message(message: Content | None) -> Content | None:
    """The message as a user's. Raises InvalidRequest for one with function calls."""
    if message is None:
        return None
    if any(part.function_call is not None for part in message.parts or ()):
        raise InvalidRequest("A user's message can't hold function calls", location=_PARTS)
    return message if message.role == "user" else Content(role="user", parts=message.parts)


def answered_call(events: CopyOnWriteList[Event], message: Content | None) -> Event | None:
    """The event with the calls that this message answers; None when it is not an answer.

    Raises InvalidRequest when it answers calls that are not a client's to answer, or calls of several runs.
    """
    responses = responses_in(message)
    if not responses:
        return None
    log_state = log_state_of(events)
    calling = [log_state.call_to_answer(response, location=_PARTS) for response in responses]
    if any(event.invocation_id != calling[0].invocation_id for event in calling):
        raise InvalidRequest("The function responses answer calls of several runs", location=_PARTS)
    return calling[0]


def check_inputs(log_state: LogState, message: Content | None) -> None:
    """Checks a message's answers to the requests of workflows' nodes.

    Raises InvalidRequest for an answer that does not fit the request's schema, and ApprovalRefused for one to what was
    answered before, or given twice.
    """
    seen: set[str | None] = set()
    for response in responses_in(message):
        request = log_state.find_request(response.id)
        if request is None or not is_input_request(request.call):
            continue
        log_state.refuse_second(request)
        if response.id in seen:
            raise ApprovalRefused("the same message answers it twice")
        seen.add(response.id)
        read_input(request.call, response)


def user_event(intake: Intake, message: Content | None, state_delta: JsonObject | None) -> Event | None:
    """The user's event. A message to a task has the scope of the task."""
    if message is None and not state_delta:
        return None
    actions = EventActions(state_delta=dict(state_delta or {}))
    event = Event(invocation_id=intake.invocation_id, author="user", content=message, actions=actions)
    if intake.answered is not None and intake.is_for_task:
        event.isolation_scope = intake.answered.isolation_scope
    return event


def next_agent(
    root: BaseAgent, events: CopyOnWriteList[Event], answered: Event | None, *, before: int | None = None
) -> BaseAgent:
    """The agent that takes the next turn; with `before`, the one that took the turn at that index of the log."""
    if answered is not None:
        caller = root.find_agent(entry_agent(events, caller_of(events, answered)))
        if caller is not None:
            return _where_to_enter(caller)
    if not root.sub_agents:
        return root
    rewound = rewound_indexes(events)
    for index in range((len(events) if before is None else before) - 1, -1, -1):
        event = events[index]
        if (
            index in rewound
            or event.author == "user"
            or event.isolation_scope is not None
            or (event.error_code is not None and event.content is None)
        ):
            continue
        target = event.actions.transfer_to_agent
        agent = root.find_agent(target) if target else None
        agent = agent or root.find_agent(event.author)
        if agent is root:
            return root
        if agent is not None and _keeps_the_conversation(agent):
            return agent
    return root


def _where_to_enter(agent: BaseAgent) -> BaseAgent:
    """Below a workflow agent nothing is entered directly: the topmost one resumes from its own checkpoint."""
    entry, above = agent, agent.parent_agent
    while above is not None:
        if not isinstance(above, LlmAgent):
            entry = above
        above = above.parent_agent
    return entry


def _keeps_the_conversation(agent: BaseAgent) -> bool:
    above: BaseAgent | None = agent
    while above is not None:
        if (
            not isinstance(above, LlmAgent)
            or above.is_delegate
            or (above.parent_agent is not None and above.disallow_transfer_to_parent)
        ):
            return False
        above = above.parent_agent
    return True


_log = logging.getLogger("greenroom.runner")


async def save_blobs(message: Content, ctx: InvocationContext) -> tuple[Content, dict[str, int]]:
    """The message with a text instead of each file, and the versions that were saved, by name.

    Without an artifact service the message stays as it is.
    """
    parts = list(message.parts or ())
    files = [at for at, part in enumerate(parts) if part.inline_data is not None]
    if not files:
        return message, {}
    if ctx.artifact_service is None:
        _log.warning("files of run %s stay in its message: there is no artifact service", ctx.invocation_id)
        return message, {}
    versions: dict[str, int] = {}
    for at in files:
        name = f"artifact_{ctx.invocation_id}_{at}"
        key = ctx.session.key._asdict()
        versions[name] = await ctx.artifact_service.save_artifact(**key, filename=name, artifact=parts[at])
        parts[at] = Part(text=f"Uploaded file: {name}. It was saved as an artifact.")
    return Content(role=message.role, parts=parts), versions


_MEDIA = ("audio/", "video/", "image/")


def live_config(run_config: RunConfig) -> RunConfig:
    """The settings with the defaults of a live run: it answers with audio, unless they say otherwise."""
    config = copy.copy(run_config)
    config.streaming_mode = StreamingMode.BIDI
    config.response_modalities = run_config.response_modalities or ["AUDIO"]
    return config


def holds_media(event: Event) -> bool:
    """Whether the event holds inline audio, video or images."""
    parts = (event.content.parts if event.content is not None else None) or ()
    return any(part.inline_data is not None and (part.inline_data.mime_type or "").startswith(_MEDIA) for part in parts)
