"""Records sessions of every kind from the server, for the tests of the dev UI's view model:
`python -m tests.dev_ui.record`."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from greenroom.server.application import create_app
from tests.dev_ui.apps import all_apps
from tests.dev_ui.sessions import part_of
from tests.server.serving import Json, serving, until

FOLDER = Path(__file__).parents[2] / "ui" / "src" / "timeline" / "recorded"

CONVERSATIONS: dict[str, tuple[str, list[Any]]] = {
    "text": ("desk", ["hello", "count", "markdown"]),
    "thought": ("desk", ["think"]),
    "calls": ("desk", ["weather", "broken", "note", "note"]),
    "approval": ("desk", ["delete", {"approve": True}, "hello"]),
    "refusal": ("desk", ["delete", {"approve": False}]),
    "interleaved": ("desk", ["delete", "hello", {"approve": True}]),
    "long_running": ("desk", ["report", {"answer": {"url": "reports/1"}}]),
    "failure": ("desk", ["hello", "boom", "cut"]),
    "agent_tool": ("desk", ["expert"]),
    "transfer": ("desk", ["billing", "thanks"]),
    "parallel": ("team", ["look"]),
    "workflow": ("flow", ["the harbour", {"input": 4}]),
    "sleeping": ("collector", ["invoice", {"answer": {"value": 12}}, "wait"]),
    "title": ("desk", ["hello", {"title": "A title"}]),
}


async def record(client: httpx.AsyncClient, name: str, app: str, messages: list[Any]) -> list[Json]:
    """The frames of the session's stream: `seq` and `event`, or the `run` that ended."""
    path = f"/apps/{app}/users/user/sessions/{name}"
    (await client.post(path, json={})).raise_for_status()
    frames: list[Json] = []
    wanted = 0
    is_open = asyncio.Event()
    following = asyncio.create_task(_follow(client, path, frames, is_open))
    await is_open.wait()
    for message in messages:
        if isinstance(message, dict) and "title" in message:
            (await client.patch(path, json=message)).raise_for_status()
            continue
        wanted += 1
        body = {
            "newMessage": {
                "role": "user",
                "parts": [part_of(message, [frame["event"] for frame in frames if "event" in frame])],
            },
            "streaming": True,
        }
        (await client.post(f"{path}/runs", json=body)).raise_for_status()
        await until(partial(_has_ended, frames, wanted))
    last = (await client.get(f"{path}/events")).json()["lastSeq"]
    await until(lambda: any(frame.get("seq") == last for frame in frames))
    following.cancel()
    return frames


def _has_ended(frames: list[Json], count: int) -> bool:
    return sum("run" in frame for frame in frames) >= count


async def _follow(client: httpx.AsyncClient, path: str, frames: list[Json], is_open: asyncio.Event) -> None:
    async with client.stream("GET", f"{path}/events", headers={"accept": "text/event-stream"}, timeout=60) as reply:
        is_open.set()
        seq: int | None = None
        kind = "event"
        async for line in reply.aiter_lines():
            if line.startswith("id: "):
                seq = int(line[4:])
            elif line == "event: end":
                kind = "run"
            elif line.startswith("data: "):
                data = json.loads(line[6:])
                frames.append({"run": data} if kind == "run" else {"seq": seq, "event": data})
                seq, kind = None, "event"


async def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    async with serving(create_app(agents=all_apps())) as server:
        for name, (app, messages) in CONVERSATIONS.items():
            frames = await record(server.client, name, app, messages)
            (FOLDER / f"{name}.json").write_text("[\n" + ",\n".join(json.dumps(frame) for frame in frames) + "\n]\n")


if __name__ == "__main__":
    asyncio.run(main())
