"""Turns the events of a session into the invocations that metrics compare, and cases."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from greenroom.errors import InvalidRequest
from greenroom.evaluation.records import (
    DEFAULT_USER,
    RESPONSE_RUBRICS,
    AppDetails,
    CaseSource,
    EvalCase,
    IntermediateData,
    Invocation,
    InvocationEvent,
    RecordedResult,
    Rubric,
    RubricContent,
    SessionInput,
    text_of,
)
from greenroom.log.state import kept_events
from greenroom.records import wire
from greenroom.records.base import JsonObject
from greenroom.records.content import Content
from greenroom.records.event import Event
from greenroom.records.feedback import Feedback
from greenroom.records.identifiers import new_invocation_id
from greenroom.records.session import Session
from greenroom.records.state import apply_delta


def invocations_of(
    events: Iterable[Event],
    app_details: AppDetails | None = None,
) -> list[Invocation]:
    """Returns one invocation for each message of the user, in order.

    The final response is the last event that is one; an earlier one counts if the last has no text. Its content is not
    repeated among the other events unless it has calls, but its usage is.
    """
    turns: dict[str, list[Event]] = {}
    for event in events:
        if event.invocation_id and not event.partial:
            turns.setdefault(event.invocation_id, []).append(event)
    invocations = (_invocation(turn, app_details) for turn in turns.values())
    return [invocation for invocation in invocations if invocation is not None]


def _invocation(events: Sequence[Event], app_details: AppDetails | None) -> Invocation | None:
    message = next((event for event in events if event.author == "user" and event.content is not None), None)
    if message is None or message.content is None:
        return None

    answers = [event for event in events if event.author != "user"]
    invocation = invocation_of(message.content, answers, app_details)
    invocation.invocation_id = message.invocation_id or ""
    invocation.creation_timestamp = message.timestamp
    invocation.duration = max((event.timestamp for event in answers), default=message.timestamp) - message.timestamp

    return invocation


def invocation_of(
    message: Content,
    events: Sequence[Event],
    app_details: AppDetails | None = None,
) -> Invocation:
    """Builds the invocation of a message from the agents' events that followed it."""
    finals = [event for event in events if event.is_final_response() and event.content and event.content.parts]
    final = next((event for event in reversed(finals) if text_of(event.content)), finals[-1] if finals else None)
    return Invocation(
        invocation_id=(events[0].invocation_id or "") if events else "",
        user_content=message,
        final_response=final.content if final is not None else None,
        intermediate_data=IntermediateData(
            invocation_events=[_intermediate(event, event is final) for event in events if _counts(event)]
        ),
        app_details=app_details,
    )


def _intermediate(event: Event, is_final: bool) -> InvocationEvent:
    is_repeated = is_final and not event.get_function_calls()
    return InvocationEvent(
        author=event.author,
        content=None if is_repeated else event.content,
        grounding_metadata=event.grounding_metadata,
        usage_metadata=event.usage_metadata,
        model_version=event.model_version,
    )


def _counts(event: Event) -> bool:
    if event.is_internal() or event.is_checkpoint():
        return False
    parts = (event.content.parts if event.content else None) or ()
    has_content = any(part.text or part.function_call or part.function_response or part.inline_data for part in parts)
    return has_content or event.grounding_metadata is not None or event.usage_metadata is not None


def case_of_session(session: Session, eval_id: str) -> EvalCase:
    """Converts a session's conversation to a case that expects the recorded answers. Raises InvalidRequest."""
    conversation = invocations_of(kept_events(session.events))
    if not conversation:
        raise InvalidRequest(f"Session {session.id!r} has no message of a user")

    return EvalCase(
        eval_id=eval_id,
        conversation=conversation,
        session_input=SessionInput(app_name=session.app_name, user_id=session.user_id),
    )


def case_of_answer(
    session: Session,
    event_id: str,
    eval_id: str,
    *,
    feedback: Sequence[Feedback] = (),
    app_version: str | None = None,
) -> EvalCase:
    """Makes a case of the conversation up to an answer, which has to be given better.

    The messages before the one that was answered are given, and tools answer with their recorded results. Comments of
    the feedback become rubrics. No answer and no calls are expected.

    Raises InvalidRequest for an event that answers no message, or that a rewind or a retry took back.
    """
    kept = kept_events(session.events)
    index = next((index for index, event in enumerate(kept) if event.id == event_id), None)
    if index is None:
        raise InvalidRequest(f"Event {event_id!r} doesn't count any more: a rewind or a retry took it back")

    event = kept[index]
    first = next(index for index, other in enumerate(kept) if other.invocation_id == event.invocation_id)
    conversation = invocations_of(kept[: index + 1])
    answered = next((turn for turn in conversation if turn.invocation_id == event.invocation_id), None)
    if event.author == "user" or answered is None:
        raise InvalidRequest(f"Event {event_id!r} is no answer to a message of a user")

    given = [turn for turn in conversation if turn is not answered]
    asked = Invocation(
        invocation_id=answered.invocation_id,
        user_content=answered.user_content,
        creation_timestamp=answered.creation_timestamp,
    )
    return EvalCase(
        eval_id=eval_id,
        conversation=[*given, asked],
        given_turns=len(given) or None,
        session_input=SessionInput(
            app_name=session.app_name, user_id=DEFAULT_USER, state=_state_before(session, kept[:first])
        ),
        rubrics=[_rubric(number, one) for number, one in enumerate(feedback, 1) if one.comment] or None,
        tool_results=tool_results_of(conversation),
        source=CaseSource(
            user_id=session.user_id,
            session_id=session.id,
            event_id=event_id,
            run_id=event.invocation_id,
            app_version=app_version,
            feedback=list(feedback),
            answer=answered,
        ),
    )


def _state_before(session: Session, earlier: Iterable[Event]) -> JsonObject:
    """The state after earlier events of a session. State that no event set is the initial state."""
    from greenroom.plugins.replay import comparable_state  # imports yaml

    changed = {key for event in session.events for key in event.actions.state_delta}
    state = {key: value for key, value in session.state.items() if key not in changed}
    for event in earlier:
        apply_delta(state, event.actions.state_delta)
    return comparable_state(state)


def _rubric(number: int, feedback: Feedback) -> Rubric:
    score = "" if feedback.score is None else f" with the score {wire.encode(feedback.score).decode()}"
    return Rubric(
        rubric_id=f"feedback_{number}",
        rubric_content=RubricContent(
            text_property=(
                f"An earlier answer to the same message got this feedback on {feedback.name!r}{score}: "
                f"“{feedback.comment}”. This answer does what the feedback asks for."
            )
        ),
        description=f"Feedback {feedback.id} of {feedback.subject}",
        type=RESPONSE_RUBRICS,
    )


def tool_results_of(conversation: Iterable[Invocation]) -> dict[str, list[RecordedResult]]:
    """The results of the calls in a conversation, by tool."""
    results_by_tool: dict[str, list[RecordedResult]] = {}
    for turn in conversation:
        responses = {answer.id: answer for answer in turn.steps.responses()}
        for call in turn.calls():
            if (response := responses.get(call.id)) is not None and call.name:
                result = RecordedResult(args=call.args or {}, response=response.response or {})
                results_by_tool.setdefault(call.name, []).append(result)

    return results_by_tool


def events_of(turns: Iterable[Invocation], agent_name: str) -> Iterator[Event]:
    """The events of a conversation, for a session that begins with it.

    agent_name: the author of final responses that have no other.
    """
    for turn in turns:
        invocation_id = turn.invocation_id or new_invocation_id()
        yield Event(author="user", invocation_id=invocation_id, content=turn.user_content)

        answers = turn.steps.invocation_events or ()
        for answer in answers:
            if answer.content is not None:
                yield Event(author=answer.author, invocation_id=invocation_id, content=answer.content)

        final = turn.final_response
        if final is not None and all(answer.content != final for answer in answers):
            author = next((answer.author for answer in reversed(answers) if answer.content is None), agent_name)
            yield Event(author=author, invocation_id=invocation_id, content=final)


def transcript(invocations: Iterable[Invocation]) -> list[tuple[str, str]]:
    """Author and text of each message, calls and responses left out."""
    lines: list[tuple[str, str]] = []
    for invocation in invocations:
        lines.append(("user", text_of(invocation.user_content) or ""))
        lines += invocation.steps.texts()
        if (text := invocation.text()) is not None:
            lines.append(("agent", text))
    return lines
