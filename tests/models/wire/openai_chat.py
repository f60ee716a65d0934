"""OpenAI's chat completions. Source: https://platform.openai.com/docs/api-reference/chat"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from greenroom.records.content import Part
from tests.models.requests.published_rules import of_completions
from tests.models.wire.server import WireServer, frame, pieces

_FINISH = {"STOP": "stop", "MAX_TOKENS": "length", "SAFETY": "content_filter"}
_USAGE = {
    "prompt_tokens": 10,
    "completion_tokens": 5,
    "total_tokens": 15,
    "prompt_tokens_details": {"cached_tokens": 4},
    "completion_tokens_details": {"reasoning_tokens": 2},
}
_HEAD: dict[str, Any] = {"id": "c1", "created": 1, "model": "gpt-4o-mini-2024"}


class ChatServer(WireServer):
    path = "/v1/chat/completions"
    metadata_key = "openai_chat"
    lacks = frozenset({"video", "thinking", "built-in tools", "context cache"})

    def problems(self, body: dict[str, Any]) -> Iterable[str]:
        return of_completions(body)

    def whole(self, parts: tuple[Part, ...], finish_reason: str) -> dict[str, Any]:
        text = "".join(part.text for part in parts if part.text and not part.thought)
        thought = "".join(part.text for part in parts if part.text and part.thought)
        calls = [_call(index, part) for index, part in enumerate(p for p in parts if p.function_call)]
        message: dict[str, Any] = {"role": "assistant", "content": text or None}
        message |= {"reasoning_content": thought} if thought else {}
        message |= {"tool_calls": [{k: v for k, v in call.items() if k != "index"} for call in calls]} if calls else {}
        finish = "tool_calls" if calls else _FINISH[finish_reason]
        choice = {"index": 0, "message": message, "finish_reason": finish}
        return {**_HEAD, "object": "chat.completion", "choices": [choice], "usage": _USAGE}

    def frames(self, parts: tuple[Part, ...], finish_reason: str) -> tuple[list[str], list[str]]:
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
        index = 0
        for part in parts:
            if part.text:
                field = "reasoning_content" if part.thought else "content"
                deltas += [{field: piece} for piece in pieces(part.text)]
            elif part.function_call:
                call = _call(index, part)
                arguments = call["function"].pop("arguments")
                deltas.append({"tool_calls": [{**call, "function": {**call["function"], "arguments": ""}}]})
                for piece in pieces(arguments):
                    deltas.append({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
                index += 1
        finish = "tool_calls" if index else _FINISH[finish_reason]
        end = [_chunk({}, finish), frame({**_HEAD, "object": "chat.completion.chunk", "choices": [], "usage": _USAGE})]
        return [_chunk(delta) for delta in deltas], [*end, "data: [DONE]\n\n"]

    def error(self, status: int, message: str) -> dict[str, Any]:
        return {"error": {"message": message, "type": "some_error", "code": None}}

    def error_frame(self) -> str:
        return frame({"error": {"message": "The server had an error", "type": "server_error", "code": None}})


def _call(index: int, part: Part) -> dict[str, Any]:
    assert part.function_call is not None
    arguments = json.dumps(part.function_call.args)
    function = {"name": part.function_call.name, "arguments": arguments}
    return {"index": index, "id": part.function_call.id, "type": "function", "function": function}


def _chunk(delta: dict[str, Any], finish: str | None = None) -> str:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return frame({**_HEAD, "object": "chat.completion.chunk", "choices": [choice]})
