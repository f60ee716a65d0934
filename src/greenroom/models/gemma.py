"""Gemma before version 4, which has no function calls of its own: it writes them as JSON."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any, cast

import msgspec

from greenroom.models.conversion import functions, json_text
from greenroom.models.gemini.llm import Gemini
from greenroom.models.openai.chat import OpenAILlm
from greenroom.models.provider import ProviderLlm
from greenroom.records.base import JsonObject
from greenroom.records.content import Content, FunctionCall, Part
from greenroom.records.identifiers import new_function_call_id
from greenroom.records.model_exchange import LlmRequest, LlmResponse

_FENCED = re.compile(r"```(?:json|tool_code|tool_call)?\s*(.*?)\s*```", re.DOTALL)
_INSTRUCTION = """You can call these functions:
{declarations}
To call one, answer with nothing but a JSON object that has its "name", and its arguments under "parameters"."""


class _WrittenCalls(ProviderLlm):
    """Declares functions in the instruction, and reads a reply that is one JSON object as a call.

    While a streamed reply may be a call, nothing of it is shown.
    """

    async def generate_content_async(
        self,
        llm_request: LlmRequest,
        stream: bool = False,
    ) -> AsyncIterator[LlmResponse]:
        names = {declaration.name for declaration in llm_request.function_declarations()}

        replies = super().generate_content_async(_without_functions(llm_request), stream)
        held: list[LlmResponse] = []
        is_text = not names
        async with aclosing(cast("AsyncGenerator[LlmResponse]", replies)) as opened:
            async for reply in opened:
                if reply.partial and not is_text:
                    held.append(reply)
                    written = "".join(
                        held_response.content.text() for held_response in held if held_response.content is not None
                    ).lstrip()
                    is_text = bool(written) and written[0] not in "{`"
                    if is_text:
                        for held_response in held:
                            yield held_response
                elif reply.partial:
                    yield reply
                else:
                    yield _with_call(reply, names) if names else reply


class Gemma(_WrittenCalls, Gemini):
    """Gemma 3 and older through the Gemini API. Takes the arguments of `Gemini`."""

    def __init__(self, model: str = "gemma-3-27b-it", **arguments: Any) -> None:
        Gemini.__init__(self, model, **arguments)

    def convert(self, request: LlmRequest) -> JsonObject:
        """These models have no system instruction either: it is put before the conversation."""
        system = request.config.system_text()
        if system:
            config = msgspec.structs.replace(request.config, system_instruction=None)
            contents = [Content(role="user", parts=[Part(text=system)]), *request.contents]
            request = msgspec.structs.replace(request, config=config, contents=contents)
        return super().convert(request)


class Gemma3Ollama(_WrittenCalls, OpenAILlm):
    """Gemma 3 in Ollama, on this machine or at `base_url`."""

    def __init__(self, model: str = "ollama/gemma3:12b", **arguments: Any) -> None:
        url = os.environ.get("OLLAMA_BASE_URL") or "http://127.0.0.1:11434/v1"
        given: JsonObject = {"base_url": url, "api_key": "none", **arguments}
        OpenAILlm.__init__(self, model, **given)


def _with_calls_as_text(content: Content) -> Content:
    parts = content.parts or ()
    if not any(part.function_call or part.function_response for part in parts):
        return content
    return Content(role=content.role, parts=[_written(part) for part in parts])


def _without_functions(request: LlmRequest) -> LlmRequest:
    declarations = request.function_declarations()
    contents = [_with_calls_as_text(content) for content in request.contents]

    config = msgspec.structs.replace(request.config, tools=None, tool_config=None)
    if declarations:
        instruction = _INSTRUCTION.format(
            declarations="\n".join(json_text(function) for function in functions(declarations))
        )
        system = config.system_text()
        if system:
            config.system_instruction = f"{system}\n\n{instruction}"
        else:
            config.system_instruction = instruction

    return msgspec.structs.replace(request, contents=contents, config=config)


def _written(part: Part) -> Part:
    if part.function_call is not None:
        call = part.function_call
        return Part(text=json_text({"name": call.name, "parameters": call.args or {}}))
    if part.function_response is not None:
        return Part(text=json_text({"name": part.function_response.name, "result": part.function_response.response}))
    return part


def _with_call(reply: LlmResponse, names: set[str | None]) -> LlmResponse:
    parts = (reply.content.parts if reply.content is not None else None) or []
    if len(parts) != 1 or not parts[0].text:
        return reply

    fenced = _FENCED.search(parts[0].text)
    try:
        written = msgspec.json.decode(fenced[1] if fenced else parts[0].text, type=JsonObject)
    except msgspec.DecodeError:
        return reply

    name = written.get("name") or written.get("function")
    args: Any = written.get("parameters") or written.get("args") or {}
    if name not in names or not isinstance(args, dict):
        return reply

    call = FunctionCall(id=new_function_call_id(), name=name, args=cast("JsonObject", args))
    content = Content(role="model", parts=[Part(function_call=call)])

    return msgspec.structs.replace(reply, content=content)
