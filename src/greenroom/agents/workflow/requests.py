"""A node's requests to a person, as events. Source of names and shapes: ADK's `RequestInput`."""

from __future__ import annotations

from typing import Any, cast

from greenroom.agents.node import NodeExecution
from greenroom.agents.workflow.values import is_type, type_schema
from greenroom.records.approval_policy import ApprovalPolicy, note_policy
from greenroom.records.auth import CredentialRequest
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.content import Content, FunctionCall, Part
from greenroom.records.event import Event, ToolConfirmation
from greenroom.records.human_requests import DECLINED, NODE_CONFIRMATION, REQUEST_INPUT, RequestInput
from greenroom.records.tool_declaration import FunctionDeclaration, Schema
from greenroom.tools.result import to_plain

REJECTED = "A person refused this; it was not done."

CONFIRMATION_SCHEMA: JsonObject = {
    "title": "ToolConfirmation",
    "type": "object",
    "description": "Whether the call may be made.",
    "additionalProperties": False,
    "properties": {
        "hint": {"type": "string", "title": "Hint", "default": ""},
        "confirmed": {"type": "boolean", "title": "Confirmed", "default": False},
        "payload": {"anyOf": [{}, {"type": "null"}], "title": "Payload", "default": None},
    },
}


def request_event(request: RequestInput) -> Event:
    schema: Any = request.response_schema
    if isinstance(schema, Schema):
        schema = FunctionDeclaration(parameters=schema).json_schema()
    elif schema is not None and is_type(schema):
        schema = type_schema(schema).json_schema()

    arguments: JsonObject = {
        "interruptId": request.interrupt_id,
        "payload": to_plain(request.payload),
        "message": request.message,
        "response_schema": schema,
    }
    note_policy(arguments, request.approvals)
    call = FunctionCall(id=request.interrupt_id, name=REQUEST_INPUT, args=arguments)

    return Event(
        author="",
        content=Content(role="model", parts=[Part(function_call=call)]),
        long_running_tool_ids=[request.interrupt_id],
    )


def confirmation_id(path: str) -> str:
    return f"{NODE_CONFIRMATION}{path}"


def confirmation_request(
    path: str,
    name: str,
    args: JsonObject,
    confirmation: ToolConfirmation | None,
    approvals: ApprovalPolicy | None,
) -> RequestInput:
    """Asks whether a function or a tool may be called with these arguments."""
    payload: JsonObject = {"tool_name": name, "args": args}
    if confirmation is not None and confirmation.payload is not None:
        payload["confirmation_payload"] = confirmation.payload

    hint = confirmation.hint if confirmation is not None else ""
    return RequestInput(
        interrupt_id=confirmation_id(path),
        payload=payload,
        message=hint or f"May {name} be called with these arguments?",
        response_schema=CONFIRMATION_SCHEMA,
        approvals=approvals,
    )


def read_decision(answer: JsonValue) -> ToolConfirmation:
    decision: JsonObject
    if isinstance(answer, dict):
        decision = cast("JsonObject", answer)
    else:
        decision = {"confirmed": answer is True}

    confirmed = decision.get("confirmed") is True
    return ToolConfirmation(
        hint=str(decision.get("hint") or ""),
        confirmed=confirmed,
        payload=decision.get("payload"),
    )


def _credential_id(path: str) -> str:
    return f"wf_auth:{path}"


async def ask_for_credential(execution: NodeExecution, request: CredentialRequest) -> None:
    from greenroom.agents.human_input.requests import node_request  # few nodes need credentials

    ctx = execution.ctx
    request.id = _credential_id(ctx.node_path)
    await execution.emit(await node_request(ctx.invocation_context, request))


async def has_granted(execution: NodeExecution) -> bool:
    """Reads the answer, if the user was asked for a credential. When the user refuses, that is the
    output.
    """
    ctx = execution.ctx

    answer = ctx.resume_inputs.get(_credential_id(ctx.node_path))
    if answer == DECLINED:
        await execution.emit({"error": REJECTED})
        return False

    if answer is not None:
        from greenroom.agents.human_input.answers import load_granted

        await load_granted(ctx.invocation_context)

    return True
