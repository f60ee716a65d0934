"""Requests to people, as the inbox lists them: approvals, logins and input that waiting runs ask for.

The log of a session is the truth about a request; these records say where to look, and hold the answers of several
people until they decide it.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from greenroom.errors import InvalidRequest
from greenroom.records.approval_policy import ApprovalPolicy
from greenroom.records.base import JsonObject, JsonValue, Record, as_object
from greenroom.records.content import Content
from greenroom.records.human_requests import DECLINED, EXPIRES_AFTER_SECONDS
from greenroom.records.run import Run
from greenroom.records.session import SessionKey
from greenroom.records.wake_up import answer_to


class RequestKind(StrEnum):
    APPROVAL = "approval"
    LOGIN = "login"
    INPUT = "input"


class RequestStatus(StrEnum):
    OPEN = "open"
    ANSWERED = "answered"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    """Stored as open: it follows from the time."""


class GivenAnswer(Record, kw_only=True):
    """A person's answer to a request."""

    user_id: str
    """The person who answered."""
    answered_at: float
    """Unix seconds."""
    confirmed: bool | None = None
    """Whether an approval was given; None for other kinds."""
    comment: str | None = None
    """The person's words about it."""


class Delegation(Record, kw_only=True):
    """A person who named another one to answer."""

    from_user_id: str
    """The person who might have answered."""
    to_user_id: str
    """The person who answers instead."""
    at: float
    """Unix seconds."""
    comment: str | None = None
    """The person's words about it."""


class HumanRequest(Record, kw_only=True):
    """A request to people. Times are Unix seconds."""

    id: str
    """Unique among all sessions."""
    kind: RequestKind
    """The kind of answer."""
    status: RequestStatus
    """`cancelled` if its run ended, or went on, without an answer to it; `expired` if nobody answered it in 30 days,
    where that is a limit: not of input."""
    app_name: str
    """The app that runs."""
    user_id: str
    """The owner of the session."""
    session_id: str
    """The session of the run."""
    run_id: str
    """The run that waits."""
    call_id: str
    """Id of the function call in the session's log that waits for the answer."""
    function: str
    """The name of that function call."""
    agent: str
    """The agent that asks."""
    tool: str | None = None
    """The tool that needs the approval or login, or that asks for input; None for a workflow's node."""
    arguments: JsonObject | None = None
    """The arguments of the tool's call, as the log shows them. Of a login: what it is for."""
    message: str | None = None
    """The question."""
    payload: JsonValue = None
    """Data that comes with the question."""
    response_schema: JsonValue = None
    """JSON Schema of the answer to a request for input."""
    created_at: float
    """Time of the request."""
    deadline: float | None = None
    """Time at which the default answer is given; None if there is none."""
    policy: ApprovalPolicy | None = None
    """The app's policy; None if the session's user answers."""
    approvers: list[str] = msgspec.field(default_factory=list[str])
    """The users who may answer, and haven't yet. Callers with the scope of the policy may, too."""
    excluded: list[str] = msgspec.field(default_factory=list[str])
    """Users who may not answer: they did, have delegated it, or are the requester."""
    delegations: list[Delegation] = msgspec.field(default_factory=list[Delegation])
    """The persons who named others to answer, oldest first."""
    answers: list[GivenAnswer] = msgspec.field(default_factory=list[GivenAnswer])
    """The answers so far, oldest first."""
    confirmed: bool | None = None
    """The outcome of an approval; None while it is open."""
    closed_at: float | None = None
    """Time of the answer that decided it."""
    may_answer: bool = False
    """Whether the caller, as itself, may answer it now."""

    @property
    def session_key(self) -> SessionKey:
        return SessionKey(self.app_name, self.user_id, self.session_id)

    def as_of(self, now: float) -> HumanRequest:
        """The request with its status at a time, in Unix seconds."""
        is_open = self.status is RequestStatus.OPEN
        if is_open and self.kind is not RequestKind.INPUT and self.created_at < now - EXPIRES_AFTER_SECONDS:
            return msgspec.structs.replace(self, status=RequestStatus.EXPIRED)
        return self

    def may_be_answered_by(self, user_id: str, scopes: Sequence[str] | None) -> bool:
        """scopes: those of the caller; None if it has all."""
        if self.status is not RequestStatus.OPEN or user_id in self.excluded:
            return False
        scope = self.policy.scope if self.policy is not None else None
        return user_id in self.approvers or (scope is not None and (scopes is None or scope in scopes))

    def concerns(self, user_id: str, scopes: Sequence[str]) -> bool:
        """Whether the user is one of those who answer the request or have answered it."""
        policy = self.policy
        users = {*self.approvers, *(policy.users if policy is not None else ())}
        users.update(answer.user_id for answer in self.answers)
        users.update(user for one in self.delegations for user in (one.from_user_id, one.to_user_id))
        return user_id in users or (policy is not None and policy.scope in scopes)

    @property
    def outcome(self) -> str:
        """Describes a closed request in a sentence."""
        if self.status is RequestStatus.CANCELLED:
            return "its run ended, or went on, without an answer to it"
        if self.status is RequestStatus.EXPIRED:
            return "it was not answered within 30 days"
        users = ", ".join(repr(answer.user_id) for answer in self.answers)
        by_whom = f" by user {users}" if users else ""
        if self.confirmed is None:
            return f"it was answered{by_whom}"
        return f"it was {'approved' if self.confirmed else 'refused'}{by_whom}"


class RequestAnswer(Record, kw_only=True):
    """Body of `/requests/{request_id}/answer`."""

    confirmed: bool | None = None
    """The decision on an approval, which must have one; false declines a login."""
    payload: JsonValue = None
    """Of an approval: what its tool asks for; without a payload in the request, arguments in place of the model's."""
    response: JsonValue = None
    """The answer to a request for input; of a login, the credential in one of the forms that `/run` takes."""
    comment: str | None = None
    """Kept with the answer."""
    user_id: str | None = None
    """The person who answers, for callers that act for all users of the app; by default the caller itself."""


class DelegateRequest(Record, kw_only=True):
    """Body of `/requests/{request_id}/delegate`."""

    user_id: str
    """The person who is to answer."""
    from_user_id: str | None = None
    """The person who may answer, for callers that act for all users of the app; by default the caller itself."""
    comment: str | None = None
    """Kept with the delegation."""


class Answerer(Record, kw_only=True):
    """The person behind an answer."""

    user_id: str
    scopes: list[str] | None = None
    """Those of the caller; None without authentication, which has all."""
    acts_for: str | None = None
    """A user for whom the caller acts, too."""
    comment: str | None = None


class AnswerRequestResponse(Record, kw_only=True):
    """The request after an answer."""

    request: HumanRequest
    """With the answer."""
    run: Run | None = None
    """The run, which continues if the answer decided the request; None for callers who may not see it."""


class RequestFilter(Record, kw_only=True):
    """A filter for lists of requests; missing fields filter nothing."""

    app_names: list[str] | None = None
    user_id: str | None = None
    kinds: list[RequestKind] | None = None
    tool: str | None = None
    run_ids: list[str] | None = None
    with_closed: bool = False
    """Also requests that were answered or cancelled."""
    open_at: float | None = None
    """Unix seconds; only what has not expired then."""
    seen_by: Reader | None = None
    """Only what this reader may see."""
    answered_by: Reader | None = None
    """Only what this reader may answer now."""


class Reader(Record, kw_only=True):
    """A person who reads lists of requests."""

    user_id: str
    scopes: list[str] = msgspec.field(default_factory=list[str])
    all_users_of: list[str] = msgspec.field(default_factory=list[str])
    """Apps of which it sees the requests of all users."""


class RequestChanges(Record, kw_only=True):
    """Changes of the stored requests of a run, written with the run's record."""

    added: list[HumanRequest] = msgspec.field(default_factory=list[HumanRequest])
    """Open ones; nothing is changed of those that are stored already."""
    answered: list[HumanRequest] = msgspec.field(default_factory=list[HumanRequest])
    cancelled: list[str] = msgspec.field(default_factory=list[str])
    """Ids."""


class ListRequestsResponse(Record, kw_only=True, omit_defaults=False):
    """A page of a list of requests to people."""

    requests: list[HumanRequest] = msgspec.field(default_factory=list[HumanRequest])
    """Open ones, newest first."""
    next_page_token: str | None = None
    """`page_token` of the next request; None on the last page."""


_SEES = 0
_MAY_ANSWER = 1
_MAY_NOT_ANSWER = -1


def answerers_of(request: HumanRequest) -> dict[str, int]:
    """Those whom an open request concerns, by name: 1 if they may answer, -1 if they may not though another of their
    names may, 0 if they only see it.
    """
    if request.status is not RequestStatus.OPEN:
        return {}
    names = {f"user:{request.user_id}": _SEES}
    if request.policy is not None and request.policy.scope is not None:
        names[f"scope:{request.policy.scope}"] = _MAY_ANSWER
    names.update({f"user:{user_id}": _MAY_ANSWER for user_id in request.approvers})
    names.update({f"user:{user_id}": _MAY_NOT_ANSWER for user_id in request.excluded})
    return names


def names_of(reader: Reader) -> list[str]:
    """The names in `answerers_of` that a reader has."""
    return [f"user:{reader.user_id}", *(f"scope:{scope}" for scope in reader.scopes)]


def may_see(reader: Reader, request: HumanRequest) -> bool:
    """Whether an open request is in the reader's lists."""
    return request.app_name in reader.all_users_of or not answerers_of(request).keys().isdisjoint(names_of(reader))


def may_answer(reader: Reader, request: HumanRequest) -> bool:
    """Whether the reader, as itself, may answer the request now."""
    return request.may_be_answered_by(reader.user_id, reader.scopes)


def answer_message(request: HumanRequest, answer: RequestAnswer) -> Content:
    """The function response that a client would send to the session of the request. Raises InvalidRequest."""
    return answer_to(request.call_id, request.function, _response(request.kind, answer))


def _response(kind: RequestKind, answer: RequestAnswer) -> JsonObject:
    if kind is RequestKind.APPROVAL:
        if answer.confirmed is None:
            raise InvalidRequest("An approval needs an answer with `confirmed`", location=("body", "confirmed"))
        payload = {} if answer.payload is None else {"payload": answer.payload}
        return {"confirmed": answer.confirmed, **payload}
    if kind is RequestKind.LOGIN and answer.confirmed is False:
        return dict(DECLINED)
    if answer.response is None:
        raise InvalidRequest(f"A request for {kind} needs an answer with `response`", location=("body", "response"))
    response = as_object(answer.response)
    if response and response.keys() not in ({"result"}, {"response"}):
        return response
    return {"result": answer.response}  # readers of answers unwrap it
