"""A live conversation over a WebSocket, which is opened again when it is lost."""

from __future__ import annotations

import asyncio
import json
from urllib.parse import urlencode

import httpx
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from tests.durability.invariants import text_of
from tests.replicas.chaos.client import Client, SeenRun, World

NORMAL = 1000
_TURNS = 3
_TURN_SECONDS = 20
_RESTARTING = 1012
_TRY_LATER = 1013


class Live(Client):
    """Says something, and waits for the answer; says it again if it gets none, since input isn't stored."""

    app = "phone"

    def __init__(self, number: int, world: World) -> None:
        super().__init__(number, world)
        self.run = SeenRun(self.key, "", "live", statuses=frozenset({"succeeded", "cancelled"}))
        self.run.requests = 0
        self.runs.append(self.run)
        self._turns_left = _TURNS

    def _turn(self) -> tuple[str, str]:
        """Words, or what makes the agent call a tool, and the answer. Other ones in each connection."""
        number = f"{self.number}-{self._turns_left}-{self.run.requests}"
        if self._turns_left == 2:
            return f"work {number}", f"Done with ['{number}-phone']"
        return f"hello {number}", f"You said hello {number}"

    async def talk(self) -> None:
        await self.create_session(self.key)
        while not await self._converse():
            self.count("live connections that were lost")
            await self.pause()

    async def _converse(self) -> bool:
        """Opens the conversation, and continues it. True when all was said and the server has closed normally."""
        self.run.requests += 1
        query = {"app_name": self.app, "user_id": self.key.user_id, "session_id": self.key.session_id}
        query |= {"modalities": "TEXT", "after": str(self.run.last_seq)}
        self.is_doing = f"a live conversation after {self.run.last_seq}"
        code: int | None = None
        try:
            url = f"ws{self.balancer.choose().url.removeprefix('http')}/run_live?{urlencode(query)}"
            socket = await self._open(url)
            async with socket:
                assert socket.response is not None
                self.note(f"live run {socket.response.headers.get('x-run-id')}")
                await self._talk(socket)
                await socket.send(json.dumps({"close": True}))
                async with asyncio.timeout(_TURN_SECONDS):
                    while True:
                        await self._receive(socket)
        except ConnectionClosed as closed:
            code = closed.rcvd.code if closed.rcvd is not None else None
            reason = closed.rcvd.reason if closed.rcvd is not None else "cut"
            self.note(f"closed with {code} {reason}")
            assert code in (None, NORMAL, _RESTARTING, _TRY_LATER), f"{self.key}: {code} {reason}"
        except TimeoutError:
            raise AssertionError(f"no answer to {self._turn()[0]!r} in {_TURN_SECONDS} s") from None
        except (OSError, InvalidHandshake, httpx.ConnectError) as error:
            self.note_lost(error)
        return code == NORMAL and not self._turns_left

    async def _open(self, url: str) -> ClientConnection:
        """Raises OSError, also if the server, which may be paused, doesn't answer in time."""
        try:
            return await connect(url, open_timeout=10, ping_interval=None)
        except TimeoutError as error:
            raise ConnectionError("the handshake has timed out") from error

    async def _talk(self, socket: ClientConnection) -> None:
        while self._turns_left:
            said, wanted = self._turn()
            await socket.send(json.dumps({"content": {"role": "user", "parts": [{"text": said}]}}))
            async with asyncio.timeout(_TURN_SECONDS):
                while await self._receive(socket) != wanted:
                    pass
            self._turns_left -= 1

    async def _receive(self, socket: ClientConnection) -> str | None:
        """Reads an event, and returns its text if it is stored."""
        event = json.loads(await socket.recv())
        assert "error" not in event, f"{self.key}: {event}"
        seq = event.pop("seq", None)
        if seq is None:
            return None
        self.run.seen.append((seq, event))
        return text_of(event)
