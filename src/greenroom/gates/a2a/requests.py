"""Requests to send a message, in the JSON of version 1.0.

Protobuf also reads other spellings: snake_case, numbers as text, null. Those requests, invalid ones, all other methods
and version 0.3 are left to the SDK; `parse` then converts the SDK's message to the same record.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import a2a.types as a2a
import msgspec
from a2a.utils import errors
from google.protobuf.json_format import MessageToDict
from msgspec import UNSET, Meta, UnsetType, field

from greenroom.a2a.parts import A2aPart
from greenroom.records.base import JsonObject, Record

MAX_INT32 = 2**31 - 1


class SentMessage(Record, kw_only=True, forbid_unknown_fields=True):
    message_id: Annotated[str, Meta(min_length=1)]
    context_id: str = ""
    task_id: str = ""
    role: Literal["ROLE_USER", "ROLE_AGENT"]
    parts: list[A2aPart]
    metadata: JsonObject | UnsetType = UNSET
    extensions: tuple[str, ...] = ()
    reference_task_ids: tuple[str, ...] = ()


class SendConfiguration(Record, kw_only=True, forbid_unknown_fields=True):
    accepted_output_modes: tuple[str, ...] = ()
    task_push_notification_config: JsonObject | UnsetType = UNSET
    history_length: Annotated[int, Meta(ge=0, le=MAX_INT32)] | UnsetType = UNSET
    return_immediately: bool = False


class SendRequest(Record, kw_only=True, forbid_unknown_fields=True):
    tenant: str = ""
    message: SentMessage
    configuration: SendConfiguration = field(default_factory=SendConfiguration)
    metadata: JsonObject = field(default_factory=dict[str, Any])


class SendCall(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The JSON-RPC request of a SendRequest."""

    jsonrpc: Literal["2.0"]
    id: int | str
    method: Literal["SendMessage", "SendStreamingMessage"]
    params: SendRequest


def parse(params: a2a.SendMessageRequest) -> SendRequest:
    """Raises InvalidParamsError."""
    try:
        return msgspec.convert(MessageToDict(params), SendRequest)
    except msgspec.ValidationError as error:
        raise errors.InvalidParamsError(message=str(error)) from None
