"""Turns the events of a session into the invocations that metrics compare, and cases."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from greenroom.errors import InvalidRequest
from greenroom.evaluation.records import (
    AppDetails,
    EvalCase,
    IntermediateData,
    Invocation,
    InvocationEvent,
    SessionInput,
    text_of,
)
from greenroom.log.state import kept_events
from greenroom.records.content import Content
from greenroom.records.event import Event
from greenroom.records.session import Session


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


def transcript(invocations: Iterable[Invocation]) -> list[tuple[str, str]]:
    """Author and text of each message, calls and responses left out."""
    lines: list[tuple[str, str]] = []
    for invocation in invocations:
        lines.append(("user", text_of(invocation.user_content) or ""))
        lines += invocation.steps.texts()
        if (text := invocation.text()) is not None:
            lines.append(("agent", text))
    return lines
