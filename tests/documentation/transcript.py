"""A page's `curl` commands, each followed by what the server answers, held against a server that runs."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any, NamedTuple, cast

from tests.server.serving import Json, Serving

_MADE_UP = frozenset(
    {"id", "invocationId", "functionCallId", "reference", "longRunningToolIds", "state", "credentialKey"}
)
"""Fields that differ from run to run: the same name on a page must stand for the same one of the server."""

_NOT_COMPARED = frozenset({"requestedToolConfirmations", "requestedAuthConfigs"})


class Exchange(NamedTuple):
    command: str
    answer: str


class Transcript:
    """real: what the server made, by what the page calls it; commands are sent with the former."""

    def __init__(self, page: str) -> None:
        found = re.findall(r"^```sh\n(curl .*?)^```\n+```json\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
        self.exchanges = [Exchange(command, answer) for command, answer in found]
        self.real: dict[str, str] = {}

    async def check(self, server: Serving, exchange: Exchange) -> object:
        """Fields that the page leaves out are left out. Returns the answer."""
        command = exchange.command
        for shown, real in self.real.items():
            command = command.replace(shown, real)
        answer = await _curl(server, command)
        self._compare(json.loads(exchange.answer), answer)
        return answer

    def _compare(self, shown: object, real: object) -> None:
        if isinstance(shown, dict):
            assert isinstance(real, dict)
            for key, value in cast("Json", shown).items():
                found = cast("Json", real).get(key)
                if key in _MADE_UP and not isinstance(value, dict):
                    self._note(value, found)
                elif key == "authUri":
                    self._compare_address(value, found)
                elif key not in _NOT_COMPARED:
                    self._compare(value, found)
        elif isinstance(shown, list):
            items, found_items = cast("list[object]", shown), cast("list[object]", real)
            assert len(items) == len(found_items)
            for item, found in zip(items, found_items, strict=True):
                self._compare(item, found)
        else:
            assert shown == real

    def _note(self, shown: Any, real: Any) -> None:
        for one, other in zip(*((shown, real) if isinstance(shown, list) else ([shown], [real])), strict=True):
            assert self.real.setdefault(one, other) == other

    def _compare_address(self, shown: Any, real: Any) -> None:
        """Compares addresses, whose random parts the page cuts short."""
        pattern = re.escape(str(shown)).replace("…", "[^&]+")
        assert re.fullmatch(pattern, real), real


async def _curl(server: Serving, command: str) -> object:
    words = [word for word in shlex.split(command.replace("\\\n", " ")) if word not in ("curl", "-s", "--json")]
    (url,) = [word for word in words if word.startswith("localhost:8000/")]
    bodies = [json.loads(word) for word in words if word != url]
    path = url.removeprefix("localhost:8000")
    reply = await (server.client.post(path, json=bodies[0]) if bodies else server.client.get(path))
    return reply.json()
