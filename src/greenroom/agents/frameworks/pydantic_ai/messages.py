"""Conversion between Pydantic AI's messages and contents."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, cast

from pydantic import TypeAdapter
from pydantic_ai.exceptions import ModelRetry, ToolFailed, ToolFailedError, ToolRetryError
from pydantic_ai.messages import (
    AudioUrl,
    BinaryContent,
    DocumentUrl,
    FilePart,
    FileUrl,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    RetryFeedbackPart,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturn,
    ToolReturnContent,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
    VideoUrl,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from pydantic_core import to_json, to_jsonable_python

from greenroom.records.answer_metadata import GenerateContentResponseUsageMetadata
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.content import Blob, Content, FileData, FunctionCall, FunctionResponse, Part
from greenroom.records.generation import GenerateContentConfig
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from greenroom.records.tool_declaration import FunctionDeclaration, Tool

_tool_return: TypeAdapter[ToolReturn[Any]] = TypeAdapter(ToolReturn)
_returned: TypeAdapter[Any] = TypeAdapter(ToolReturnContent)

_FINISH_REASONS = {
    "stop": "STOP",
    "tool_call": "STOP",
    "length": "MAX_TOKENS",
    "content_filter": "SAFETY",
}


def to_prompt(contents: Iterable[Content]) -> str | list[UserContent] | None:
    """The user's contents as one prompt. None without content."""
    prompt = [item for content in contents for part in content.parts or () for item in _user_content(part)]
    if len(prompt) == 1 and isinstance(prompt[0], str):
        return prompt[0]
    return prompt or None


def _user_content(part: Part) -> Iterator[UserContent]:
    if part.text:
        yield part.text
    elif part.inline_data is not None and part.inline_data.data is not None:
        media_type = part.inline_data.mime_type or "application/octet-stream"
        yield BinaryContent(part.inline_data.data, media_type=media_type)
    elif part.file_data is not None and part.file_data.file_uri is not None:
        media_type = part.file_data.mime_type
        yield _file_url(media_type)(part.file_data.file_uri, media_type=media_type)


def _file_url(media_type: str | None) -> type[ImageUrl | AudioUrl | VideoUrl | DocumentUrl]:
    match (media_type or "").partition("/")[0]:
        case "image":
            return ImageUrl
        case "audio":
            return AudioUrl
        case "video":
            return VideoUrl
        case _:
            return DocumentUrl


def to_request(
    messages: Sequence[ModelMessage],
    *,
    model: str | None,
    parameters: ModelRequestParameters,
    settings: ModelSettings | None,
) -> LlmRequest:
    """A request as plugins and the models of this package see it."""
    system = [
        part.content
        for message in messages
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, SystemPromptPart)
    ]
    system += [part.content for part in parameters.instruction_parts or ()]
    declared = [
        FunctionDeclaration(
            name=tool.name,
            description=tool.description,
            parameters_json_schema=tool.parameters_json_schema,
        )
        for tool in (*parameters.function_tools, *parameters.output_tools)
    ]
    options: ModelSettings = settings or {}
    config = GenerateContentConfig(
        system_instruction="\n\n".join(system) or None,
        temperature=options.get("temperature"),
        top_p=options.get("top_p"),
        max_output_tokens=options.get("max_tokens"),
        stop_sequences=options.get("stop_sequences"),
        tools=[Tool(function_declarations=declared)] if declared else None,
    )

    request = LlmRequest(model=model, config=config)
    for message in messages:
        content = _content_of(message)
        if content.parts:
            request.contents.append(content)
    return request


def _content_of(message: ModelMessage) -> Content:
    if isinstance(message, ModelResponse):
        return Content(role="model", parts=list(_response_parts(message)))
    return Content(role="user", parts=[one for part in message.parts for one in _request_parts(part)])


def _request_parts(part: object) -> Iterator[Part]:
    if isinstance(part, UserPromptPart):
        prompt = [part.content] if isinstance(part.content, str) else part.content
        for item in prompt:
            yield from _prompt_parts(item)
    elif isinstance(part, ToolReturnPart):
        if part.outcome in ("failed", "retried"):
            yield error_part(part.tool_name, part.tool_call_id, part.model_response_str(wrap_if_error=False))
        else:
            yield response_part(part.tool_name, part.tool_call_id, part.content)
    elif isinstance(part, RetryFeedbackPart):
        yield Part(text=part.content if isinstance(part.content, str) else to_json(part.content).decode())


def _prompt_parts(item: UserContent) -> Iterator[Part]:
    if isinstance(item, str):
        yield Part(text=item)
    elif isinstance(item, BinaryContent):
        yield Part(inline_data=Blob(data=item.data, mime_type=item.media_type))
    elif isinstance(item, FileUrl):
        yield Part(file_data=FileData(file_uri=item.url, mime_type=item.media_type))


def reply_of(response: ModelResponse, *, hidden: Collection[str] = ()) -> LlmResponse:
    """A reply. hidden: names of tools whose calls are left out, because they are the agent's output."""
    parts = [
        part
        for part in _response_parts(response)
        if part.function_call is None or part.function_call.name not in hidden
    ]
    usage = response.usage
    reply = LlmResponse(
        content=Content(role="model", parts=parts) if parts else None,
        model_version=response.model_name,
        finish_reason=_FINISH_REASONS.get(response.finish_reason or "stop", "OTHER"),
    )
    if usage.has_values():
        reply.usage_metadata = GenerateContentResponseUsageMetadata(
            prompt_token_count=usage.input_tokens,
            candidates_token_count=usage.output_tokens,
            total_token_count=usage.input_tokens + usage.output_tokens,
            cached_content_token_count=usage.cache_read_tokens or None,
        )
    return reply


def _response_parts(response: ModelResponse) -> Iterator[Part]:
    for part in response.parts:
        if isinstance(part, TextPart):
            if part.content:
                yield Part(text=part.content)
        elif isinstance(part, ThinkingPart):
            if part.content:
                yield Part(text=part.content, thought=True)
        elif isinstance(part, ToolCallPart):
            yield Part(function_call=to_call(part))
        elif isinstance(part, FilePart):
            yield Part(inline_data=Blob(data=part.content.data, mime_type=part.content.media_type))


def to_call(part: ToolCallPart) -> FunctionCall:
    return FunctionCall(id=part.tool_call_id, name=part.tool_name, args=part.args_as_dict())


def response_part(name: str, call_id: str, value: object) -> Part:
    """The result of a tool. An object in JSON is the response itself, other values are its `result`."""
    if isinstance(value, ToolReturn):
        value = cast("ToolReturn[Any]", value).return_value
    plain: JsonValue = to_jsonable_python(value, fallback=str)
    response = cast("JsonObject", plain) if isinstance(plain, dict) else {"result": plain}
    return Part(function_response=FunctionResponse(id=call_id, name=name, response=response))


def error_part(name: str, call_id: str, message: str) -> Part:
    """The response for a call whose tool has failed, or asks the model to try it again."""
    return Part(function_response=FunctionResponse(id=call_id, name=name, response={"error": message}))


def message_of(error: ModelRetry | ToolFailed | ToolRetryError | ToolFailedError) -> str:
    """The text that the model gets about a call that has failed."""
    match error:
        case ToolRetryError(tool_retry=part) if isinstance(part, ToolReturnPart):
            return part.model_response_str(wrap_if_error=False)
        case ToolFailedError(tool_failed=part):
            return part.model_response_str(wrap_if_error=False)
        case ModelRetry() | ToolFailed():
            return error.message
        case _:
            return str(error)


def dump_result(value: object) -> JsonObject:
    """The result of a tool, or the error by which it failed, for the log. Of objects it has what the model sees."""
    if isinstance(value, ToolReturn):
        return {"tool_return": _tool_return.dump_python(cast("ToolReturn[Any]", value), mode="json", fallback=str)}
    if isinstance(value, (ModelRetry, ToolRetryError)):
        return {"retry": message_of(value)}
    if isinstance(value, (ToolFailed, ToolFailedError)):
        return {"failed": message_of(value)}
    return {"returned": _returned.dump_python(value, mode="json", fallback=str)}


def load_result(stored: JsonObject) -> object:
    """The result of a tool. Raises ModelRetry and ToolFailed, as the tool did."""
    if "retry" in stored:
        raise ModelRetry(stored["retry"])
    if "failed" in stored:
        raise ToolFailed(stored["failed"])
    if "tool_return" in stored:
        return _tool_return.validate_python(stored["tool_return"])
    return _returned.validate_python(stored["returned"])
