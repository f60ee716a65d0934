"""A remote task, followed until it ends or pauses, through cut streams and restarts of its server.

A stream that ends while the task is unfinished was cut. The task is then read (GetTask), and if it
is still unfinished its stream is opened again (SubscribeToTask), or, where the server offers none,
the task is read again and again:

    SendStreamingMessage → task t-1 submitted, working, artifact a (append) … cut
    GetTask t-1          → working
    SubscribeToTask t-1  → working, artifact a (append), artifact a (last chunk), completed
    GetTask t-1          → completed, with the whole artifact: updates between the streams may have been missed
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from typing import Any, cast

from a2a.client import Client, ClientCallContext
from a2a.client.errors import A2AClientError as ClientError
from a2a.types import (
    CancelTaskRequest,
    GetTaskRequest,
    SendMessageRequest,
    StreamResponse,
    SubscribeToTaskRequest,
    Task,
    TaskState,
)
from a2a.types import Part as A2APart
from a2a.utils.errors import A2AError
from google.protobuf.json_format import MessageToDict, ParseError

from greenroom.errors import A2AClientError
from greenroom.records.base import JsonObject
from greenroom.records.content import Part

PAUSED = frozenset({TaskState.TASK_STATE_INPUT_REQUIRED, TaskState.TASK_STATE_AUTH_REQUIRED})
FAILED = frozenset({TaskState.TASK_STATE_FAILED, TaskState.TASK_STATE_REJECTED, TaskState.TASK_STATE_CANCELED})
SETTLED = PAUSED | FAILED | {TaskState.TASK_STATE_COMPLETED}

_MAX_BYTES = 16 * 1024 * 1024
_CANCEL_SECONDS = 5.0
_CHECK_SECONDS = 30.0
"""Time for which a reopened stream may be silent before the task is read: its worker may be gone."""


class RemoteTask:
    """State of one exchange. parts: of the artifacts by id, of an answering message under ''."""

    def __init__(
        self,
        client: Client,
        context: ClientCallContext,
        *,
        timeout: float,
        may_subscribe: bool,
    ) -> None:
        self._client = client
        self._context = context
        self._timeout = timeout
        self._may_subscribe = may_subscribe
        self._bytes = 0
        self.task = Task()
        self.parts: dict[str, list[A2APart]] = {}
        self.is_answered = False

    @property
    def is_settled(self) -> bool:
        return self.is_answered or self.task.status.state in SETTLED

    async def responses(self, request: SendMessageRequest | None) -> AsyncGenerator[StreamResponse]:
        """The responses until the task is settled. request None: the task is known by its id, and
        followed.

        Raises A2AClientError when the server fails, or says nothing new for `timeout` seconds.
        """
        if request is None:
            opened = None
        else:
            opened = self._client.send_message(request, context=self._context)

        was_cut = request is None
        pause = 0.25
        heard_at = time.monotonic()
        while True:
            if opened is not None:
                failure: Exception | None = None
                try:
                    async with aclosing(cast("AsyncGenerator[StreamResponse]", opened)) as stream:
                        while not self.is_settled:
                            async with asyncio.timeout(
                                min(self._timeout, _CHECK_SECONDS) if was_cut else self._timeout
                            ):
                                response = await anext(stream)

                            if self._fold(response):
                                pause = 0.25
                                heard_at = time.monotonic()
                                if not (was_cut and self.is_settled):
                                    yield response
                except StopAsyncIteration:
                    pass
                except (ClientError, TimeoutError) as error:
                    failure = error
                except (A2AError, ParseError, ValueError) as error:  # the server's refusal, or no A2A
                    if not was_cut:
                        raise A2AClientError(str(error)) from error
                    self._may_subscribe = False

                if self.is_settled and not was_cut:
                    return

                if not self.task.id:
                    reason = str(failure or "the stream ended before the task did") or "no answer in time"
                    raise A2AClientError(reason) from failure

            was_cut = True
            opened = None

            if await self._read():
                heard_at = time.monotonic()
                yield StreamResponse(task=self.task)
                if self.is_settled:
                    return

            if time.monotonic() - heard_at > self._timeout:
                raise A2AClientError(f"task {self.task.id} has not changed for {self._timeout:g} s, and is unfinished")

            await asyncio.sleep(min(pause, self._timeout))
            pause = min(pause * 2, 5.0)

            if self._may_subscribe:
                opened = self._client.subscribe(
                    SubscribeToTaskRequest(id=self.task.id),
                    context=self._context,
                )

    async def cancel(self) -> None:
        """Asks the server to cancel the task; does nothing when that fails."""
        if self.task.id and not self.is_settled:
            with suppress(A2AError, TimeoutError, ParseError):
                async with asyncio.timeout(_CANCEL_SECONDS):
                    await self._client.cancel_task(
                        CancelTaskRequest(id=self.task.id),
                        context=self._context,
                    )

    async def _read(self) -> bool:
        """Reads the task. Whether it has changed. Raises A2AClientError when the server does not
        know it.
        """
        request = GetTaskRequest(id=self.task.id, history_length=0)
        try:
            async with asyncio.timeout(self._timeout):
                task = await self._client.get_task(request, context=self._context)
        except (ClientError, TimeoutError):
            return False  # it may be starting again
        except (A2AError, ParseError) as error:
            raise A2AClientError(f"task {self.task.id} can't be read: {error}") from error

        return self._fold(StreamResponse(task=task)) or self.is_settled

    def _fold(self, response: StreamResponse) -> bool:
        """False when it brings nothing new."""
        self._bytes += response.ByteSize()

        kind = response.WhichOneof("payload")
        if kind == "message":
            self.parts[""] = list(response.message.parts)
            self.is_answered = True
            self.task.context_id = response.message.context_id
        elif kind == "task":
            self._bytes = response.ByteSize()
            parts = {artifact.artifact_id: list(artifact.parts) for artifact in response.task.artifacts}
            if self.task.id and response.task.status == self.task.status and parts == self.parts:
                return False
            self.task = response.task
            self.parts = parts
        elif kind == "status_update":
            update = response.status_update
            self.task.id = update.task_id
            self.task.context_id = update.context_id
            self.task.status.CopyFrom(update.status)
        elif kind == "artifact_update":
            update = response.artifact_update
            self.task.id = update.task_id
            self.task.context_id = update.context_id
            artifact_parts = self.parts.setdefault(update.artifact.artifact_id, [])
            if not update.append:
                artifact_parts.clear()
            artifact_parts.extend(update.artifact.parts)

        if self._bytes > _MAX_BYTES:
            raise A2AClientError(f"the answer is larger than {_MAX_BYTES} bytes")

        return True


def status_of(task: Task) -> JsonObject:
    """A task as it is kept in the log: without history and artifacts, which are in events."""
    return MessageToDict(Task(id=task.id, context_id=task.context_id, status=task.status))


def convert(parts: Sequence[Any] | Any, converter: Callable[[Any], Any]) -> list[Any]:
    converted: list[Any] = []
    for part in parts:
        result = converter(part)
        if isinstance(result, list):
            converted += result
        elif result is not None:
            converted.append(result)
    return converted


def joined(parts: list[Part]) -> list[Part]:
    """Joins the chunks of a text into one part."""
    merged: list[Part] = []
    for part in parts:
        last = merged[-1] if merged else None
        if last is not None and part.text is not None and last.text is not None and part.thought == last.thought:
            merged[-1] = Part(
                text=last.text + part.text,
                thought=part.thought,
                part_metadata=last.part_metadata,
            )
        else:
            merged.append(part)

    return merged
