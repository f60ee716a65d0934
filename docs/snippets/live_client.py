import json
from collections.abc import AsyncIterator, Iterable
from typing import Any

from websockets.asyncio.client import connect


async def talk(url: str, microphone: Iterable[bytes]) -> AsyncIterator[dict[str, Any]]:
    """Speak, and get the events until the model has answered. Pieces of the microphone: 16-bit mono PCM, 16 kHz."""
    async with connect(url, max_size=None) as socket:
        await socket.send(json.dumps({"activity_start": {}}))
        for piece in microphone:
            await socket.send(piece)
        await socket.send(json.dumps({"activity_end": {}}))
        async for frame in socket:
            event = json.loads(frame)
            yield event
            if event.get("turnComplete"):
                await socket.send(json.dumps({"close": True}))
