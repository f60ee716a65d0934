import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx


async def follow(client: httpx.AsyncClient, run_id: str) -> AsyncIterator[dict[str, Any]]:
    """The events of a run, across disconnects."""
    headers = {"accept": "text/event-stream"}
    while True:
        try:
            async with client.stream("GET", f"/runs/{run_id}/events", headers=headers, timeout=60) as response:
                response.raise_for_status()
                async for line in response.aiter_lines():
                    if line.startswith("id: "):
                        headers["last-event-id"] = line.removeprefix("id: ")
                    elif line.startswith("data: "):
                        yield json.loads(line.removeprefix("data: "))
                    elif line == "event: end":
                        return
        except httpx.TransportError:
            await asyncio.sleep(1)
