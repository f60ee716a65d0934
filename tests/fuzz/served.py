"""The server that is asked anything: `python -m tests.fuzz.served FOLDER SOCKET`. It counts what it answers.

Keys are needed when there is a `keys.db` in the folder.
"""

from __future__ import annotations

import json
import socket
import sys
from collections import Counter
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from greenroom.artifacts.from_uri import artifact_service_from_uri
from greenroom.records.model_exchange import LlmRequest
from greenroom.server.application import create_app
from greenroom.server.settings import AuthSettings, ServerSettings
from greenroom.sessions.sqlite import SqliteSessionService
from tests.server.agents import scripted

COUNTS = "/-/counts"


def main() -> None:
    folder, listening = Path(sys.argv[1]), socket.socket(fileno=int(sys.argv[2]))
    keys = folder / "keys.db"
    app = create_app(
        agents=[scripted("echo", _answer)],
        session_service=SqliteSessionService(folder / "greenroom.db"),
        artifact_service=artifact_service_from_uri((folder / "artifacts").as_uri()),
        settings=ServerSettings(auth=AuthSettings(keys=str(keys) if keys.exists() else None)),
    )
    uvicorn.Server(uvicorn.Config(Counting(app), lifespan="on", log_level="warning")).run(sockets=[listening])


def _answer(request: LlmRequest) -> str:
    return f"You said {request.contents[-1].text()}" if request.contents else "You said nothing"


class Counting:
    """Tells at `COUNTS` how many requests had which status, `none` for those cut off, and how many are `open`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._counts = Counter[str]()
        self._open = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["path"] == COUNTS:
            body = json.dumps({**self._counts, "open": self._open}).encode()
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": body})
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
            self._counts[status] += 1


if __name__ == "__main__":
    main()
