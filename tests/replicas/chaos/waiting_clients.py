"""Clients whose runs wait for a time, a signal or other people, and schedules."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import ClassVar

from greenroom.records.session import SessionKey
from tests.replicas.chaos.agents import SIGNAL, TWO_OF_THREE
from tests.replicas.chaos.client import Json, SeenRun, World, content_of
from tests.replicas.chaos.native_clients import Approves, NativeClient

_WAITS_OR_IS_OVER = frozenset({"waiting", "succeeded"})

SCHEDULED_RUNS = 4
_AHEAD_SECONDS = 4.0
"""Time until a schedule's first run, in which the schedule is stored."""


class Sleeps(NativeClient):
    """Has a run that is continued by the clock."""

    async def talk(self) -> None:
        await self.create_session(self.key)
        message = self.new_message(self.chance.choice(("sleep", "expire")), self.chance.randrange(1, 6))
        run = await self.run(message, self.chance.choice(("sse", "background")), statuses=_WAITS_OR_IS_OVER)
        run.statuses = frozenset({"succeeded"})
        run.record = None  # it may have slept and ended between the end of its stream and the reading of its record
        await self.follow_to_end(run)
        self.count("runs that slept")


class Signals(NativeClient):
    """Sends a signal twice at once, by way of any replicas, to a run that may not wait for it yet. It is taken once."""

    async def talk(self) -> None:
        await self.create_session(self.key)
        run = SeenRun(self.key, self.new_message("listen"), "background")
        self.runs.append(run)
        response = await self.start(run, {"newMessage": content_of(run.message)}, self.new_idempotency_key())
        assert response.status_code == 202, response.text
        await asyncio.sleep(self.chance.uniform(0, 1))
        headers = {"idempotency-key": self.new_idempotency_key()}
        path = f"/runs/{run.id}/signals/{SIGNAL}"
        sent = await asyncio.gather(*(self.ask("POST", path, json=self.name, headers=headers) for _ in range(2)))
        found = [f"{one.status_code} {one.text}" for one in sent]
        assert all(one.status_code in (200, 409) for one in sent), f"signals to {run.id}: {found}"
        await self.follow_to_end(run)
        self.count("signals")


class Delays(NativeClient):
    """Has a run that starts later."""

    async def talk(self) -> None:
        await self.create_session(self.key)
        seconds = self.chance.uniform(0.5, 6)
        not_before = time.time() + seconds
        options: Json = {"startAt": not_before} if self.chance.random() < 0.5 else {"delaySeconds": seconds}
        way = self.chance.choice(("sse", "background"))
        await self.run(self.new_message("talk"), way, not_before=not_before, **options)
        self.count("delayed runs")


class Schedules(NativeClient):
    """Has a schedule with one time or several, into one session or new ones, and deletes it when they have passed."""

    runs_of_each = SCHEDULED_RUNS

    async def talk(self) -> None:
        start = time.time() + _AHEAD_SECONDS
        times = [start]
        schedule: Json = {"id": self.name, "userId": self.key.user_id, "missed": self.chance.choice(("once", "all"))}
        if self.chance.random() < 0.2:
            schedule["at"] = start
        else:
            times = [start + number for number in range(SCHEDULED_RUNS)]
            schedule |= {"everySeconds": 1, "startAt": start, "endAt": times[-1] + 0.5}
        if self.chance.random() < 0.5:
            await self.create_session(self.key)
            schedule |= {"sessionId": self.key.session_id, "overlap": "enqueue"}
        message = self.new_message("talk")
        schedule["request"] = {"newMessage": content_of(message)}

        path = f"/apps/{self.app}/schedules"
        created = await self.ask("POST", path, json=schedule)
        assert created.status_code in (201, 409), created.text  # 409: a lost response said that it is stored
        path += f"/{self.name}"
        stored = (await self.ask("GET", path)).json()
        times = [due_at for due_at in times if due_at > stored["createdAt"]]
        while stored.get("nextAt") is not None:
            self.is_doing = f"waiting for {stored}"
            await asyncio.sleep(0.3)
            stored = (await self.ask("GET", path)).json()
        entries: list[Json] = (await self.ask("GET", f"{path}/runs")).json()["runs"][::-1]
        deleted = await self.ask("DELETE", path)
        assert deleted.status_code in (200, 204, 404), deleted.text
        gone = await self.ask("GET", path)
        assert gone.status_code == 404, gone.text

        self._check_history(entries, times, may_miss=schedule["missed"] == "once")
        for entry in entries:
            if entry["outcome"] == "started":
                run = SeenRun(SessionKey(self.app, self.key.user_id, entry["sessionId"]), message, "background")
                run.id = entry["runId"]
                run.not_before = entry["dueAt"]
                self.runs.append(run)
                await self.follow_to_end(run)
        self.count("scheduled runs", len(self.runs))

    def _check_history(self, entries: list[Json], times: list[float], *, may_miss: bool) -> None:
        """Each time is there once, as that of a run or among those that were missed."""
        seen: list[float] = []
        for entry in entries:
            first = entry.get("firstDueAt", entry["dueAt"])
            of_entry = [due_at for due_at in times if first <= due_at <= entry["dueAt"]]
            seen += of_entry
            if entry["outcome"] == "missed":
                assert may_miss, f"the history has {entries}"
                self.count("scheduled times that were missed", len(of_entry))
            else:
                assert (entry["outcome"], len(of_entry)) == ("started", 1), f"the history has {entries}"
            assert entry["at"] >= entry["dueAt"], f"early: {entry}"
        assert sorted(seen) == times, f"the times are {times}, and the history has {entries}"


class Votes(Approves):
    """Has a call that two of three other people approve or refuse. Each answers twice, by way of any replicas."""

    kinds: ClassVar[Sequence[str]] = ("remit",)

    def __init__(self, number: int, world: World) -> None:
        super().__init__(number, world)
        self.is_approved = self.chance.random() < 0.7

    async def decide(self, run: SeenRun) -> None:
        (request_id,) = (await self.record_of(run))["requests"].values()
        path = f"/requests/{request_id}"
        bodies = [{"userId": user, "confirmed": self.is_approved} for user in TWO_OF_THREE.users for _ in range(2)]
        replies = await asyncio.gather(*(self.ask("POST", f"{path}/answer", json=body) for body in bodies))
        found = [f"{one.status_code} {one.text}" for one in replies]
        refused = ("NotApprover", "RequestClosed")
        for one in replies:
            assert one.status_code == 200 or one.json()["code"] in refused, f"{found}"
        assert sum(one.status_code == 200 for one in replies) <= TWO_OF_THREE.required, f"{found}"
        request = (await self.ask("GET", path)).json()
        assert (request["status"], request["confirmed"]) == ("answered", self.is_approved), f"{request}"
        people = [(one["userId"], one["confirmed"]) for one in request["answers"]]
        assert len(set(people)) == len(people) == TWO_OF_THREE.required, f"{request}"
        assert all(is_approved == self.is_approved for _, is_approved in people), f"{request}"
