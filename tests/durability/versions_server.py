"""The server of test_versions: serves the folder `agents` below its own, with its database beside that."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import uvicorn

from greenroom.apps.load_directory import DirectoryAppLoader
from greenroom.server.application import create_app
from greenroom.server.settings import ServerSettings
from greenroom.sessions.sqlite import SqliteSessionService


def main() -> None:
    folder, listening = Path(sys.argv[1]), socket.socket(fileno=int(sys.argv[2]))
    app = create_app(
        app_loader=DirectoryAppLoader(folder / "agents"),
        session_service=SqliteSessionService(folder / "greenroom.db"),
        settings=ServerSettings(auto_create_session=True),
    )
    uvicorn.Server(uvicorn.Config(app, lifespan="on", log_level="warning")).run(sockets=[listening])


if __name__ == "__main__":
    main()
