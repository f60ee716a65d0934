"""Compares what a page shows of a command's output with its real output."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any, cast

from tests.documentation.pages import Command, blocks_in, steps_in
from tests.server.serving import Json, Serving

_MADE_UP = frozenset(
    {"id", "invocationId", "functionCallId", "reference", "longRunningToolIds", "state", "credentialKey", "runId"}
)
"""Fields that differ from run to run: the same name on a page must stand for the same one of the server."""

_NOT_COMPARED = frozenset({"requestedToolConfirmations", "requestedAuthConfigs"})


class Comparison:
    """Compares outputs, and remembers what the page calls the identifiers that the server made.

    real: what the server made, by what the page calls it; commands are sent with the former.
    """

    def __init__(self) -> None:
        self.real: dict[str, str] = {}

    def real_command(self, command: str) -> str:
        for shown, real in self.real.items():
            command = re.sub(rf"(?<![\w-]){re.escape(shown)}(?![\w-])", lambda _, real=real: real, command)
        return command

    def compare_output(self, shown: str, real: str) -> None:
        """JSON may be shown in part, and in another layout. In text, `…` stands for anything in its line, and a line
        that is `…` for any lines.
        """
        if shown.lstrip().startswith(("{", "[")):
            self.compare_json(json.loads(shown), json.loads(real))
            return

        for name, value in self.real.items():
            real = real.replace(value, name)
        pattern = "".join(_line_pattern(line) for line in _lines(shown))
        found = "".join(f"{line}\n" for line in _lines(real))
        assert re.fullmatch(pattern, found), f"the page shows\n{shown}\nbut it is\n{real}"

    def compare_json(self, shown: object, real: object) -> None:
        """Fields that the page leaves out are left out."""
        if isinstance(shown, dict):
            assert isinstance(real, dict), f"{shown} != {real}"
            for key, value in cast("Json", shown).items():
                found = cast("Json", real).get(key)
                if key in _MADE_UP and not isinstance(value, dict):
                    self._note(value, found)
                elif key not in _NOT_COMPARED:
                    self.compare_json(value, found)
        elif isinstance(shown, list):
            items, found_items = cast("list[object]", shown), cast("list[object]", real)
            assert isinstance(real, list)
            assert len(items) == len(found_items), f"{items} != {found_items}"
            for item, found in zip(items, found_items, strict=True):
                self.compare_json(item, found)
        elif isinstance(shown, str) and "…" in shown:
            assert re.fullmatch(_pattern(shown), str(real)), f"{shown} != {real}"
        else:
            assert shown == real, f"{shown!r} != {real!r}"

    def _note(self, shown: Any, real: Any) -> None:
        for one, other in zip(*((shown, real) if isinstance(shown, list) else ([shown], [real])), strict=True):
            assert other is not None, f"there is no {one}"
            if one != "…":
                assert self.real.setdefault(one, other) == other, f"{one} is {self.real[one]}, not {other}"


def _lines(text: str) -> list[str]:
    """Without blank lines at both ends, and without spaces at the ends of lines."""
    return [line.rstrip() for line in text.strip("\n").splitlines()]


def _line_pattern(line: str) -> str:
    return r"(?:.*\n)*?" if line == "…" else rf"{_pattern(line)}\n"


def _pattern(text: str) -> str:
    return re.escape(text).replace("…", ".*?")


class Transcript(Comparison):
    """A page's `curl` commands, each followed by what the server answers, held against a server in this process."""

    def __init__(self, page: str) -> None:
        super().__init__()
        steps = [step for step in steps_in(blocks_in(page, "page")) if isinstance(step, Command)]
        self.exchanges = [step for step in steps if step.line.startswith("curl ") and step.output is not None]

    async def check(self, server: Serving, exchange: Command) -> object:
        """Returns the answer."""
        answer = await _curl(server, self.real_command(exchange.line))
        assert exchange.output is not None
        self.compare_json(json.loads(exchange.output), answer)
        return answer


async def _curl(server: Serving, command: str) -> object:
    words = [word for word in shlex.split(command.replace("\\\n", " ")) if word not in ("curl", "-s", "--json")]
    (url,) = [word for word in words if word.startswith("localhost:8000/")]
    bodies = [json.loads(word) for word in words if word != url]
    path = url.removeprefix("localhost:8000")
    reply = await (server.client.post(path, json=bodies[0]) if bodies else server.client.get(path))
    return reply.json()
