"""Anthropic's Messages API. Source: https://docs.anthropic.com/en/api/messages-streaming"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from greenroom.records.content import Part
from tests.models.requests.published_rules import of_messages
from tests.models.wire.server import WireServer, frame, pieces

_STOP = {"STOP": "end_turn", "MAX_TOKENS": "max_tokens", "SAFETY": "refusal"}
_USAGE = {"input_tokens": 4, "cache_creation_input_tokens": 2, "cache_read_input_tokens": 4}


class AnthropicServer(WireServer):
    path = "/v1/messages"
    metadata_key = "anthropic"
    lacks = frozenset({"video"})

    def problems(self, body: dict[str, Any]) -> Iterable[str]:
        *_, last = body["messages"]
        is_paused = last["role"] == "assistant" and any(one["type"] == "server_tool_use" for one in last["content"])
        return of_messages(body, is_paused=is_paused)

    def whole(self, parts: tuple[Part, ...], finish_reason: str) -> dict[str, Any]:
        blocks = [block(part) for part in parts]
        return {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "claude-sonnet-5-20260701",
            "content": blocks,
            "stop_reason": _stop(blocks, finish_reason),
            "stop_sequence": None,
            "usage": {**_USAGE, "output_tokens": 5},
        }

    def frames(self, parts: tuple[Part, ...], finish_reason: str) -> tuple[list[str], list[str]]:
        message = {**self.whole((), "STOP"), "stop_reason": None, "usage": {**_USAGE, "output_tokens": 1}}
        out = [_event({"type": "message_start", "message": message}), _event({"type": "ping"})]
        blocks = [block(part) for part in parts]
        for index, whole in enumerate(blocks):
            begin, deltas = _streamed(whole)
            out.append(_event({"type": "content_block_start", "index": index, "content_block": begin}))
            out += [_event({"type": "content_block_delta", "index": index, "delta": delta}) for delta in deltas]
            out.append(_event({"type": "content_block_stop", "index": index}))
        delta = {"stop_reason": _stop(blocks, finish_reason), "stop_sequence": None}
        end = [_event({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 5}})]
        return out, [*end, _event({"type": "message_stop"})]

    def error(self, status: int, message: str) -> dict[str, Any]:
        return {"type": "error", "error": {"type": "some_error", "message": message}}

    def error_frame(self) -> str:
        return _event({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})

    def broken_frame(self) -> str:
        return 'event: content_block_delta\ndata: {"broken": \n\n'


def _stop(blocks: list[dict[str, Any]], finish_reason: str) -> str:
    return "tool_use" if any(one["type"] == "tool_use" for one in blocks) else _STOP[finish_reason]


def block(part: Part) -> dict[str, Any]:
    """The content block of a part; one without a field of its own is in the part's metadata."""
    if part.function_call is not None:
        call = part.function_call
        return {"type": "tool_use", "id": call.id, "name": call.name, "input": call.args}
    if part.thought:
        return {"type": "thinking", "thinking": part.text, "signature": (part.thought_signature or b"").decode()}
    if part.text is not None:
        return {"type": "text", "text": part.text}
    return (part.part_metadata or {})["anthropic"]


def _streamed(whole: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    kind = whole["type"]
    if kind == "text":
        begin = {"type": "text", "text": ""}
        deltas = [{"type": "text_delta", "text": piece} for piece in pieces(whole["text"])]
        return begin, deltas + [{"type": "citations_delta", "citation": one} for one in whole.get("citations") or ()]
    if kind == "thinking":
        deltas = [{"type": "thinking_delta", "thinking": piece} for piece in pieces(whole["thinking"])]
        return {"type": "thinking", "thinking": "", "signature": ""}, [
            *deltas,
            {"type": "signature_delta", "signature": whole["signature"]},
        ]
    if kind in ("tool_use", "server_tool_use"):
        text = json.dumps(whole["input"]) if whole["input"] else ""
        deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in ("", *pieces(text))]
        return {**whole, "input": {}}, deltas
    return whole, []


def _event(data: dict[str, Any]) -> str:
    return frame(data, event=data["type"])
