"""An A2A server whose tasks survive it: `a2a_peer_server.py FOLDER FD`. What was unfinished when it was killed, the next
process completes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import uvicorn
from a2a.server.tasks import InMemoryTaskStore
from a2a.types import Artifact, Part, Task, TaskState
from starlette.requests import Request
from starlette.responses import PlainTextResponse

from tests.agents.a2a_peer import Peer


class FileTaskStore(InMemoryTaskStore):
    """Each task in a file, too."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    async def save(self, task: Task, context: Any) -> None:
        (self.folder / f"{task.id}.task").write_bytes(task.SerializeToString())
        await super().save(task, context)

    async def get(self, task_id: str, context: Any) -> Task | None:
        file = self.folder / f"{task_id}.task"
        return Task.FromString(file.read_bytes()) if file.exists() else None


def complete(file: Path) -> None:
    task = Task.FromString(file.read_bytes())
    del task.artifacts[:]
    task.artifacts.append(Artifact(artifact_id="a", parts=[Part(text="half done")]))
    task.status.state = TaskState.TASK_STATE_COMPLETED
    file.write_bytes(task.SerializeToString())


def main(folder: Path, fd: int) -> None:
    for file in folder.glob("*.task"):
        complete(file)
    peer = Peer(store=FileTaskStore(folder))

    async def health(_: Request) -> PlainTextResponse:
        return PlainTextResponse("ok")

    app = peer.app
    app.add_route("/health", health)
    uvicorn.run(app, fd=fd, log_level="warning")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
