"""Requests to a person: calls that the framework writes into the log to ask for an approval or a credential.

Source of their names and shapes: ADK's tool confirmation and credential requests.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import msgspec

from greenroom.errors import ApprovalRefused, InvalidRequest
from greenroom.records import wire
from greenroom.records.base import JsonObject
from greenroom.records.content import Content, FunctionCall, FunctionResponse
from greenroom.records.event import Event, ToolConfirmation

REQUEST_CONFIRMATION = "adk_request_confirmation"
REQUEST_CREDENTIAL = "adk_request_credential"
REQUESTS = frozenset({REQUEST_CONFIRMATION, REQUEST_CREDENTIAL})
"""Calls that the framework writes into the log to ask a person for something."""

DECLINED: JsonObject = {"error": "access_denied"}
"""What is stored of an answer in which the user did not grant access."""


def requests_in(event: Event) -> list[FunctionCall]:
    """The framework's requests in an event. A model may write calls of the same names; only the framework lists such a
    call among the long-running ones."""
    ids = event.long_running_tool_ids
    if not ids or event.author == "user":
        return []
    return [call for call in event.get_function_calls() if call.name in REQUESTS and call.id in ids]


def request_digest(event: Event, request: FunctionCall) -> str:
    """Stands for a request as it was made: by whom, in which run, when, and about what."""
    made = [event.author, event.branch, event.invocation_id, event.timestamp, request]
    return hashlib.sha256(wire.encode(made)).hexdigest()


def responses_in(message: Content | None) -> list[FunctionResponse]:
    parts = (message.parts if message is not None else None) or ()
    return [part.function_response for part in parts if part.function_response is not None]


def original_call(request: FunctionCall) -> FunctionCall | None:
    """The call that a request for confirmation shows; None when it can't be read."""
    try:
        return wire.from_plain((request.args or {}).get("originalFunctionCall"), FunctionCall)
    except InvalidRequest:
        return None


def credential_key(config: Mapping[str, object] | None) -> str:
    return str((config or {}).get("credentialKey"))


def read_confirmation(response: FunctionResponse) -> ToolConfirmation:
    """The answer; web UIs with one box for all function responses send it as JSON text under `response`."""
    given: object = response.response or {}
    if isinstance(given, dict) and isinstance(inner := given.get("response"), str):
        try:
            given = msgspec.json.decode(inner)
        except msgspec.DecodeError:
            raise ApprovalRefused("its answer is not valid JSON") from None
    try:
        return wire.from_plain(given, ToolConfirmation)
    except InvalidRequest:
        raise ApprovalRefused("its answer is no confirmation") from None
