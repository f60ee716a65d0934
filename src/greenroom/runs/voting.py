"""Answers of several people to one request, by its policy.

bob, carol and dave may answer, two are required
bob approves      it stays open: carol and dave may answer
carol refuses     it stays open: dave may answer
dave approves     it is approved; had he refused, it would be refused
"""

from __future__ import annotations

import msgspec

from greenroom.errors import InvalidRequest, NotApprover, RequestClosed
from greenroom.records import wire
from greenroom.records.base import as_object
from greenroom.records.content import FunctionCall, FunctionResponse, Part
from greenroom.records.human_requests import REQUEST_CONFIRMATION, read_confirmation, read_input
from greenroom.records.inbox import Answerer, Delegation, GivenAnswer, HumanRequest, RequestKind, RequestStatus

_METADATA_KEY = "greenroom_answers"
"""In `part_metadata` of the function response: the people's answers."""


def with_answer(
    request: HumanRequest, response: FunctionResponse, answerer: Answerer | None, *, at: float
) -> HumanRequest:
    """The request with a person's answer, which may decide it. None answers for the policy's deadline.

    Raises NotApprover, RequestClosed for a request that has expired, and InvalidRequest for a payload that several
    people would have to agree on.
    """
    policy = request.policy
    confirmed = _is_confirmed(request, response) if request.kind is RequestKind.APPROVAL else None
    if answerer is None:
        return _closed(request, confirmed, at)
    if (expired := request.as_of(at)).status is RequestStatus.EXPIRED:
        raise RequestClosed(request.id, expired.outcome)
    user_id = answerer.user_id
    if policy is not None:
        user_id = _voter(request, answerer)
        if policy.required > 1 and _payload(response) is not None:
            raise InvalidRequest("Where several people approve, no payload is accepted", location=("body", "payload"))

    answer = GivenAnswer(user_id=user_id, answered_at=at, confirmed=confirmed, comment=answerer.comment)
    voted = msgspec.structs.replace(
        request,
        answers=[*request.answers, answer],
        approvers=[user for user in request.approvers if user != user_id],
        excluded=[*request.excluded, user_id],
    )
    if policy is None or confirmed is None:
        return _closed(voted, confirmed, at)

    approvals = sum(one.confirmed is True for one in voted.answers)
    refusals = len(voted.answers) - approvals
    if approvals >= policy.required:
        return _closed(voted, True, at)
    is_out_of_reach = policy.scope is None and approvals + len(voted.approvers) < policy.required
    if refusals >= policy.required or is_out_of_reach:
        return _closed(voted, False, at)
    return voted


def delegated(request: HumanRequest, answerer: Answerer, to_user_id: str, *, at: float) -> HumanRequest:
    """The request with another person in the place of one who may answer it. Raises NotApprover, InvalidRequest."""
    policy = request.policy
    user_id = _voter(request, answerer)
    if policy is None or not policy.may_delegate:
        raise NotApprover("its policy allows no delegation")
    is_requester = policy.excludes_requester and to_user_id == request.user_id
    has_answered = any(answer.user_id == to_user_id for answer in request.answers)
    if is_requester or has_answered or to_user_id == user_id or to_user_id in request.approvers:
        raise InvalidRequest(f"User {to_user_id!r} can't answer it in place of another", location=("body", "userId"))

    delegation = Delegation(from_user_id=user_id, to_user_id=to_user_id, at=at, comment=answerer.comment)
    return msgspec.structs.replace(
        request,
        approvers=[*(user for user in request.approvers if user != user_id), to_user_id],
        excluded=[*(user for user in request.excluded if user != to_user_id), user_id],
        delegations=[*request.delegations, delegation],
    )


def with_answers(part: Part, request: HumanRequest) -> Part:
    """The function response that goes to the log for a decided request: that of its only answer, or the decision of
    several people. Its metadata says who answered.
    """
    response = part.function_response
    if response is not None and request.policy is not None and request.policy.required > 1 and request.answers:
        response = FunctionResponse(id=response.id, name=response.name, response={"confirmed": request.confirmed})
    answers = [wire.to_plain(answer) for answer in request.answers]
    return Part(function_response=response, part_metadata={_METADATA_KEY: answers})


def _voter(request: HumanRequest, answerer: Answerer) -> str:
    """The user who answers. Raises NotApprover."""
    if request.may_be_answered_by(answerer.user_id, answerer.scopes):
        return answerer.user_id
    if answerer.acts_for is not None and request.may_be_answered_by(answerer.acts_for, []):
        return answerer.acts_for
    if any(answer.user_id == answerer.user_id for answer in request.answers):
        raise NotApprover(f"user {answerer.user_id!r} has answered it")
    who = [*map(repr, request.approvers)]
    if request.policy is not None and request.policy.scope is not None:
        who.append(f"callers with the scope {request.policy.scope!r}")
    raise NotApprover(f"it waits for {', '.join(who) or 'nobody'}, not for user {answerer.user_id!r}")


def _closed(request: HumanRequest, confirmed: bool | None, at: float) -> HumanRequest:
    return msgspec.structs.replace(
        request, status=RequestStatus.ANSWERED, approvers=[], confirmed=confirmed, closed_at=at
    )


def _is_confirmed(request: HumanRequest, response: FunctionResponse) -> bool:
    if request.function == REQUEST_CONFIRMATION:
        return read_confirmation(response).confirmed
    answer = read_input(FunctionCall(id=request.call_id, name=request.function, args={}), response)
    return answer is True or as_object(answer).get("confirmed") is True


def _payload(response: FunctionResponse) -> object:
    if response.name == REQUEST_CONFIRMATION:
        return read_confirmation(response).payload
    return as_object(response.response).get("payload")
