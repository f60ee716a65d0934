"""Adds answers with feedback to evaluation sets."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple

from greenroom.errors import CallerError, InvalidRequest
from greenroom.evaluation.files import EvalFiles
from greenroom.evaluation.invocations import case_of_answer
from greenroom.evaluation.records import EvalCase
from greenroom.records.content import ModelContent
from greenroom.records.eval_cases import AddCasesResponse, CaseOfAnswer
from greenroom.records.feedback import Feedback
from greenroom.records.session import Session, SessionKey


class AnswerSources(NamedTuple):
    """Reads the answers of an app, and what is known about them."""

    get_session: Callable[[SessionKey], Awaitable[Session | None]]
    get_app_version: Callable[[str], Awaitable[str | None]]
    """Takes the id of a run; returns None where it isn't known."""
    list_feedback: Callable[[SessionKey, str], Awaitable[Sequence[Feedback]]]
    """The feedback on an event."""


async def add_answers(
    files: EvalFiles,
    set_id: str,
    answers: Iterable[tuple[SessionKey, str]],
    sources: AnswerSources,
    *,
    app_name: str,
    expected_response: str | None = None,
) -> AddCasesResponse:
    """Makes a case of each answer that has none in the set yet, and creates a missing set.

    answers: sessions and ids of events. Raises CallerError for an id that can't name a set.
    """
    eval_set = await files.get_or_create_set(app_name, set_id)
    known = {case.eval_id for case in eval_set.eval_cases}
    response = AddCasesResponse(eval_set_id=set_id, eval_set_version=eval_set.version)
    cases: list[EvalCase] = []

    for key, event_id in dict.fromkeys(answers):
        eval_id = re.sub(r"\W", "_", f"{key.session_id}_{event_id}", flags=re.ASCII)[:200]
        answer = CaseOfAnswer(eval_id=eval_id, user_id=key.user_id, session_id=key.session_id, event_id=event_id)
        try:
            if eval_id in known:
                raise CallerError("The answer has a case in the set already")
            case = await _case(key, event_id, eval_id, sources)
            if expected_response is not None and case.conversation:
                case.conversation[-1].final_response = ModelContent(expected_response)
            case.check()
        except (CallerError, InvalidRequest) as error:
            answer.reason = error.detail
            response.skipped.append(answer)
        else:
            cases.append(case)
            response.added.append(answer)

    if cases:
        response.eval_set_version = await files.add_cases(app_name, set_id, *cases)
    return response


async def _case(key: SessionKey, event_id: str, eval_id: str, sources: AnswerSources) -> EvalCase:
    """Raises InvalidRequest for an event of which no case can be made."""
    session = await sources.get_session(key)
    if session is None:
        raise InvalidRequest(f"Session {key.session_id!r} was deleted in the meantime")

    feedback = await sources.list_feedback(key, event_id)
    run_id = next((event.invocation_id for event in session.events if event.id == event_id), "")
    app_version = await sources.get_app_version(run_id) if run_id else None
    return case_of_answer(session, event_id, eval_id, feedback=feedback, app_version=app_version)
