"""Conversion between LangChain's messages and contents."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast
from uuid import uuid4

from langchain_core.messages import AIMessage, BaseMessage, SystemMessage, ToolMessage

from greenroom.models.langchain import LangchainReply, human_message
from greenroom.records.base import JsonObject
from greenroom.records.content import Blob, Content, FileData, FunctionResponse, Part
from greenroom.records.generation import GenerateContentConfig
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from greenroom.records.tool_declaration import FunctionDeclaration, Tool
from greenroom.tools.result import to_plain


def to_messages(contents: Iterable[Content]) -> list[BaseMessage]:
    """The user's contents as messages for the graph."""
    return [message for content in contents if (message := human_message(content)) is not None]


def reply_of(message: AIMessage) -> LlmResponse:
    reply = LangchainReply()
    reply.add_whole(message)
    return reply.whole()


def response_part(message: ToolMessage) -> Part:
    """The result of a tool. An object in JSON is the response itself, other results are its `result`."""
    content: Any = message.content
    if not isinstance(content, str):
        content = message.text or content
    key = "error" if message.status == "error" else "result"
    response = FunctionResponse(id=message.tool_call_id, name=message.name, response={key: to_plain(content)})
    return Part(function_response=response)


def messages_in(value: Any) -> Iterator[BaseMessage]:
    """The messages in a value that a node wrote to a channel."""
    if isinstance(value, BaseMessage):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in cast("Sequence[Any]", value):
            if isinstance(item, BaseMessage):
                yield item


def give_ids(writes: Iterable[tuple[str, Any]]) -> None:
    """Gives an id to each message of a task's writes that has none, as LangGraph's reducer of messages does later: a
    message that several graphs write is known by its id.
    """
    for _, value in writes:
        for message in messages_in(value):
            if message.id is None:
                message.id = str(uuid4())


def to_request(messages: Sequence[BaseMessage], *, model: str | None, options: Mapping[str, Any]) -> LlmRequest:
    """A request as the app's plugins see it. options: the arguments of the model's call."""
    system = [message.text for message in messages if isinstance(message, SystemMessage)]
    config = GenerateContentConfig(
        system_instruction="\n\n".join(system) or None,
        temperature=options.get("temperature"),
        max_output_tokens=options.get("max_tokens") or options.get("max_completion_tokens"),
        tools=[Tool(function_declarations=declared)] if (declared := _declarations(options.get("tools"))) else None,
    )
    request = LlmRequest(model=model, config=config)
    for message in messages:
        if not isinstance(message, SystemMessage):
            request.contents.append(_content_of(message))
    return request


def _declarations(tools: object) -> list[FunctionDeclaration]:
    """Of functions that are declared as OpenAI does it; others are of no consequence to plugins."""
    declared: list[FunctionDeclaration] = []
    for tool in cast("Sequence[Any]", tools) if isinstance(tools, list) else ():
        function: JsonObject = cast("JsonObject", tool) if isinstance(tool, dict) else {}
        function = function.get("function", function)
        if "name" in function:
            schema = function.get("parameters") or function.get("input_schema")
            declared.append(
                FunctionDeclaration(
                    name=str(function["name"]),
                    description=function.get("description"),
                    parameters_json_schema=schema,
                )
            )
    return declared


def _content_of(message: BaseMessage) -> Content:
    if isinstance(message, AIMessage):
        return reply_of(message).content or Content(role="model", parts=[])
    if isinstance(message, ToolMessage):
        return Content(role="user", parts=[response_part(message)])
    if isinstance(message.content, str):
        return Content(role="user", parts=[Part(text=message.content)])
    return Content(role="user", parts=[part for block in message.content_blocks for part in _part_of(block)])


def _part_of(block: Mapping[str, Any]) -> Iterator[Part]:
    mime_type = block.get("mime_type")
    if block.get("text"):
        yield Part(text=block["text"])
    elif block.get("base64"):
        yield Part(inline_data=Blob(data=base64.b64decode(block["base64"]), mime_type=mime_type))
    elif block.get("url"):
        yield Part(file_data=FileData(file_uri=block["url"], mime_type=mime_type))
