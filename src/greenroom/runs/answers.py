"""The answers of a message to requests to people: whose they are, whether they may be given, and what they decide.

A request with a policy may need several answers: until it is decided, they are counted as votes, and the run gets none.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import NamedTuple

from greenroom.errors import ApprovalRefused, RequestClosed
from greenroom.log.inbox import open_requests
from greenroom.log.state import log_state_of
from greenroom.records.approval_policy import policy_of
from greenroom.records.content import Content, FunctionResponse, Part
from greenroom.records.human_requests import request_digest, responses_in
from greenroom.records.inbox import Answerer, HumanRequest, RequestChanges, RequestStatus
from greenroom.records.run import Caller, Run
from greenroom.records.session import Session, SessionKey
from greenroom.runs.engine import OpenCall
from greenroom.runs.store import RunStore
from greenroom.runs.voting import with_answer, with_answers


class Answers(NamedTuple):
    """The answers of a message to requests to people."""

    message: Content | None
    """The message without answers that leave their requests open; None if nothing is left of it."""
    decided: list[HumanRequest]
    undecided: list[HumanRequest]

    @property
    def changes(self) -> RequestChanges | None:
        """To store with the run's record."""
        if not self.decided and not self.undecided:
            return None
        return RequestChanges(answered=[*self.decided, *self.undecided])


async def count_answers(
    run_store: RunStore, earlier: Run, session: Session, message: Content | None, answerer: Answerer | None
) -> Answers:
    """The answers of a message, counted by the policies of the requests that it answers. Stores nothing.

    Raises NotApprover, InvalidRequest, RequestClosed.
    """
    now = time.time()
    parts: list[Part] = []
    answers = Answers(message, [], [])
    for part in (message.parts if message is not None else None) or ():
        response = part.function_response
        request = await _request_to_people(run_store, earlier, session, response) if response is not None else None
        if response is None or request is None:
            parts.append(part)
            continue
        voted = with_answer(request, response, answerer, at=now)
        if voted.status is RequestStatus.OPEN:
            answers.undecided.append(voted)
            continue
        answers.decided.append(voted)
        parts.append(with_answers(part, voted) if request.policy is not None else part)

    is_unchanged = not answers.undecided and not any(request.policy for request in answers.decided)
    if is_unchanged:
        return answers
    return answers._replace(message=Content(role="user", parts=parts) if parts else None)


async def _request_to_people(
    run_store: RunStore, earlier: Run, session: Session, response: FunctionResponse
) -> HumanRequest | None:
    """The request that a response answers; None for other calls."""
    request_id = earlier.requests.get(response.id or "")
    if request_id is not None:
        stored = await run_store.get_request(request_id)
        if stored is not None:
            if stored.status is not RequestStatus.OPEN:
                raise RequestClosed(stored.id, stored.outcome)
            return stored

    logged = log_state_of(session.events)
    asked = logged.find_request(response.id)
    if asked is None or policy_of(asked.call) is None:
        return None
    requests = open_requests(earlier, logged.run(earlier.id), session.events)
    made = next((request for request in requests if request.call_id == response.id), None)
    if made is None:
        raise ApprovalRefused("no run of this session asks for it")
    return await run_store.get_request(made.id) or made


def check_asked(session: Session, message: Content | None, pending: Mapping[str, str]) -> None:
    """Raises ApprovalRefused if the message answers a request that no run of this session made, or a different one: a
    log that a client imported contains requests, too.
    """
    log_state = log_state_of(session.events)
    for response in responses_in(message):
        request = log_state.find_request(response.id)
        if request is not None and pending.get(response.id or "") != request_digest(request.event, request.call):
            raise ApprovalRefused("no run of this session asks for it")


def answerer_of(open_call: OpenCall | None, caller: Caller | None, key: SessionKey) -> Answerer | None:
    """The person who answers; None if a time does."""
    if open_call is not None:
        return open_call.answerer
    if caller is None:
        return Answerer(user_id=key.user_id)
    return Answerer(user_id=caller.user_id, scopes=caller.scopes, acts_for=key.user_id)
