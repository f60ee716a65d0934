"""Requests to people, as the inbox lists them: approvals, logins and input that waiting runs ask for.

The log of a session is the truth about a request; these records say where to look, and hold the answers of several
people until they decide it.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from greenroom.errors import InvalidRequest
from greenroom.records.base import JsonObject, JsonValue, Record, as_object
from greenroom.records.content import Content
from greenroom.records.human_requests import DECLINED, REQUEST_CONFIRMATION, REQUEST_CREDENTIAL, REQUEST_INPUT
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


class HumanRequest(Record, kw_only=True):
    """A request to people. Times are Unix seconds."""

    id: str
    """Unique among all sessions."""
    kind: RequestKind
    """The kind of answer."""
    status: RequestStatus
    """`cancelled` if its run ended, or went on, without an answer to it."""
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
    approvers: list[str] = msgspec.field(default_factory=list[str])
    """The users who may answer, and haven't yet."""
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

    @property
    def outcome(self) -> str:
        """Describes a closed request in a sentence."""
        if self.status is RequestStatus.CANCELLED:
            return "its run ended, or went on, without an answer to it"
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


class Answerer(Record, kw_only=True):
    """The person behind an answer."""

    user_id: str
    comment: str | None = None


class AnswerRequestResponse(Record, kw_only=True):
    """The request after an answer."""

    request: HumanRequest
    """With the answer."""
    run: Run | None = None
    """The run, which goes on if the answer decided the request; None for callers who may not see it."""


class RequestFilter(Record, kw_only=True):
    """A filter for lists of open requests; missing fields filter nothing."""

    app_names: list[str] | None = None
    user_id: str | None = None
    kinds: list[RequestKind] | None = None
    tool: str | None = None
    run_ids: list[str] | None = None
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


def answerers_of(request: HumanRequest) -> list[tuple[str, bool]]:
    """Those whom the stored request concerns, each with whether they may answer it now."""
    if request.status is not RequestStatus.OPEN:
        return []
    return [(f"user:{user_id}", True) for user_id in request.approvers]


def names_of(reader: Reader) -> list[str]:
    """The names in `answerers_of` that a reader has."""
    return [f"user:{reader.user_id}", *(f"scope:{scope}" for scope in reader.scopes)]


def may_see(reader: Reader, request: HumanRequest) -> bool:
    """Whether an open request is in the reader's lists."""
    names = names_of(reader)
    return request.app_name in reader.all_users_of or any(name in names for name, _ in answerers_of(request))


def may_answer(reader: Reader, request: HumanRequest) -> bool:
    """Whether the reader, as itself, may answer the request now."""
    names = names_of(reader)
    answerers = answerers_of(request)
    return any(name in names and may for name, may in answerers) and (names[0], False) not in answerers


def answer_message(request: HumanRequest, answer: RequestAnswer) -> Content:
    """The function response that a client would send to the session of the request. Raises InvalidRequest."""
    name = _FUNCTIONS.get(request.kind) or request.tool or REQUEST_INPUT
    return answer_to(request.call_id, name, _response(request.kind, answer))


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


_FUNCTIONS = {RequestKind.APPROVAL: REQUEST_CONFIRMATION, RequestKind.LOGIN: REQUEST_CREDENTIAL}
