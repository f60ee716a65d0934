"""OpenAI's Responses API. Source: https://platform.openai.com/docs/api-reference/responses-streaming"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from greenroom.records.content import Part
from tests.models.requests.published_rules import of_responses
from tests.models.wire.server import WireServer, frame, pieces

_REASONS = {"MAX_TOKENS": "max_output_tokens", "SAFETY": "content_filter"}
_USAGE = {
    "input_tokens": 10,
    "input_tokens_details": {"cached_tokens": 4},
    "output_tokens": 5,
    "output_tokens_details": {"reasoning_tokens": 2},
    "total_tokens": 15,
}


class ResponsesServer(WireServer):
    path = "/v1/responses"
    metadata_key = "openai"
    lacks = frozenset({"video", "context cache"})

    def problems(self, body: dict[str, Any]) -> Iterable[str]:
        return of_responses(body)

    def whole(self, parts: tuple[Part, ...], finish_reason: str) -> dict[str, Any]:
        reason = _REASONS.get(finish_reason)
        return {
            "id": "resp_1",
            "object": "response",
            "created_at": 1,
            "model": "gpt-5-2026",
            "status": "incomplete" if reason else "completed",
            "incomplete_details": {"reason": reason} if reason else None,
            "output": [output_item(index, part) for index, part in enumerate(parts)],
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "service_tier": "default",
            "usage": _USAGE,
        }

    def frames(self, parts: tuple[Part, ...], finish_reason: str) -> tuple[list[str], list[str]]:
        whole = self.whole(parts, finish_reason)
        out = [_event("response.created", response={**whole, "output": [], "status": "in_progress", "usage": None})]
        for index, item in enumerate(whole["output"]):
            at = {"output_index": index, "item_id": item.get("id", "")}
            out.append(_event("response.output_item.added", output_index=index, item=_begun(item)))
            out += [_event(kind, **at, **fields) for kind, fields in _deltas(item)]
            out.append(_event("response.output_item.done", output_index=index, item=item))
        return out, [_event(f"response.{whole['status']}", response=whole)]

    def error(self, status: int, message: str) -> dict[str, Any]:
        return {"error": {"message": message, "type": "some_error", "code": None}}

    def error_frame(self) -> str:
        return _event("error", code="server_error", message="The server had an error", param=None)


def output_item(index: int, part: Part) -> dict[str, Any]:
    """The output item of a part; one without a field of its own is in the part's metadata."""
    if part.function_call is not None:
        call = part.function_call
        arguments = json.dumps(call.args)
        head = {"type": "function_call", "id": f"fc_{index}", "call_id": call.id, "status": "completed"}
        return {**head, "name": call.name, "arguments": arguments}
    if part.thought:
        summary = [{"type": "summary_text", "text": part.text}]
        encrypted = (part.thought_signature or b"").decode()
        return {"type": "reasoning", "id": f"rs_{index}", "summary": summary, "encrypted_content": encrypted}
    if part.text is not None:
        content = [{"type": "output_text", "text": part.text, "annotations": []}]
        return {"type": "message", "id": f"msg_{index}", "status": "completed", "role": "assistant", "content": content}
    return (part.part_metadata or {})["openai"]


def _begun(item: dict[str, Any]) -> dict[str, Any]:
    empty = {"content": [], "summary": [], "arguments": "", "status": "in_progress"}
    return {**item, **{name: value for name, value in empty.items() if name in item}}


def _deltas(item: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    if item["type"] == "message":
        text = item["content"][0]["text"]
        return [
            ("response.output_text.delta", {"content_index": 0, "delta": piece, "logprobs": []})
            for piece in pieces(text)
        ]
    if item["type"] == "function_call":
        return [("response.function_call_arguments.delta", {"delta": piece}) for piece in pieces(item["arguments"])]
    if item["type"] == "reasoning":
        out: list[tuple[str, dict[str, Any]]] = []
        for index, part in enumerate(item["summary"]):
            fields = {"summary_index": index}
            out.append(
                ("response.reasoning_summary_part.added", {**fields, "part": {"type": "summary_text", "text": ""}})
            )
            for piece in pieces(part["text"]):
                out.append(("response.reasoning_summary_text.delta", {**fields, "delta": piece}))
        return out
    return []


def _event(kind: str, **fields: Any) -> str:
    return frame({"type": kind, "sequence_number": 0, **fields}, event=kind)
