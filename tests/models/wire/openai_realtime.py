"""OpenAI's Realtime API. Source: https://platform.openai.com/docs/api-reference/realtime-server-events"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

from greenroom.models.openai.chat import OpenAILlm
from greenroom.records.content import FunctionCall
from greenroom.records.model_exchange import LlmResponse
from greenroom.testing import Hears, Says
from greenroom.testing.scripted_live_model import CHUNK, LiveItem
from greenroom.testing.scripted_model import words
from tests.models.wire.live import Conversation, Json, LiveServer

USAGE = {
    "total_tokens": 15, "input_tokens": 10, "output_tokens": 5,
    "input_token_details": {"text_tokens": 10, "audio_tokens": 0, "cached_tokens": 4},
    "output_token_details": {"text_tokens": 0, "audio_tokens": 5},
}  # fmt: skip


class RealtimeServer(LiveServer):
    """Its turns end with `response.create`, or with a second of silence where it detects speech."""

    def __init__(self) -> None:
        super().__init__()
        self._responses = 0
        self._is_answering = False
        self.session: Json = {}
        self.refusal_of_session: Json | None = None

    def model(self, name: str = "gpt-realtime", **options: Any) -> OpenAILlm:
        return OpenAILlm(name, api_key=self.secret, base_url=f"http://{self.address}/v1", **options)

    async def send_away(self, connection: Conversation) -> None:
        text = "Your session hit the maximum duration of 60 minutes."
        await connection.send(_error("session_expired", text))
        await connection.socket.close(1001, text)

    async def begin(self, connection: Conversation) -> None:
        self._is_answering = False
        await connection.send({"type": "session.created", "event_id": "e", "session": {"type": "realtime"}})

    async def take(self, connection: Conversation, message: Json) -> bool:
        kind: str = message["type"]
        if kind == "session.update":
            if self.refusal_of_session is not None:
                await connection.send({"type": "error", "event_id": "e", "error": self.refusal_of_session})
            else:
                self.session |= message["session"]
                await connection.send({"type": "session.updated", "event_id": "e", "session": self.session})
        elif kind == "conversation.item.create":
            item = {"id": f"item_{len(connection.seen)}", **message["item"]}
            await connection.send({"type": "conversation.item.added", "event_id": "e", "item": item})
        elif kind == "conversation.item.truncate":
            await connection.send({**message, "type": "conversation.item.truncated", "event_id": "e"})
        elif kind == "response.cancel":
            if self._is_answering:
                self.restart(connection)
                await connection.send(*self._cancelled("client_cancelled"))
            else:
                await connection.send(_error("response_cancel_not_active", "no active response found"))
        elif kind == "response.create":
            if self._is_answering:
                text = "Conversation already has an active response in progress"
                await connection.send(_error("conversation_already_has_active_response", text))
                return False
            return True
        elif kind == "input_audio_buffer.append" and self.session["audio"]["input"]["turn_detection"] is not None:
            audio = base64.b64decode(message["audio"])
            return len(audio) >= 48_000 and not any(audio)
        return False

    def opening(self) -> list[Json]:
        self._responses += 1
        self._is_answering = True
        return [{"type": "response.created", "event_id": "e", "response": self._response("in_progress")}]

    def ending(self, last: LiveItem | None) -> list[Json]:
        if not self._is_answering:
            return []
        self._is_answering = False
        return [{"type": "response.done", "event_id": "e", "response": {**self._response("completed"), "usage": USAGE}}]

    def frames(self, item: LiveItem) -> Iterator[Json]:
        if isinstance(item, str):
            for word in words(item):
                yield self._event("output_text.delta", delta=word)
            yield self._event("output_text.done", text=item)
        elif isinstance(item, Says):
            for word in words(item.text):
                yield self._event("output_audio.delta", delta=base64.b64encode(CHUNK).decode())
                yield self._event("output_audio_transcript.delta", delta=word)
            yield self._event("output_audio_transcript.done", transcript=item.text)
        elif isinstance(item, Hears):
            kind = "conversation.item.input_audio_transcription"
            of = {"event_id": "e", "item_id": "item_u", "content_index": 0}
            for word in words(item.text):
                yield {"type": f"{kind}.delta", **of, "delta": word}
            yield {"type": f"{kind}.completed", **of, "transcript": item.text, "usage": {}}
        elif isinstance(item, FunctionCall):
            call = {"call_id": item.id, "name": item.name, "arguments": json.dumps(item.args or {})}
            yield self._event("output_item.done", item={"type": "function_call", "status": "completed", **call})
        else:
            assert isinstance(item, LlmResponse)
            if item.interrupted:
                yield {
                    "type": "input_audio_buffer.speech_started", "event_id": "e", "item_id": "i", "audio_start_ms": 5
                }  # fmt: skip
                yield from self._cancelled("turn_detected")
            elif item.go_away is not None:
                yield _error("session_expired", "Your session hit the maximum duration of 60 minutes.")

    def _cancelled(self, reason: str) -> list[Json]:
        self._is_answering = False
        response = {
            **self._response("cancelled"),
            "status_details": {"type": "cancelled", "reason": reason},
            "usage": USAGE,
        }
        return [{"type": "response.done", "event_id": "e", "response": response}]

    def _response(self, status: str) -> Json:
        return {"id": f"resp_{self._responses}", "object": "realtime.response", "status": status, "output": []}

    def _event(self, kind: str, **fields: Any) -> Json:
        return {
            "type": f"response.{kind}", "event_id": "e", "response_id": f"resp_{self._responses}",
            "item_id": f"item_r{self._responses}", "output_index": 0, "content_index": 0, **fields,
        }  # fmt: skip


def _error(code: str, message: str) -> Json:
    error = {"type": "invalid_request_error", "code": code, "message": message, "param": None, "event_id": None}
    return {"type": "error", "event_id": "e", "error": error}
