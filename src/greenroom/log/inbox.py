"""The open requests to people of a run that waits, as its log shows them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from greenroom.log.run_state import RunState
from greenroom.records.approval_policy import ApprovalPolicy, deadline_of, policy_of
from greenroom.records.base import JsonObject, as_object
from greenroom.records.content import FunctionCall
from greenroom.records.event import Event
from greenroom.records.human_requests import (
    REQUEST_CONFIRMATION,
    REQUEST_CREDENTIAL,
    REQUEST_INPUT,
    is_input_request,
    is_node_confirmation,
    original_call,
    request_digest,
    requests_in,
)
from greenroom.records.inbox import HumanRequest, RequestKind, RequestStatus
from greenroom.records.run import Run

_ASKING_TOOLS = frozenset({REQUEST_INPUT, "get_user_choice"})
"""Tools with which a model asks a person for input. Other long-running calls are answered by programs."""

_ID_LENGTH = 32


def open_requests(run: Run, logged: RunState, events: Sequence[Event]) -> list[HumanRequest]:
    """The requests that the run's record vouches for, and the calls of tools that ask a person, oldest first.

    events: the session's.
    """
    found: list[HumanRequest] = []
    for (call_id, _), index in sorted(logged.calls.waiting.items(), key=lambda item: item[1]):
        event = events[index]
        asked = {call.id for call in requests_in(event)}
        for call in event.get_function_calls():
            if call.id != call_id:
                continue
            if call_id not in asked and call.name not in _ASKING_TOOLS:
                continue
            digest = request_digest(event, call)
            if call_id not in asked or run.asked.get(call_id) == digest:
                found.append(_request(run, logged, event, call, _id_of(run, digest)))
    return found


def _id_of(run: Run, digest: str) -> str:
    """The id of a request; another one after a retry of its run, since the first one was cancelled with it."""
    if run.retries:
        digest = hashlib.sha256(f"{digest} {run.id} {run.retries}".encode()).hexdigest()
    return digest[:_ID_LENGTH]


def _request(run: Run, logged: RunState, event: Event, call: FunctionCall, request_id: str) -> HumanRequest:
    request = HumanRequest(
        id=request_id,
        kind=RequestKind.INPUT,
        status=RequestStatus.OPEN,
        app_name=run.app_name,
        user_id=run.user_id,
        session_id=run.session_id,
        run_id=run.id,
        call_id=call.id or "",
        function=call.name or "",
        agent=event.author,
        created_at=event.timestamp,
        approvers=[run.user_id],
    )
    arguments: JsonObject = call.args or {}
    if call.name == REQUEST_CONFIRMATION:
        original = original_call(call)
        confirmation = as_object(arguments.get("toolConfirmation"))
        request.kind = RequestKind.APPROVAL
        request.tool = original.name if original is not None else None
        request.arguments = original.args if original is not None else None
        request.message = _text(confirmation.get("hint"))
        request.payload = confirmation.get("payload")
    elif call.name == REQUEST_CREDENTIAL:
        record = logged.call(arguments.get("functionCallId"), event.author, event.branch)
        request.kind = RequestKind.LOGIN
        request.tool = record.call.name if record is not None and record.call is not None else None
        request.arguments = {"authConfig": arguments.get("authConfig")}
        request.message = _text(arguments.get("message"))
    elif is_node_confirmation(call):
        payload = as_object(arguments.get("payload"))
        request.kind = RequestKind.APPROVAL
        request.tool = payload.get("tool_name")
        request.arguments = payload.get("args")
        request.payload = payload.get("confirmation_payload")
        request.message = _text(arguments.get("message"))
    elif call.name == REQUEST_INPUT:
        request.tool = None if is_input_request(call) else call.name
        request.message = _text(arguments.get("message"))
        request.payload = arguments.get("payload")
        request.response_schema = arguments.get("response_schema")
    else:
        request.tool = call.name
        request.arguments = call.args
    policy = policy_of(call)
    if policy is not None and call.name in (REQUEST_CONFIRMATION, REQUEST_INPUT):
        _apply(policy, request)
    return request


def _apply(policy: ApprovalPolicy, request: HumanRequest) -> None:
    request.policy = policy
    request.excluded = [request.user_id] if policy.excludes_requester else []
    request.approvers = [user for user in policy.users if user not in request.excluded]
    request.deadline = deadline_of(policy, request.created_at)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
