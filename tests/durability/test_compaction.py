"""`kill -9` around compactions: a history is summarized once all the same, and no event is lost or stored twice."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import httpx
import pytest

from tests.durability.compaction_server import APPS, HELD_AFTER_RUN, HELD_AT_END, HELD_BEFORE_CALL, MESSAGES
from tests.durability.invariants import Json, check_log, text_of
from tests.durability.server_process import server_in
from tests.durability.sse_client import RunReader

SAID = [text for message in MESSAGES for text in (message, f"re {message}")]

STORED = {HELD_AT_END: 6, HELD_AFTER_RUN: 6, HELD_BEFORE_CALL: 5}
"""Number of texts in the log when the server is killed."""

SUMMARIZED = {HELD_AT_END: 6, HELD_AFTER_RUN: 8, HELD_BEFORE_CALL: 4}
"""Number of texts that the summary replaces. The run that was cut off makes it; where it had ended, the next one."""


@pytest.mark.kill
async def test_a_compaction_that_was_killed_is_made_once_after_the_restart(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(120),
        server_in(tmp_path, module="tests.durability.compaction_server") as server,
        httpx.AsyncClient(base_url=server.url, timeout=60) as http,
    ):
        await server.start()
        talks = [Talk(http, app_name) for app_name in APPS]
        async with asyncio.TaskGroup() as group:
            for talk in talks:
                group.create_task(talk.begin())
            while not all((tmp_path / f"{app_name}.held").exists() for app_name in APPS):
                await asyncio.sleep(0.01)
            # The server writes in order: when this is stored, so is the end of the run that has ended.
            await talks[0].open("another")
            for talk in talks:
                assert [text_of(event) for event in await talk.log()] == SAID[: STORED[talk.app_name]]
            await server.kill()
            (tmp_path / "continue").touch()
            await server.start()
        for talk in talks:
            await talk.end()
            check_end(talk.app_name, await talk.log())
            prompts = (tmp_path / f"{talk.app_name}.prompts").read_text().splitlines()
            assert json.loads(prompts[-1]) == ["in short", *SAID[SUMMARIZED[talk.app_name] : -1]]


class Talk:
    def __init__(self, http: httpx.AsyncClient, app_name: str) -> None:
        self.app_name = app_name
        self._http = http
        self._sessions = f"/apps/{app_name}/users/ann/sessions"

    async def begin(self) -> None:
        """Returns when the third run has ended, in the second process."""
        await self.open("s-1")
        for message in MESSAGES[:3]:
            await self._say(message)

    async def open(self, session_id: str) -> None:
        (await self._http.post(self._sessions, json={"sessionId": session_id})).raise_for_status()

    async def end(self) -> None:
        if self.app_name != HELD_AFTER_RUN:
            await self._until_compacted()
        await self._say(MESSAGES[3])
        await self._until_compacted()
        await self._say(MESSAGES[4])

    async def log(self) -> list[Json]:
        return (await self._http.get(f"{self._sessions}/s-1")).json()["events"]

    async def _say(self, message: str) -> None:
        where = {"appName": self.app_name, "userId": "ann", "sessionId": "s-1"}
        run = RunReader(self._http, where, message=message, way="background")
        await run.read_to_the_end()
        assert run.end is not None
        assert run.end["status"] == "succeeded"

    async def _until_compacted(self) -> None:
        while not any(map(is_compaction, await self.log())):
            await asyncio.sleep(0.01)


def check_end(app_name: str, log: list[Json]) -> None:
    check_log(log)
    texts = [event for event in log if not is_compaction(event)]
    assert [text_of(event) for event in texts] == SAID
    (compaction,) = [event["actions"]["compaction"] for event in log if is_compaction(event)]
    assert compaction["startTimestamp"] == texts[0]["timestamp"]
    assert compaction["endTimestamp"] == texts[SUMMARIZED[app_name] - 1]["timestamp"]


def is_compaction(event: Json) -> bool:
    return "compaction" in event["actions"]
