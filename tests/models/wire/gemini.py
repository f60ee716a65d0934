"""Gemini's generateContent. Source: https://ai.google.dev/api/generate-content"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from greenroom.records.content import Part
from tests.models.requests.published_rules import of_generate_content
from tests.models.wire.server import WireServer, frame, pieces

_USAGE = {
    "promptTokenCount": 10,
    "candidatesTokenCount": 3,
    "thoughtsTokenCount": 2,
    "totalTokenCount": 15,
    "cachedContentTokenCount": 4,
    "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 10}],
}


class GeminiServer(WireServer):
    path = "/{version}/{model:path}"

    async def __call__(self, request: Request) -> Response:
        if request.url.path.endswith("/cachedContents"):
            body = await request.json()
            return JSONResponse({"name": "cachedContents/c1", "model": body["model"]})
        return await super().__call__(request)

    def is_stream(self, request: Request, body: dict[str, Any]) -> bool:
        return request.url.path.endswith(":streamGenerateContent")

    def problems(self, body: dict[str, Any]) -> Iterable[str]:
        return of_generate_content(body)

    def whole(self, parts: tuple[Part, ...], finish_reason: str) -> dict[str, Any]:
        return _response([wire_part(part) for part in parts], finish_reason)

    def frames(self, parts: tuple[Part, ...], finish_reason: str) -> tuple[list[str], list[str]]:
        out: list[dict[str, Any]] = []
        for part in map(wire_part, parts):
            texts = pieces(part["text"]) if part.get("text") else []
            signature = {"thoughtSignature": part.pop("thoughtSignature")} if "thoughtSignature" in part else {}
            for index, text in enumerate(texts):
                out.append({**part, "text": text, **(signature if index == len(texts) - 1 else {})})
            if not texts:
                out.append({**part, **signature})
        return [frame(_response([part], None)) for part in out], [frame(_response([], finish_reason))]

    def error(self, status: int, message: str) -> dict[str, Any]:
        return {"error": {"code": status, "message": message, "status": "SOME_ERROR"}}

    def error_frame(self) -> str:
        return frame({"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}})


def _response(parts: list[dict[str, Any]], finish_reason: str | None) -> dict[str, Any]:
    candidate: dict[str, Any] = {"index": 0}
    if parts:
        candidate["content"] = {"role": "model", "parts": parts}
    if finish_reason is not None:
        candidate["finishReason"] = finish_reason
    return {
        "candidates": [candidate],
        "usageMetadata": _USAGE,
        "modelVersion": "gemini-2.5-flash-001",
        "responseId": "r1",
    }


def wire_part(part: Part) -> dict[str, Any]:
    out: dict[str, Any] = {}
    if part.function_call is not None:
        call = part.function_call
        out["functionCall"] = {"id": call.id, "name": call.name, "args": call.args}
    elif part.text is not None:
        out["text"] = part.text
    if part.thought:
        out["thought"] = True
    if part.thought_signature is not None:
        out["thoughtSignature"] = base64.b64encode(part.thought_signature).decode()
    return out
