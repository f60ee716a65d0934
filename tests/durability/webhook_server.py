"""A server of an app with a webhook: `python -m tests.durability.webhook_server FOLDER LISTENING_SOCKET`."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import uvicorn

from greenroom import App, Webhook
from greenroom.records.run import RunStatus
from greenroom.runs.in_process import InProcessRunEngine
from greenroom.server.application import create_app
from greenroom.server.settings import ServerSettings
from greenroom.sessions.from_uri import session_service_from_uri
from tests.server.agents import echo


def main() -> None:
    folder, listening = Path(sys.argv[1]), socket.socket(fileno=int(sys.argv[2]))
    states = [RunStatus(state) for state in os.environ["STATES"].split()]
    webhook = Webhook(url=os.environ["RECEIVER"], states=states)
    app = create_app(
        agents=[App(name="echo", root_agent=echo(), webhooks=[webhook])],
        session_service=session_service_from_uri(os.environ["STORE"]),
        settings=ServerSettings(
            grace_seconds=0.1,
            allow_private_webhooks=True,
            webhook_secrets=str(folder / "secrets.toml"),
            auto_create_session=True,
        ),
    )
    assert isinstance(app.engine, InProcessRunEngine)
    app.engine.webhooks.retry_seconds = (float(os.environ["RETRY_SECONDS"]),) * 50
    config = uvicorn.Config(app, lifespan="on", log_level="warning", timeout_graceful_shutdown=1)
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main()
