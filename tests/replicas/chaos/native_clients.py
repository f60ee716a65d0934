"""Clients of greenroom's own interface: /run, /run_sse, background runs, approvals, and followers of sessions."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, get_args
from uuid import UUID

import httpx

from greenroom.records.session import SessionKey
from tests.durability.invariants import calls_of
from tests.durability.sse_client import read_frames
from tests.replicas.chaos.agents import CHUNK_SECONDS, TELL_STEPS, drawing
from tests.replicas.chaos.client import UNAVAILABLE, Client, Json, SeenRun, World, content_of, path_of

Way = Literal["sse", "background", "wait"]

NODE_INTERRUPTED = "NodeInterrupted"
"""Code of the error of a graph whose replica was lost while a node worked that must not run twice."""

WEBHOOK_SHARE = 0.3
"""Share of runs with a webhook."""

_UNFINISHED = ("queued", "running")
_OVER = ("succeeded", "failed", "cancelled")
_TEXTS = ("talk", "buy", "search", "shop")


class NativeClient(Client):
    """Has one session, and reads runs to their ends over as many connections as it takes."""

    def new_idempotency_key(self) -> str:
        return str(UUID(int=self.chance.getrandbits(128), version=4))

    async def run(
        self, message: str, way: Way, *, statuses: frozenset[str] | None = None, not_before: float = 0.0, **options: Any
    ) -> SeenRun:
        """Starts a run, and reads it to its end. options: more fields of the request."""
        run = SeenRun(self.key, message, way, not_before=not_before)
        if statuses is not None:
            run.statuses = statuses
        self.runs.append(run)
        body = {"newMessage": content_of(message), "streaming": self.chance.random() < 0.8, **options}
        run.has_webhook = self.chance.random() < WEBHOOK_SHARE
        if run.has_webhook:
            body["webhooks"] = [{"url": self.world.receiver.url}]
        key = self.new_idempotency_key()
        if way == "sse":
            while run.id is None:
                await self._start_stream(run, body, key)
        elif way == "background":
            await self.start(run, body, key)
        else:
            await self._wait(run, body, key)
        await self.follow_to_end(run)
        return run

    async def follow_to_end(self, run: SeenRun) -> None:
        while run.record is None or run.record["status"] not in run.statuses:
            await self.follow(run)

    async def start(self, run: SeenRun, body: Json, idempotency_key: str) -> httpx.Response:
        """Starts or continues a run in the background."""
        headers = {"idempotency-key": idempotency_key}
        response = await self.ask("POST", path_of(run.key) + "/runs", json=body, headers=headers)
        if response.status_code == 202:
            run.id = response.json()["id"]
            self.note(f"started {run.id}")
        return response

    async def _start_stream(self, run: SeenRun, body: Json, idempotency_key: str) -> None:
        body = {**body, **_names(run.key)}
        headers = {"idempotency-key": idempotency_key}
        is_complete = False
        async with self.stream("POST", "/run_sse", json=body, headers=headers) as response:
            if response is None:
                await self.pause()
                return
            if response.status_code != 200:
                await response.aread()
                raise AssertionError(f"/run_sse: {response.status_code} {response.text}")
            run.id = response.headers["x-run-id"]
            self.note(f"reads {run.id} by /run_sse")
            is_complete = await self._read(run, response)
        if is_complete:
            record = await self.record_of(run)
            if record["status"] in _UNFINISHED:
                self.note(f"the stream of {run.id} has ended, and the run has not")
                self.count("streams that ended before their runs")
            else:
                run.record = record

    async def _wait(self, run: SeenRun, body: Json, idempotency_key: str) -> None:
        response = await self.ask(
            "POST", "/run", json={**body, **_names(run.key)}, headers={"idempotency-key": idempotency_key}, timeout=90
        )
        if response.status_code == 200:
            run.events = response.json()
        else:
            failed = f"/run: {response.status_code} {response.text}"
            assert "failed" in run.statuses, failed
            assert response.json()["code"] == NODE_INTERRUPTED, failed
        run.id = response.headers["x-run-id"]
        run.record = await self.record_of(run)

    async def record_of(self, run: SeenRun) -> Json:
        response = await self.ask("GET", f"/runs/{run.id}")
        assert response.status_code == 200, f"run {run.id}: {response.status_code} {response.text}"
        return response.json()

    async def follow(self, run: SeenRun) -> None:
        """Reads a run's events after those that were seen, to the end or until the connection is lost."""
        headers = {"accept": "text/event-stream"}
        if run.seen:
            headers["last-event-id"] = str(run.last_seq)
        async with self.stream("GET", f"/runs/{run.id}/events", headers=headers) as response:
            if response is not None:
                if response.status_code != 200:
                    await response.aread()
                    raise AssertionError(f"events of {run.id}: {response.status_code} {response.text}")
                await self._read(run, response)
        if run.record is None:
            await self.pause()
        elif run.record["status"] not in run.statuses:
            assert run.record["status"] not in _OVER, f"run {run.id} has ended as {run.record}"
            await self.pause()

    async def _read(self, run: SeenRun, response: httpx.Response) -> bool:
        """Notes the events of a stream. False if the client leaves in the midst, or the server can't continue."""
        leaves_after = self.chance.randrange(1, 12) if self.chance.random() < 0.3 else None
        count = 0
        async for frame in read_frames(response):
            if frame.place is not None:
                run.seen.append((frame.place, frame.data))
            elif frame.kind == "end":
                run.record = frame.data
            elif "error" in frame.data:
                self.note(f"{run.id}: {frame.data['error']}")
                self.count("streams that ended with an error")
                return False
            count += 1
            if count == leaves_after:
                self.note(f"leaves {run.id} after {run.last_seq}")
                self.count("clients that left")
                return False
        return True


class Chat(NativeClient):
    """Several messages, of which two come at once, in a session that is followed from its begin."""

    runs_of_each = 3

    def __init__(self, number: int, world: World) -> None:
        super().__init__(number, world)
        self.followed: list[tuple[int, Json]] = []
        """Events of the session's stream."""

    async def talk(self) -> None:
        await self.create_session(self.key)
        following = asyncio.create_task(self._follow_session())
        try:
            await self._run()
            await asyncio.gather(self._run(), self._run())
            await self._wait_until_followed(following)
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    async def _run(self) -> None:
        message = self.new_message(self.chance.choice(_TEXTS), self.chance.randrange(1, 30))
        await self.run(message, self.chance.choice(get_args(Way)), statuses=self.expected)

    @property
    def expected(self) -> frozenset[str]:
        return frozenset({"succeeded"})

    async def _follow_session(self) -> None:
        while True:
            headers = {"accept": "text/event-stream"}
            if self.followed:
                headers["last-event-id"] = str(self.followed[-1][0])
            try:
                async with self.http.stream("GET", path_of(self.key) + "/events", headers=headers) as response:
                    if response.status_code == 200:
                        async for frame in read_frames(response):
                            if frame.place is not None:
                                self.followed.append((frame.place, frame.data))
                    else:
                        await response.aread()
                        assert response.status_code in UNAVAILABLE, f"events: {response.status_code} {response.text}"
            except httpx.TransportError:
                self.count("lost connections")
            await self.pause()

    async def _wait_until_followed(self, following: asyncio.Task[None]) -> None:
        page = await self.ask("GET", path_of(self.key) + "/events", params={"limit": 1000})
        last_seq = page.json()["lastSeq"]
        while not self.followed or self.followed[-1][0] < last_seq:
            self.is_doing = f"waiting for event {last_seq} of {self.key.session_id}"
            if following.done():
                following.result()
            await asyncio.sleep(0.05)


class TeamChat(Chat):
    """Parallel and sequential agents."""

    app = "team"


class FlowChat(Chat):
    """A graph. Its run fails if the replica is lost while a node works that must not run twice."""

    app = "flow"

    @property
    def expected(self) -> frozenset[str]:
        return frozenset({"succeeded", "failed"})


class LongStream(NativeClient):
    async def talk(self) -> None:
        await self.create_session(self.key)
        seconds = self.chance.uniform(0.4, 1) * self.world.longest_stream_seconds
        message = self.new_message("tell", int(seconds / CHUNK_SECONDS / TELL_STEPS))
        await self.run(message, self.chance.choice(("sse", "background")))


class Cancels(NativeClient):
    """Cancels a run by way of another replica, most likely."""

    async def talk(self) -> None:
        await self.create_session(self.key)
        run = SeenRun(self.key, self.new_message(self.chance.choice(("talk", "shop")), 60), "background")
        run.statuses = frozenset({"succeeded", "cancelled"})
        self.runs.append(run)
        response = await self.start(run, {"newMessage": content_of(run.message)}, self.new_idempotency_key())
        assert response.status_code == 202, response.text
        await asyncio.sleep(self.chance.uniform(0, 2))
        response = await self.ask("POST", f"/runs/{run.id}/cancel")
        assert response.status_code == 200, response.text
        while run.record is None:
            await self.follow(run)
        assert run.record["status"] == response.json()["status"], f"{run.record} after {response.json()}"


class Waits(NativeClient):
    """Is asked for an approval, and never answers."""

    async def talk(self) -> None:
        await self.create_session(self.key)
        await self.run(self.new_message("pay"), self.chance.choice(get_args(Way)), statuses=frozenset({"waiting"}))


class Approves(NativeClient):
    """Answers a request for approval three times at once, by way of any replicas. One answer counts."""

    kinds: ClassVar[Sequence[str]] = ("pay", "inspect")

    async def talk(self) -> None:
        await self.create_session(self.key)
        message = self.new_message(self.chance.choice(self.kinds))
        way = self.chance.choice(("sse", "background"))
        run = await self.run(message, way, statuses=frozenset({"waiting", "succeeded"}))
        has_ended = run.record is not None and run.record["status"] == "succeeded"
        run.statuses = frozenset({"succeeded"})
        if has_ended:  # the call was interrupted before its tool asked, see checks.py
            self.count("approvals that were not asked for")
            return
        run.record = None
        await self.decide(run)
        await self.follow_to_end(run)
        self.count("approvals")

    async def decide(self, run: SeenRun) -> None:
        calls = [call for _, event in run.seen for call in calls_of(event)]
        (request,) = [call for call in calls if call["name"] == "adk_request_confirmation"]
        answer = {"id": request["id"], "name": request["name"], "response": {"confirmed": True}}
        body = {"newMessage": {"role": "user", "parts": [{"functionResponse": answer}]}}
        answers = await asyncio.gather(*(self._answer(run, body) for _ in range(3)))
        accepted = [one for one in answers if one.status_code == 202]
        refused = [one for one in answers if one.status_code == 409 and one.json()["code"] == "ApprovalRefused"]
        found = [f"{one.status_code} {one.text}" for one in answers]
        assert (len(accepted), len(refused)) == (1, 2), f"answers to {request['id']} of {run.id}: {found}"

    async def _answer(self, run: SeenRun, body: Json) -> httpx.Response:
        return await self.start(run, body, self.new_idempotency_key())


class Exports(NativeClient):
    """Sends the result of a long-running tool, by way of another replica, most likely."""

    async def talk(self) -> None:
        await self.create_session(self.key)
        way: Any = self.chance.choice(("sse", "background"))
        run = await self.run(self.new_message("export"), way, statuses=frozenset({"waiting"}))
        (call,) = [call for _, event in run.seen for call in calls_of(event)]
        run.record = None
        run.statuses = frozenset({"succeeded"})
        result = {"id": call["id"], "name": call["name"], "response": {"pages": 12}}
        body = {"newMessage": {"role": "user", "parts": [{"functionResponse": result}]}}
        response = await self.start(run, body, self.new_idempotency_key())
        assert response.status_code == 202, f"result of {call['id']}: {response.status_code} {response.text}"
        await self.follow_to_end(run)
        self.count("results of long-running tools")


class Draws(NativeClient):
    """Has a tool save an artifact, and then saves a version itself. Each version is whole."""

    async def talk(self) -> None:
        await self.create_session(self.key)
        way: Way = self.chance.choice(("background", "wait"))  # /run_sse sends an event with artifacts in two frames
        await self.run(self.new_message("draw"), way)
        page = await self.ask("GET", path_of(self.key) + "/events", params={"limit": 1000})
        deltas = [event["actions"]["artifactDelta"] for event in page.json()["events"] if "actions" in event]
        ((name, version),) = [one for delta in deltas for one in delta.items()]
        path = f"{path_of(self.key)}/artifacts/{name}"

        part = {"inlineData": {"mimeType": "image/png", "data": base64.b64encode(drawing(name)).decode()}}
        body = {"filename": name, "artifact": part}
        response = await self.ask("POST", f"{path_of(self.key)}/artifacts", json=body)
        assert response.status_code == 200, f"saving {name}: {response.status_code} {response.text}"

        versions = (await self.ask("GET", f"{path}/versions")).json()
        assert {version, response.json()["version"]} <= set(versions), f"{name} has the versions {versions}"
        for one in versions:
            content = await self.ask("GET", f"{path}/versions/{one}/content")
            found = f"{content.status_code}, {len(content.content)} bytes"
            assert (content.status_code, content.content) == (200, drawing(name)), f"{name} {one}: {found}"
        self.count("artifacts", 2)
        self.count("artifacts that were saved again", len(versions) - 2)


class Steers(NativeClient):
    """Sends messages into running turns, by way of any replicas."""

    app = "steered"
    runs_of_each = 8

    async def talk(self) -> None:
        await self.create_session(self.key)
        for _ in range(2):
            await self._send(self.new_message("go", self.chance.randrange(2, 6)))
            for _ in range(3):
                await asyncio.sleep(self.chance.uniform(0, 0.6))
                await self._send(self.new_message("say", 0), multitaskStrategy="steer")
        for run in self.runs:
            await self.follow_to_end(run)
            record = await self.record_of(run)
            self.count("messages that were read within a turn", "readAtSeq" in record)

    async def _send(self, message: str, **more: str) -> None:
        run = SeenRun(self.key, message, "background")
        self.runs.append(run)
        response = await self.start(run, {"newMessage": content_of(message), **more}, self.new_idempotency_key())
        assert response.status_code == 202, response.text


def _names(key: SessionKey) -> Json:
    return {"appName": key.app_name, "userId": key.user_id, "sessionId": key.session_id}
