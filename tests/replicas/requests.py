"""Requests to servers, and what is in their responses."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import httpx

from greenroom.records.session import SessionKey
from greenroom.server.routes.run import PAGE_LIMIT

Json = dict[str, Any]


class Frame(NamedTuple):
    kind: str
    seq: int | None
    data: Json


def path_of(key: SessionKey) -> str:
    return f"/apps/{key.app_name}/users/{key.user_id}/sessions/{key.session_id}"


def message(text: str) -> Json:
    return {"role": "user", "parts": [{"text": text}]}


def run_of(key: SessionKey, text: str, **fields: Any) -> Json:
    names = {"appName": key.app_name, "userId": key.user_id, "sessionId": key.session_id}
    return {**names, "newMessage": message(text), **fields}


def text_of(event: Json) -> str:
    return "".join(part.get("text", "") for part in event.get("content", {}).get("parts", ()))


def texts(events: list[Json]) -> list[str]:
    return [text for event in events if (text := text_of(event))]


async def frames(response: httpx.Response) -> AsyncIterator[Frame]:
    """Those with data. Fails for a stream that was cut."""
    assert response.status_code == 200, await response.aread()
    kind = "message"
    seq: int | None = None
    async for line in response.aiter_lines():
        name, _, value = line.partition(": ")
        if name == "event":
            kind = value
        elif name == "id":
            seq = int(value)
        elif name == "data":
            yield Frame(kind, seq, json.loads(value))
        elif not line:
            kind = "message"
            seq = None


async def sse(http: httpx.AsyncClient, method: str, path: str, body: Json | None = None) -> list[Frame]:
    """All frames of a stream."""
    headers = {"accept": "text/event-stream"}
    async with http.stream(method, path, json=body, headers=headers) as response:
        return [frame async for frame in frames(response)]


async def log_of(http: httpx.AsyncClient, key: SessionKey) -> list[Json]:
    """All events, page by page."""
    events: list[Json] = []
    while True:
        response = await http.get(path_of(key) + "/events", params={"after": len(events)})
        assert response.status_code == 200, response.text
        page = response.json()["events"]
        events += page
        if len(page) < PAGE_LIMIT:
            return events
