"""Clients of other protocols: OpenAI's own client, A2A's SDK, and AG-UI by its wire format."""

from __future__ import annotations

import json
from typing import Any

import a2a.types as a2a
import httpx
import httpx2
import openai
from a2a.client import A2ACardResolver, A2AClientError, ClientConfig, ClientFactory
from a2a.client import Client as A2aSdkClient
from a2a.utils.errors import InternalError, UnsupportedOperationError
from openai import AsyncOpenAI

from greenroom.records.session import SessionKey
from tests.replicas.chaos.client import UNAVAILABLE, Client, SeenRun, World

_TEXTS = ("talk", "buy", "search", "shop")


class GateClient(Client):
    def new_run(self, way: str, key: SessionKey) -> SeenRun:
        run = SeenRun(key, self.new_message(self.chance.choice(_TEXTS), self.chance.randrange(1, 30)), way)
        self.runs.append(run)
        return run


class OpenAi(GateClient):
    """A client of OpenAI's library. It can't name a request that it repeats, so that there may be more runs than it
    knows of, each in a session of its own."""

    def __init__(self, number: int, world: World) -> None:
        super().__init__(number, world)
        self.key = SessionKey(self.app, self.name, "")

    @property
    def _openai(self) -> AsyncOpenAI:
        """Of a replica that a load balancer would choose."""
        return self.world.openai.with_options(base_url=f"{self.balancer.choose().url}/v1")

    async def again(self, error: Exception) -> None:
        """Waits for the next try. Raises errors that no other try can mend."""
        if isinstance(error, openai.APIStatusError) and error.status_code not in UNAVAILABLE:
            raise AssertionError(f"{self.is_doing}: {error.status_code} {error.message}") from error
        self.note_lost(error)
        await self.pause()


_LOST = openai.APIError, httpx2.TransportError, httpx.ConnectError
"""Errors of OpenAI's client, and the balancer's."""


class ChatCompletions(OpenAi):
    """A chat completion ends with its connection, so that a lost one is asked for again."""

    async def talk(self) -> None:
        run = self.new_run("chat completion", self.key)
        run.requests = 0
        while run.text is None:
            run.requests += 1
            self.is_doing = f"chat completion, try {run.requests}"
            try:
                run.text = await self._complete(run, streams=self.chance.random() < 0.7)
            except _LOST as error:
                await self.again(error)

    async def _complete(self, run: SeenRun, *, streams: bool) -> str | None:
        options: Any = {"model": self.app, "user": self.name, "messages": [{"role": "user", "content": run.message}]}
        if not streams:
            response = await self._openai.chat.completions.create(**options)
            run.id = response.id.removeprefix("chatcmpl-")
            return response.choices[0].message.content or ""
        pieces: list[str] = []
        is_complete = False
        async with await self._openai.chat.completions.create(**options, stream=True) as stream:
            run.id = stream.response.headers["x-run-id"]
            async for chunk in stream:
                pieces += [choice.delta.content for choice in chunk.choices if choice.delta.content]
                is_complete = is_complete or any(choice.finish_reason for choice in chunk.choices)
        if not is_complete:
            self.note(f"the stream of {run.id} has ended without a reason")
            self.count("streams that ended before their runs")
            return None
        return "".join(pieces)


class Responses(OpenAi):
    """Two responses in one session. Streams are resumed after the last event's number."""

    runs_of_each = 2

    async def talk(self) -> None:
        previous: str | None = None
        for _ in range(2):
            way = self.chance.choice(("stream", "background", "wait"))
            run = self.new_run(f"response, {way}", self.key)
            response = await self._respond(run, way, previous)
            assert response.status == "completed", f"{response.id}: {response.status} {response.error}"
            run.text = response.output_text
            run.id = response.id.removeprefix("resp_").rpartition("_")[0]
            previous = response.id

    async def _respond(self, run: SeenRun, way: str, previous: str | None) -> Any:
        options: Any = {"model": self.app, "user": self.name}
        if previous is not None:
            options["previous_response_id"] = previous
        while True:
            self.is_doing = f"response to {run.message!r} by {way}"
            options["input"] = run.message
            try:
                if way == "wait":
                    return await self._openai.responses.create(**options, timeout=90)
                if way == "background":
                    started = await self._openai.responses.create(**options, background=True)
                    return await self._poll(started.id)
                return await self._stream(options)
            except _LOST as error:
                await self.again(error)
            run.lost_messages.append(run.message)
            kind, _, amount = run.message.split()
            run.message = self.new_message(kind, int(amount))

    async def _poll(self, response_id: str) -> Any:
        while True:
            self.is_doing = f"GET {response_id}"
            try:
                response = await self._openai.responses.retrieve(response_id)
                if response.status not in ("queued", "in_progress"):
                    return response
            except _LOST as error:
                await self.again(error)
            await self.pause()

    async def _stream(self, options: Any) -> Any:
        """The response at the end of a stream, whose pieces are its text."""
        reading = ResponseStream()
        await reading.read(await self._openai.responses.create(**options, stream=True, background=True))
        while reading.response is None:
            self.is_doing = f"GET {reading.id} as a stream after {reading.number}"
            await self.pause()
            try:
                after: Any = {} if reading.number is None else {"starting_after": reading.number}
                await reading.read(await self._openai.responses.retrieve(reading.id, stream=True, **after))
            except _LOST as error:
                await self.again(error)
        self.world.journal.count("responses that were read from their start", reading.begins)
        text = reading.response.output_text
        assert "".join(reading.pieces) == text, f"{reading.id}: {reading.pieces} is not {text!r}"
        return reading.response


class ResponseStream:
    """A response that is read over several streams."""

    def __init__(self) -> None:
        self.id = ""
        self.number: int | None = None
        """Of the last event."""

        self.pieces: list[str] = []
        self.response: Any = None
        """The response at its end."""

        self.begins = 0
        """Times that it was read from its start again, since other text was streamed before a crash than was stored."""

    async def read(self, stream: Any) -> None:
        """Reads a stream to its end. Raises errors of lost connections if the response has no id by then."""
        try:
            async with stream:
                async for event in stream:
                    self._note(event)
        except _LOST:
            if not self.id:
                raise
        if not self.id:
            raise httpx2.ReadError("the stream ended with an error before the response had an id")

    def _note(self, event: Any) -> None:
        if event.type == "error":
            if event.code == "InvalidRequest":
                self.number = None
                self.pieces = []
                self.begins += 1
            return
        if event.type == "response.created":
            self.id = event.response.id
        elif event.type == "response.output_text.delta":
            self.pieces.append(event.delta)
        elif event.type in ("response.completed", "response.failed", "response.incomplete"):
            self.response = event.response
        self.number = event.sequence_number


class AgUi(GateClient):
    """Sends its request again, with the same run id, until it has read the run to its end."""

    runs_of_each = 2

    async def talk(self) -> None:
        messages: list[Any] = []
        for _ in range(2):
            run = self.new_run("AG-UI", self.key)
            messages.append({"id": run.message, "role": "user", "content": run.message})
            while run.text is None:
                run.text = await self._run(run, messages)
            messages.append({"id": f"answer to {run.message}", "role": "assistant", "content": run.text})

    async def _run(self, run: SeenRun, messages: list[Any]) -> str | None:
        body = {
            "threadId": self.key.session_id,
            "runId": f"run of {run.message}",
            "messages": messages,
            "state": {},
            "tools": [],
            "context": [],
            "forwardedProps": {"userId": self.key.user_id},
        }
        pieces: list[str] = []
        async with self.stream("POST", f"/ag-ui/{self.app}", json=body) as response:
            if response is not None:
                if response.status_code != 200:
                    await response.aread()
                    raise AssertionError(f"{self.key}: {response.status_code} {response.text}")
                run.id = response.headers["x-run-id"]
                async for line in response.aiter_lines():
                    if not line.startswith("data: "):
                        continue
                    event = json.loads(line.removeprefix("data: "))
                    if event["type"] == "TEXT_MESSAGE_CONTENT":
                        pieces.append(event["delta"])
                    elif event["type"] == "MESSAGES_SNAPSHOT":
                        pieces = [m["content"] for m in event["messages"][len(messages) :] if m["role"] == "assistant"]
                    elif event["type"] == "RUN_ERROR":
                        assert event["code"] in ("Unavailable", "OwnershipLost"), event
                        self.note(f"{run.id}: {event}")
                        self.count("streams that ended with an error")
                        break
                    elif event["type"] == "RUN_FINISHED":
                        assert event["outcome"] == {"type": "success"}, event
                        return "".join(pieces)
                else:
                    self.count("streams that ended before their runs")
        await self.pause()
        return None


_TERMINAL = (
    a2a.TaskState.TASK_STATE_COMPLETED,
    a2a.TaskState.TASK_STATE_FAILED,
    a2a.TaskState.TASK_STATE_CANCELED,
    a2a.TaskState.TASK_STATE_REJECTED,
)


class A2a(GateClient):
    """Two tasks in one context. It subscribes to a task when its stream is cut."""

    runs_of_each = 2

    def __init__(self, number: int, world: World) -> None:
        super().__init__(number, world)
        self.key = SessionKey(self.app, f"A2A_USER_{self.name}", self.name)

    async def talk(self) -> None:
        card = await self._card()
        streams = self.chance.random() < 0.7
        config = ClientConfig(httpx_client=self.http, streaming=streams, supported_protocol_bindings=["JSONRPC"])
        client = ClientFactory(config).create(card)
        for _ in range(2):
            run = self.new_run("A2A", self.key)
            message = a2a.Message(
                message_id=run.message,
                context_id=self.key.session_id,
                role=a2a.Role.ROLE_USER,
                parts=[a2a.Part(text=run.message)],
            )
            task = await self._task(client, a2a.SendMessageRequest(message=message))
            assert task.status.state == a2a.TaskState.TASK_STATE_COMPLETED, task
            run.id = task.id
            run.text = "".join(part.text for artifact in task.artifacts for part in artifact.parts)

    async def _card(self) -> a2a.AgentCard:
        while True:
            self.is_doing = "the agent's card"
            try:
                return await A2ACardResolver(self.http, f"http://localhost/a2a/{self.app}").get_agent_card()
            except A2AClientError as error:
                self.note_lost(error)
                await self.pause()

    async def _task(self, client: A2aSdkClient, request: a2a.SendMessageRequest) -> a2a.Task:
        """The task at its end."""
        task_id = ""
        while True:
            self.is_doing = f"task {task_id} of {request.message.message_id}"
            try:
                if task_id:
                    stream = client.subscribe(a2a.SubscribeToTaskRequest(id=task_id))
                else:
                    stream = client.send_message(request)
                async for one in stream:
                    task_id = one.task.id or one.status_update.task_id or task_id
                return await self._ended(client, task_id)
            except UnsupportedOperationError:  # it ended before the subscription
                return await self._ended(client, task_id)
            except InternalError as error:
                if "subscribe to the task again" not in str(error):
                    raise
                self.note_lost(error)
                await self.pause()
            except A2AClientError as error:
                self.note_lost(error)
                await self.pause()

    async def _ended(self, client: A2aSdkClient, task_id: str) -> a2a.Task:
        """The task, after its stream has ended."""
        while True:
            self.is_doing = f"GetTask {task_id}"
            try:
                task = await client.get_task(a2a.GetTaskRequest(id=task_id))
            except A2AClientError as error:
                self.note_lost(error)
            else:
                if task.status.state in _TERMINAL:
                    return task
                self.count("streams that ended before their runs")
                self.note(f"task {task_id} is {a2a.TaskState.Name(task.status.state)} after its stream's end")
            await self.pause()
