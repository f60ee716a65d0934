"""Requests to a person: calls that the framework writes into the log to ask for an approval, a credential, or the input
of a workflow's node.

Source of their names and shapes: ADK's tool confirmation, credential requests and `RequestInput`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast
from uuid import uuid4

import msgspec

from greenroom.errors import ApprovalRefused, InvalidRequest
from greenroom.records import wire
from greenroom.records.approval_policy import ApprovalPolicy
from greenroom.records.base import JsonObject, JsonValue, Record
from greenroom.records.content import Content, FunctionCall, FunctionResponse
from greenroom.records.event import Event, ToolConfirmation

REQUEST_CONFIRMATION = "adk_request_confirmation"
REQUEST_CREDENTIAL = "adk_request_credential"
REQUEST_INPUT = "adk_request_input"

EXPIRES_AFTER_SECONDS = 30 * 24 * 3600.0
"""Time after which an approval or a login is no longer accepted."""

REQUESTS = frozenset({REQUEST_CONFIRMATION, REQUEST_CREDENTIAL})
"""Calls that the framework writes into the log to ask a person for something; nodes of workflows also write
`adk_request_input`, which is a tool's name, too."""

NODE_CONFIRMATION = "wf_tool_confirmation:"
"""Prefix of the ids of requests for input with which nodes ask for an approval. Source: ADK."""

DECLINED: JsonObject = {"error": "access_denied"}
"""Stored for an answer in which the user did not grant access."""


def requests_in(event: Event) -> list[FunctionCall]:
    """The framework's requests in an event. A model may write calls of the same names; only the framework lists such a
    call among the long-running ones."""
    ids = event.long_running_tool_ids
    if not ids or event.author == "user":
        return []
    return [
        call
        for call in event.get_function_calls()
        if call.id in ids and (call.name in REQUESTS or is_input_request(call))
    ]


def is_input_request(call: FunctionCall) -> bool:
    """Whether a node of a workflow asks, and not a model through the tool of that name."""
    return call.name == REQUEST_INPUT and call.id is not None and (call.args or {}).get("interruptId") == call.id


def is_node_confirmation(call: FunctionCall) -> bool:
    """Whether a node of a workflow asks for an approval."""
    return is_input_request(call) and (call.id or "").startswith(NODE_CONFIRMATION)


def request_digest(event: Event, request: FunctionCall) -> str:
    """A hash that identifies a request: its author, run, time and content."""
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


def credential_key(config: object) -> str:
    """Returns the key of a request's config. An imported log may contain any value as a config."""
    return str(cast("Mapping[str, object]", config).get("credentialKey") if isinstance(config, Mapping) else None)


@dataclass(frozen=True, slots=True)
class Request:
    """A call by the framework that asks a person.

    event, index: the event of the log that asks. original: the call that it shows. made, made_at: that call as its
    agent made it, with the arguments of the time when the tool asked.
    """

    call: FunctionCall
    event: Event
    index: int
    original: FunctionCall | None
    made: FunctionCall | None
    made_at: int

    @property
    def credential_key(self) -> str:
        return credential_key((self.call.args or {}).get("authConfig"))


def read_confirmation(response: FunctionResponse) -> ToolConfirmation:
    """The answer; web UIs with one box for all function responses send it as JSON text under `response`."""
    answer: object = response.response or {}
    if isinstance(answer, dict) and isinstance(inner := answer.get("response"), str):
        try:
            answer = msgspec.json.decode(inner)
        except msgspec.DecodeError:
            raise ApprovalRefused("its answer is not valid JSON") from None
    try:
        return wire.from_plain(answer, ToolConfirmation)
    except InvalidRequest:
        raise ApprovalRefused("its answer is no confirmation") from None


def _new_interrupt_id() -> str:
    return str(uuid4())


class RequestInput(Record, kw_only=True):
    """Asks a person for input; a node of a workflow yields it, and waits.

    payload: for the client that shows the question. response_schema: a type or a JSON Schema of the answer.
    approvals: the people who answer, in place of the session's user.
    """

    interrupt_id: str = msgspec.field(default_factory=_new_interrupt_id)
    payload: JsonValue = None
    message: str | None = None
    response_schema: Any = None
    approvals: ApprovalPolicy | None = None


def read_input(request: FunctionCall, response: FunctionResponse) -> JsonValue:
    """The answer to a request for input. A map with the single key `result` (ADK's UI: `response`) is unwrapped, and
    text in it is parsed as JSON where it is. Raises InvalidRequest for an answer that the schema doesn't allow.

    The schema is checked as ADK does: the type of the whole, of an object its properties one level deep.
    """
    answer: JsonObject = response.response or {}
    candidates: list[JsonValue] = [answer]
    if len(answer) == 1 and (key := next(iter(answer))) in ("result", "response"):
        inner: JsonValue = answer[key]
        candidates = [inner]
        if isinstance(inner, str):
            try:
                candidates.insert(0, msgspec.json.decode(inner))
            except msgspec.DecodeError:
                pass
    schema = (request.args or {}).get("response_schema")
    if schema is None:
        return candidates[0]
    fault = None
    for candidate in candidates:
        candidate_fault = _fault(candidate, schema)
        if candidate_fault is None:
            return candidate
        fault = fault or candidate_fault
    raise InvalidRequest(
        f"The answer to {request.id} does not fit its schema: {fault}", location=("body", "newMessage", "parts")
    )


_JSON_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "null": (type(None),),
}


def _fault(value: JsonValue, schema: JsonValue, *, levels: int = 1) -> str | None:
    """Describes the value's fault; None for a valid value, or if the schema can't tell."""
    if not isinstance(schema, dict):
        return None
    schema = cast("JsonObject", schema)
    options = schema.get("anyOf") or schema.get("oneOf")
    if options:
        faults = [_fault(value, option, levels=levels) for option in options]
        return None if None in faults else faults[0]
    if "enum" in schema and value not in schema["enum"]:
        return f"expected one of {schema['enum']}, got {value!r}"
    names = schema.get("type")
    names = [names] if isinstance(names, str) else names or []
    if names and not any(_has_type(value, name.lower()) for name in names):
        return f"expected {' or '.join(names)}, got {type(value).__name__}"
    if isinstance(value, dict) and levels:
        properties: JsonObject = schema.get("properties") or {}
        missing = [key for key in schema.get("required") or () if key not in value]
        if missing:
            return f"{missing[0]!r} is required"
        for key, property_schema in properties.items():
            if key in value and (fault := _fault(value[key], property_schema, levels=levels - 1)):
                return f"{key}: {fault}"
    return None


def _has_type(value: JsonValue, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    if name == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _JSON_TYPES.get(name, (object,)))
