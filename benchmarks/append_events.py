"""Appends events by several writers at once, each to a session of its own, and prints how many were stored per second.

`python append_events.py (adk|greenroom) URI WRITERS SECONDS`, in an environment that has the package.
"""

from __future__ import annotations

import asyncio
import sys
import time
from importlib import import_module
from typing import Any

_WORDS = "the ferry to Oslo leaves at nine and a ticket costs forty crowns " * 4


async def main(kit: str, uri: str, writers: int, seconds: float) -> None:
    if kit == "adk":
        sessions, events = import_module("google.adk.sessions"), import_module("google.adk.events")
        types = import_module("google.genai.types")
    else:
        sessions = events = import_module("greenroom")
        types = import_module("greenroom.types")
    service: Any = sessions.DatabaseSessionService(uri)

    async def write(session: Any, until: float) -> int:
        count = 0
        while time.perf_counter() < until:
            content = types.Content(role="user", parts=[types.Part(text=_WORDS)])
            actions = events.EventActions(state_delta={"count": count})
            await service.append_event(session, events.Event(author="user", content=content, actions=actions))
            count += 1
        return count

    opened = [await service.create_session(app_name="bench", user_id=f"u-{number}") for number in range(writers)]
    await asyncio.gather(*(write(session, time.perf_counter() + seconds / 5) for session in opened))  # warm-up
    started = time.perf_counter()
    counts = await asyncio.gather(*(write(session, started + seconds) for session in opened))
    print(sum(counts) / (time.perf_counter() - started))
    await service.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])))
