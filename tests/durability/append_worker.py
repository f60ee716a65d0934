"""Appends to many sessions at once, and prints each acknowledged event: `python -m … URI NAME SESSIONS APPENDS`."""

from __future__ import annotations

import asyncio
import sys

from greenroom.errors import StorageError
from greenroom.records.event import Event
from greenroom.sessions.from_uri import session_service_from_uri


async def main(uri: str, name: str, sessions: int, appends: int) -> None:
    service = session_service_from_uri(uri)
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)

    async def append(session_id: str, number: int) -> None:
        session = await service.get_session(app_name="a", user_id="u", session_id=session_id)
        assert session is not None
        event = Event(id=f"{name}-{number}", author="u")
        event.actions.state_delta = {"last": event.id, name: number, f"user:{name}": number, "app:last": event.id}
        while True:
            try:
                [stored] = await service.append(session, event)
                break
            except StorageError:  # what a client does that gets 503
                await asyncio.sleep(0.05)
        print(session_id, event.id, stored.seq, flush=True)

    await asyncio.gather(*(append(f"s-{one}", number) for number in range(appends) for one in range(sessions)))
    await service.close()


asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
