"""A raw ASGI application that answers canned bytes: what uvicorn, uvloop and httptools can do with no server behind."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from benchmarks.calls import MESSAGE

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

CHUNKS = 200
_ACTIONS = '"actions":{"stateDelta":{},"artifactDelta":{},"requestedAuthConfigs":{},"requestedToolConfirmations":{}}'


def _event(text: str, is_partial: bool = False) -> str:
    partial = '"partial":true,' if is_partial else ""
    return (
        f'{{"content":{{"parts":[{{"text":"{text}"}}],"role":"model"}},{partial}"invocationId":"e-1","author":"echo",'
        f'{_ACTIONS},"id":"0190c2f4-9b1e-7c3d-8a54-3f1f0b7e6d21","timestamp":1771000002.0}}'
    )


RUN = f"[{_event(MESSAGE)}]".encode()
FRAMES = [f"data: {_event(f'word{number} ', True)}\n\n".encode() for number in range(CHUNKS)]
FRAMES.append(f"data: {_event('end of text')}\n\n".encode())
JSON_HEADERS = [(b"content-type", b"application/json"), (b"content-length", str(len(RUN)).encode())]
SSE_HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8")]


async def application(scope: Message, receive: Receive, send: Send) -> None:
    if scope["type"] == "lifespan":
        await _lifespan(receive, send)
        return
    while (await receive()).get("more_body", False):
        pass
    if scope["path"] == "/run_sse":
        await send({"type": "http.response.start", "status": 200, "headers": SSE_HEADERS})
        for frame in FRAMES:
            await send({"type": "http.response.body", "body": frame, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        return
    await send({"type": "http.response.start", "status": 200, "headers": JSON_HEADERS})
    await send({"type": "http.response.body", "body": RUN})


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        elif message["type"] == "lifespan.shutdown":
            await send({"type": "lifespan.shutdown.complete"})
            return
