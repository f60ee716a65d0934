"""The calls of ADK's HTTP surface that the benchmarks make, as bytes ready to send. Session ids are never reused."""

from __future__ import annotations

import itertools
import time

from benchmarks.connection import request_bytes

USER = "bench"
MESSAGE = "How much does one turn cost?"
_numbers = itertools.count(1)


def new_session_id() -> str:
    return f"session-{next(_numbers)}"


def sessions_path(app: str) -> str:
    return f"/apps/{app}/users/{USER}/sessions"


def create_session(app: str, session: str, stored_events: int = 0) -> bytes:
    """stored_events: the session starts with a conversation of so many events, by turns the user's and the agent's."""
    body: dict[str, object] = {"sessionId": session}
    if stored_events:
        started = time.time() - stored_events
        body["events"] = [_stored_event(app, number, started + number) for number in range(stored_events)]
    return request_bytes("POST", sessions_path(app), body)


def _stored_event(app: str, number: int, timestamp: float) -> dict[str, object]:
    is_user = number % 2 == 0
    text = (
        f"{'Question' if is_user else 'Answer'} {number // 2} of a long conversation, about as long as a line of chat."
    )
    return {
        "author": "user" if is_user else app,
        "invocationId": f"e-{number // 2}",
        "timestamp": timestamp,
        "content": {"role": "user" if is_user else "model", "parts": [{"text": text}]},
    }


def delete_session(app: str, session: str) -> bytes:
    return request_bytes("DELETE", f"{sessions_path(app)}/{session}")


def get_session(app: str, session: str) -> bytes:
    return request_bytes("GET", f"{sessions_path(app)}/{session}")


def run(app: str, session: str) -> bytes:
    return request_bytes("POST", "/run", _run_body(app, session))


def run_sse(app: str, session: str) -> bytes:
    return request_bytes("POST", "/run_sse", _run_body(app, session) | {"streaming": True})


def run_in_background(app: str, session: str) -> bytes:
    body = {"newMessage": {"role": "user", "parts": [{"text": MESSAGE}]}, "streaming": True}
    return request_bytes("POST", f"{sessions_path(app)}/{session}/runs", body)


def _run_body(app: str, session: str) -> dict[str, object]:
    return {
        "appName": app,
        "userId": USER,
        "sessionId": session,
        "newMessage": {"role": "user", "parts": [{"text": MESSAGE}]},
    }
