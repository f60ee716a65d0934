"""Messages of chats, as AG-UI and OpenAI's interfaces have them, as contents and parts."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeVar, cast

import msgspec

from greenroom.errors import ApprovalRefused, InvalidRequest
from greenroom.records import wire
from greenroom.records.base import JsonObject, JsonValue, Record
from greenroom.records.content import Blob, Content, FunctionCall, FunctionResponse, Part
from greenroom.records.human_requests import REQUESTS
from greenroom.records.tool_declaration import FunctionDeclaration


class FunctionText(Record, kw_only=True):
    """The function of a call, with its arguments."""

    name: str
    """The name of the function."""
    arguments: str = ""
    """JSON text."""


class ToolCallMessage(Record, kw_only=True):
    """A function call in an assistant's message."""

    id: str
    """The id that the result refers to."""
    function: FunctionText
    """The function with its arguments."""
    type: str = "function"
    """Always `function`."""


class MessageWithCalls(Protocol):
    """A message of AG-UI or of Chat Completions."""

    @property
    def role(self) -> str: ...

    tool_calls: list[ToolCallMessage] | None
    tool_call_id: str | None


M = TypeVar("M", bound=MessageWithCalls)


def contents_of_chat(messages: Iterable[M], parts_of: Callable[[M], list[Part]]) -> list[Content]:
    """Earlier messages of a chat as contents. The responses to calls follow their calls."""
    contents: list[Content] = []
    names: dict[str, str] = {}
    for message in messages:
        parts = parts_of(message)
        if message.role == "tool":
            call_id = message.tool_call_id or ""
            text = "".join(part.text or "" for part in parts)
            answer = FunctionResponse(id=call_id, name=names.get(call_id, ""), response=response_object(text))
            parts = [Part(function_response=answer)]
        for call in message.tool_calls or ():
            names[call.id] = call.function.name
            parts.append(call_part(call.function.name, call.function.arguments, call.id))
        if parts:
            contents.append(Content(role="model" if message.role == "assistant" else "user", parts=parts))

    return contents


def split_conversation(
    contents: Sequence[Content], client_tools: Sequence[FunctionDeclaration] | None
) -> tuple[list[Content], list[Part]]:
    """Splits the whole conversation of a client, which has no session yet, into its history and the new message.

    Everything after the agent's last message is new: outputs of the client's functions, then words.
    Outputs of other functions, which the client got from an agent, are history; if nothing else is
    new, the message is empty.
    Raises InvalidRequest for outputs of calls that the conversation doesn't have, and ApprovalRefused for approvals.
    """
    newest = next((at for at in range(len(contents), 0, -1) if contents[at - 1].role == "model"), 0)
    earlier_parts = (part for content in contents[:newest] for part in content.parts or ())
    called = {part.function_call.id: part.function_call.name for part in earlier_parts if part.function_call}
    names = {tool.name for tool in client_tools or ()}
    history = list(contents[:newest])

    parts: list[Part] = []
    for part in (part for content in contents[newest:] for part in content.parts or ()):
        response = part.function_response
        if response is None or called.get(response.id) in names:
            parts.append(part)
        elif response.name in REQUESTS:
            raise ApprovalRefused("no run of this session asks for it")
        elif response.id in called:
            history.append(Content(role="user", parts=[part]))
        else:
            raise no_such_call(response.id)

    return history, parts


def new_message(parts: Iterable[Part], history: Sequence[Content] = ()) -> Content | None:
    """The message with function responses first; None if there are no parts, and the history ends
    with a response, so that an agent is to continue. Raises InvalidRequest if nothing is new."""
    ordered = sorted(parts, key=lambda part: part.function_response is None)
    if ordered:
        return Content(role="user", parts=ordered)
    last = history[-1].parts if history else None
    if last and last[-1].function_response is not None:
        return None
    raise InvalidRequest("Nothing is new: the last message must be a user's or a tool's", location=("body",))


def no_such_call(call_id: str | None) -> InvalidRequest:
    return InvalidRequest(f"No function call of this conversation has the id {call_id}", location=("body",))


def blob_part(data: str, mime_type: str | None) -> Part:
    """Decodes base64 data to a part. Raises InvalidRequest."""
    try:
        return Part(inline_data=Blob(data=b64decode(data, validate=True), mime_type=mime_type))
    except ValueError:
        raise InvalidRequest("The data of a part is not base64", location=("body",)) from None


def call_part(name: str, arguments: str, call_id: str) -> Part:
    try:
        args: JsonObject = msgspec.json.decode(arguments or "{}", type=dict[str, Any])
    except msgspec.DecodeError:
        raise InvalidRequest(f"The arguments of the call {call_id} are not a JSON object", location=("body",)) from None
    return Part(function_call=FunctionCall(id=call_id, name=name, args=args))


def arguments_of(call: FunctionCall) -> str:
    return wire.encode(call.args or {}).decode()


def link_to(part: Part) -> str:
    """Media of an agent as Markdown: by URL, or inline as a data URL."""
    if part.file_data is not None:
        return f"[{part.file_data.display_name or 'file'}]({part.file_data.file_uri})"
    if part.inline_data is None or part.inline_data.data is None:
        return ""
    mime_type = part.inline_data.mime_type or "application/octet-stream"
    url = f"data:{mime_type};base64,{b64encode(part.inline_data.data).decode()}"
    return f"{'!' if mime_type.startswith('image/') else ''}[{part.inline_data.display_name or mime_type}]({url})"


def response_object(output: JsonValue) -> JsonObject:
    """Returns an object, or the object in a JSON text; any other output becomes `{"result": output}`."""
    if isinstance(output, dict):
        return cast("JsonObject", output)
    if isinstance(output, str):
        with suppress(msgspec.DecodeError, msgspec.ValidationError):
            return msgspec.json.decode(output, type=dict[str, Any])
    return {"result": output}
