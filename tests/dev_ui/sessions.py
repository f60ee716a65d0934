"""Sessions made over HTTP: messages, and answers to what a run asks for."""

from __future__ import annotations

from typing import Any

from tests.server.serving import Json, Serving


def part_of(message: Any, events: list[Json]) -> Json:
    """message: a text, `{"approve": bool}`, `{"answer": map}` of a long-running call or `{"input": value}`; the latter
    three answer the newest request among the events."""
    if isinstance(message, str):
        return {"text": message}
    asked = [
        call
        for event in events
        for part in event.get("content", {}).get("parts", ())
        if (call := part.get("functionCall", {})).get("id") in (event.get("longRunningToolIds") or ())
    ]
    if "approve" in message:
        response: Json = {"confirmed": message["approve"]}
    else:
        response = message.get("answer") or {"result": message["input"]}
    return {"functionResponse": {"id": asked[-1]["id"], "name": asked[-1]["name"], "response": response}}


async def make_session(server: Serving, app: str, name: str, messages: list[Any]) -> str:
    """Runs the messages one after the other. Returns the session's id."""
    path = f"/apps/{app}/users/user/sessions/{name}"
    (await server.client.post(path, json={})).raise_for_status()
    for message in messages:
        events = (await server.client.get(f"{path}/events")).json()["events"]
        body = {"newMessage": {"role": "user", "parts": [part_of(message, events)]}}
        started = await server.client.post(f"{path}/runs", json=body)
        started.raise_for_status()
        await server.wait_for_status(started.json()["id"], "succeeded", "failed", "waiting", "cancelled")
    return name
