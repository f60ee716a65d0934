"""The server that is asked anything: `python -m tests.fuzz.served FOLDER SOCKET`. It counts what it answers.

Keys are needed when there is a `keys.db` in the folder. GREENROOM_FUZZ_LIMITED sets limits that are met again and again.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import sys
import zlib
from collections import Counter
from dataclasses import replace
from pathlib import Path

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from greenroom.agents.llm_agent import LlmAgent
from greenroom.artifacts.from_uri import artifact_service_from_uri
from greenroom.cli.http_server import run_server
from greenroom.records.content import Content
from greenroom.records.model_exchange import LlmRequest
from greenroom.server.application import GATES, create_app
from greenroom.server.settings import AuthSettings, LimitSettings, ServerSettings
from greenroom.sessions.sqlite import SqliteSessionService
from greenroom.testing import ScriptedLiveModel
from greenroom.testing.scripted_live_model import Heard
from tests.fuzz.counts import COUNTS, NOT_COUNTED
from tests.server.agents import scripted

DEADLINE_SECONDS = 0.4

TIGHT = ServerSettings(
    max_body_bytes=400,
    run_deadline_seconds=DEADLINE_SECONDS,
    limits=LimitSettings(
        runs_per_user=2,
        runs_per_app=3,
        runs_per_server=3,
        requests_per_second=40,
        requests_at_once=25,
        artifact_bytes=12,
        events_per_session=10,
    ),
)


def main() -> None:
    logging.basicConfig(level=logging.WARNING)
    folder, listening = Path(sys.argv[1]), socket.socket(fileno=int(sys.argv[2]))
    keys = folder / "keys.db"
    auth = AuthSettings(keys=str(keys) if keys.exists() else None)
    is_limited = bool(os.environ.get("GREENROOM_FUZZ_LIMITED"))
    desk = LlmAgent(name="desk", model=ScriptedLiveModel(_reply))
    app = create_app(
        agents=[scripted("echo", _slow_answer if is_limited else _answer), desk],
        session_service=SqliteSessionService(folder / "greenroom.db"),
        artifact_service=artifact_service_from_uri((folder / "artifacts").as_uri()),
        settings=replace(TIGHT if is_limited else ServerSettings(), auth=auth, gates=tuple(GATES)),
    )
    run_server(Counting(app), listening, when_started=lambda: None, grace_seconds=5)


def _answer(request: LlmRequest) -> str:
    return f"You said {request.contents[-1].text()}" if request.contents else "You said nothing"


async def _slow_answer(request: LlmRequest) -> str:
    """Some take so long that runs in the background add up, and some too long."""
    answer = _answer(request)
    await asyncio.sleep(DEADLINE_SECONDS * (zlib.crc32(answer.encode()) % 8) / 6)
    return answer


def _reply(heard: Heard) -> str:
    return f"You said {heard.text()}" if isinstance(heard, Content) else "You were heard"


class Counting:
    """Serves at `COUNTS` how many requests were `answered` with which status, `none` for those cut off, how many and how
    many sockets are `open`, and how many `tasks` there are besides this answer's."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._counts = Counter[str]()
        self._open = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["path"] == COUNTS:
            counts = {"answered": self._counts, "open": self._open, "tasks": len(asyncio.all_tasks()) - 1}
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": json.dumps(counts).encode()})
            return
        status = "none"

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = str(message["status"])
            await send(message)

        self._open += 1
        try:
            await self._app(scope, receive, watched)
        finally:
            self._open -= 1
            if scope["type"] == "http" and NOT_COUNTED.encode() not in dict(scope["headers"]):
                self._counts[status] += 1


if __name__ == "__main__":
    main()
