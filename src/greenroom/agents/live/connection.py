"""The connection to a live model: its options, and sending while it is lost and reopened."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from greenroom.agents.base_llm_agent import BaseLlmAgent
from greenroom.agents.turn.request import build_request
from greenroom.errors import ModelError
from greenroom.invocation.context import InvocationContext
from greenroom.invocation.user_context import ToolContext
from greenroom.models.model import BaseLlm, BaseLlmConnection, RealtimeInput
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.content import Blob
from greenroom.records.generation import LiveConnectConfig
from greenroom.records.model_exchange import LlmRequest
from greenroom.records.tool_declaration import FunctionDeclaration
from greenroom.tools.functions.function_tool import FunctionTool
from greenroom.tools.tool import BaseTool

TASK_COMPLETED = "task_completed"

MAX_SPEECH_BYTES = 1024 * 1024
"""Limit of the unanswered input that is sent again over another connection: half a minute."""

_OF_RUNS = (
    "response_modalities", "speech_config", "input_audio_transcription", "output_audio_transcription",
    "realtime_input_config", "session_resumption", "context_window_compression", "enable_affective_dialog",
    "proactivity", "explicit_vad_signal",
)  # fmt: skip


class TaskCompletedTool(BaseTool):
    """Source of the name: ADK's sequential agent."""

    instruction = (
        f"When you have done what you are for, and the user has nothing more for you, call `{TASK_COMPLETED}` so that "
        "the next agent can begin. Write no text beside the call."
    )

    def __init__(self) -> None:
        super().__init__(
            name=TASK_COMPLETED,
            description="Says that this agent is done.",
            on_interrupt="retry",
        )

    def _get_declaration(self) -> FunctionDeclaration:
        return FunctionDeclaration(name=self.name, description=self.description)

    async def run_async(self, *, args: JsonObject, tool_context: ToolContext) -> JsonValue:
        return {"result": "The next agent takes over."}


async def build_live_request(
    agent: BaseLlmAgent, ctx: InvocationContext, model: BaseLlm, *, handle: str | None
) -> LlmRequest:
    """The request of a text turn, with the run's settings for the connection; its contents are the
    history.

    handle: of the session at the vendor that is to be resumed.
    """
    request = await build_request(agent, ctx, model)
    if ctx.announces_done:
        done = TaskCompletedTool()
        request.append_instructions([done.instruction])
        await done.process_llm_request(tool_context=ToolContext(ctx), llm_request=request)

    for declaration in request.function_declarations():
        declaration.behavior = declaration.behavior or _behavior(request.tools_dict.get(declaration.name or ""))

    config = LiveConnectConfig()
    request.live_connect_config = config
    for name in _OF_RUNS:
        setattr(config, name, getattr(ctx.run_config, name))

    if handle is not None:
        config.session_resumption = {**(config.session_resumption or {}), "handle": handle}

    take_over_config(request)

    return request


def _behavior(tool: BaseTool | None) -> str | None:
    if tool is None:
        return None
    is_streaming = isinstance(tool, FunctionTool) and tool.is_streaming
    return tool.behavior or ("NON_BLOCKING" if is_streaming or tool.response_scheduling else None)


def take_over_config(request: LlmRequest) -> None:
    """Gives the connection the instruction and the tools of the request's config, where callbacks
    may change them.
    """
    connect = request.live_connect_config
    assert connect is not None
    connect.system_instruction = request.config.system_text() or None
    connect.tools = request.config.tools


@dataclass(frozen=True, slots=True)
class OpenConnection:
    """A connection that was opened to a live model."""

    connection: BaseLlmConnection
    request: LlmRequest
    """The request with which it was opened."""

    history_at: int | None
    """The reading of the log with which it was opened; None if it resumes a vendor's session, which knows the
    conversation.
    """


class ReconnectingConnection:
    """Sends over the current connection. Between two connections, messages wait for the next.

    Speech that neither the log nor the vendor's session holds is sent again over the next one.

    newest: the one that was opened last, even if it is lost.
    readings: how often the log was read for one.
    sent_at: when something was sent last; nanoseconds since the epoch.
    handle: of the session at the vendor; None if the log is ahead of it.
    """

    def __init__(self, handle: str | None) -> None:
        self.handle = handle
        self.readings = 0
        self.sent_at = 0
        self._now: asyncio.Future[OpenConnection] = asyncio.get_running_loop().create_future()
        self.newest: OpenConnection | None = None
        self._loss: ModelError | None = None
        self._has_ended = False
        self._speech = deque[RealtimeInput]()
        self._speech_bytes = 0

    async def open(self, opened: OpenConnection) -> None:
        for data in self._speech:
            await opened.connection.send_realtime(data)
        self.newest = opened
        self._loss = None
        self._now.set_result(opened)

    def note_handle(self, handle: str | None) -> None:
        """Records that the vendor's session holds the conversation so far; None: it can't be resumed at present."""
        self.handle = handle
        if handle is not None:
            self._forget_speech()

    def note_answer(self) -> None:
        """Records that the log holds the whole conversation so far."""
        if self._speech:
            self.handle = None
            self._forget_speech()

    def _forget_speech(self) -> None:
        self._speech.clear()
        self._speech_bytes = 0

    def mark_lost(self) -> ModelError | None:
        """Returns how a sender found the connection lost, if one did."""
        if self._now.done() and not self._has_ended:
            self._now = asyncio.get_running_loop().create_future()
        return self._loss

    def end(self) -> None:
        """Drops input that is sent from now on, since no other connection follows."""
        self._has_ended = True
        if not self._now.done() and self.newest is not None:
            self._now.set_result(self.newest)

    async def opened(self) -> OpenConnection:
        """The connection that is open, or will be; after the end, the last that was."""
        return await asyncio.shield(self._now)

    async def send_realtime(self, data: RealtimeInput) -> None:
        await self.send(lambda live: live.send_realtime(data))
        self._speech.append(data)
        self._speech_bytes += _size(data)
        while self._speech_bytes > MAX_SPEECH_BYTES:
            self._speech_bytes -= _size(self._speech.popleft())

    async def send(
        self,
        send: Callable[[BaseLlmConnection], Awaitable[None]],
        *,
        stored_at: int | None = None,
    ) -> None:
        """Sends over this connection, or over the next one if this one is lost.

        stored_at: `readings` before the message was stored. A connection with a later reading has the message in its
        history, so it isn't sent again.
        """
        while True:
            opened = await self.opened()

            knows_it = stored_at is not None and opened.history_at is not None and opened.history_at > stored_at
            if knows_it or self._has_ended:
                return

            try:
                await send(opened.connection)
                self.sent_at = time.time_ns()
                if stored_at is not None:
                    self.handle = None
                return
            except ModelError as error:
                if not error.retryable:
                    raise
                if self.newest is opened and self._loss is None:
                    self.mark_lost()
                    self._loss = error
                    await opened.connection.close()  # its reader then learns that it is lost


def _size(data: RealtimeInput) -> int:
    return len(data.data or b"") if isinstance(data, Blob) else 0
