"""A turn of a graph: its tasks as events, its checkpoints as states in the log.

The events of a task are held until it has ended, and are stored in one step with what it has written. So a task that is
cut off leaves no trace, and one that has ended isn't run again.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import Any, cast
from uuid import UUID

from langchain_core.messages import AIMessage, BaseMessage, SystemMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import Checkpoint
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.pregel import Pregel
from langgraph.types import Command, Interrupt

from greenroom.agents.frameworks.hosted import HostedTurn
from greenroom.agents.frameworks.langgraph.callbacks import HIDDEN_TAGS, handlers_for
from greenroom.agents.frameworks.langgraph.checkpoints import CheckpointStore, LogCheckpointSaver, Namespace
from greenroom.agents.frameworks.langgraph.messages import (
    messages_in,
    reply_of,
    response_part,
    to_messages,
    to_request,
)
from greenroom.agents.frameworks.model_call import HostedModelCall
from greenroom.models.langchain import LangchainReply
from greenroom.records.base import JsonObject
from greenroom.records.event import Event
from greenroom.records.run import StreamingMode
from greenroom.tools.result import to_plain

_MESSAGES = "messages"
_INTERRUPT = "__interrupt__"
_START_PATH = "__start__"
_STORE_SECONDS = 0.002
"""Time in which the end of a task waits for the checkpoint that holds its writes."""


class _ModelCall:
    """A call of a model by a task: its messages, until the task has ended."""

    def __init__(
        self,
        hosted: HostedModelCall,
        messages: Sequence[BaseMessage],
        metadata: Mapping[str, Any],
        options: Mapping[str, Any],
    ) -> None:
        self.hosted = hosted
        self.messages = messages
        self.options = options
        self.tasks = [part.rpartition(":")[2] for part in str(metadata.get("langgraph_checkpoint_ns", "")).split("|")]
        """The task, and those around it."""
        self.is_hidden = not HIDDEN_TAGS.isdisjoint(metadata["tags"])
        self.speaker: str | None = metadata.get("lc_agent_name") or metadata.get("langgraph_node")
        self.model: str | None = metadata.get("ls_model_name") or options.get("model") or options.get("model_name")
        self.reply = LangchainReply()
        self.message: AIMessage | None = None
        self.event: Event | None = None

    def request(self) -> Any:
        return to_request(self.messages, model=self.model, options=self.options)


class GraphTurn:
    def __init__(
        self, graph: Pregel[Any, Any, Any, Any], turn: HostedTurn, *, instruction: str, limit: int | None
    ) -> None:
        self._turn = turn
        self._instruction = instruction
        self._limit = limit
        self._streams = turn.ctx.run_config.streaming_mode is StreamingMode.SSE

        store = CheckpointStore()
        for state in turn.states:
            store.read(state)
        self._saver = LogCheckpointSaver(
            store,
            serde=JsonPlusSerializer(allowed_msgpack_modules=None),
            on_checkpoint=self._checkpoint_put,
            on_writes=self._task_ended,
        )
        self._graph = copy.copy(graph)
        self._graph.checkpointer = self._saver
        self._is_new = not store.checkpoints

        self._calls: dict[UUID, _ModelCall] = {}
        self._held: list[Event] = []
        """Events of tasks that have ended, to be stored with their writes."""
        self._seen: set[str] = set()
        """Ids of the messages that the log has as events, or that are no news to the user."""
        self._has_work = False
        """Whether something was put that isn't in the log, and that running again would repeat."""
        self._timer: asyncio.TimerHandle | None = None
        self._storing: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()

    async def run(self) -> None:
        config: RunnableConfig = {
            "configurable": {"thread_id": self._turn.ctx.session.id},
            "callbacks": handlers_for(self, streams=self._streams),
        }
        if self._limit is not None:
            config["recursion_limit"] = self._limit
        self._read_seen()

        graph = cast("Any", self._graph)
        stream = graph.astream(self._input(), config, stream_mode=["custom"], subgraphs=True, durability="sync")
        try:
            async with aclosing(stream) as chunks:
                async for _, _, chunk in chunks:
                    self._show_custom(chunk)
        finally:
            if self._timer is not None:
                self._timer.cancel()

        for call in self._calls.values():
            self._add_call(call)
        if self._storing is not None:
            await self._storing
        await self._store(is_end=not any(event.long_running_tool_ids for event in self._held))

    def _input(self) -> Any:
        turn = self._turn
        if turn.inputs:
            return Command(resume={request_id.partition(":")[0]: answer for request_id, answer in turn.inputs.items()})
        if turn.is_continued and not self._is_new:
            return None
        messages = to_messages(turn.messages)
        if self._instruction and self._is_new:
            messages.insert(0, SystemMessage(self._instruction))
        return {_MESSAGES: messages}

    def _read_seen(self) -> None:
        """Notes the messages in the graph's state, so that nodes that return them don't say them again."""
        latest = self._saver.get_tuple({"configurable": {}})
        if latest is None:
            return
        for value in latest.checkpoint["channel_values"].values():
            self._seen.update(message.id for message in messages_in(value) if message.id is not None)
        for _, _, value in latest.pending_writes or ():
            self._seen.update(message.id for message in messages_in(value) if message.id is not None)

    # models

    async def model_begins(
        self, call_id: UUID, messages: Sequence[BaseMessage], metadata: Mapping[str, Any], options: Mapping[str, Any]
    ) -> None:
        call = _ModelCall(self._turn.model_call(model=None), messages, metadata, options)
        await call.hosted.begin(call.request)
        self._calls[call_id] = call

    def model_streams(self, call_id: UUID, chunk: BaseMessage) -> None:
        call = self._calls.get(call_id)
        if call is None or call.is_hidden:
            return
        for shown in call.reply.add(chunk):
            if shown.content is not None and shown.content.parts:
                self._turn.publish(call.hosted.chunk(*shown.content.parts))

    async def model_ends(self, call_id: UUID, message: AIMessage) -> None:
        call = self._calls.get(call_id)
        if call is None:
            return
        reply = reply_of(message)
        call.message = message
        call.event = await call.hosted.end(reply)
        self._note_speaker(call.event, message.name or call.speaker)

    async def model_fails(self, call_id: UUID, error: BaseException) -> None:
        call = self._calls.pop(call_id, None)
        if call is not None:
            await call.hosted.fail(error, call.request)

    # tasks

    def _task_ended(
        self, namespace: Namespace, task_id: str, task_path: str, writes: Sequence[tuple[str, Any]]
    ) -> None:
        calls = {key: call for key, call in self._calls.items() if task_id in call.tasks and call.event is not None}
        for key in calls:
            del self._calls[key]
        by_message = {call.message.id: call for call in calls.values() if call.message is not None}

        for channel, value in writes:
            if channel == _INTERRUPT:
                self._add_interrupts(value)
                continue
            for message in messages_in(value):
                self._add_message(message, by_message)
        for call in by_message.values():
            self._add_call(call)

        if _START_PATH not in task_path:
            self._has_work = True
            self._store_soon()

    def _add_message(self, message: BaseMessage, calls: dict[str | None, _ModelCall]) -> None:
        call = calls.pop(message.id, None)
        if message.id is not None:
            if message.id in self._seen:
                return
            self._seen.add(message.id)

        if isinstance(message, AIMessage):
            if call is not None and call.event is not None:
                self._held.append(call.event)
                return
            reply = reply_of(message)
            event = self._turn.new_event(*(reply.content.parts if reply.content is not None else None) or ())
            self._note_speaker(event, message.name)
            if event.content is not None:
                self._held.append(event)
        elif isinstance(message, ToolMessage):
            self._held.append(self._turn.new_event(response_part(message), role="user"))

    def _add_call(self, call: _ModelCall) -> None:
        """Adds a reply that is no message of the graph's state: its text, if it is to be shown, and its usage."""
        event = call.event
        if event is None:
            return
        if call.is_hidden or event.get_function_calls():
            event.content = None
        if event.content is not None or event.usage_metadata is not None:
            self._held.append(event)

    def _add_interrupts(self, interrupts: Sequence[Interrupt]) -> None:
        for interrupt in interrupts:
            event = self._turn.request_input(interrupt.id, payload=to_plain(interrupt.value))
            self._held.append(event)

    def _note_speaker(self, event: Event, speaker: str | None) -> None:
        if speaker is not None:
            event.custom_metadata = {**(event.custom_metadata or {}), "langgraph": {"node": speaker}}

    def _show_custom(self, chunk: Any) -> None:
        """Shows what a node wrote with LangGraph's stream writer."""
        event = self._turn.new_event(metadata={"langgraph": {"custom": to_plain(chunk)}})
        self._turn.publish(event)

    # the log

    async def _checkpoint_put(self, namespace: Namespace, checkpoint: Checkpoint) -> None:
        """LangGraph awaits this before it begins the next tasks."""
        if self._has_work:
            await self._store()

    def _store_soon(self) -> None:
        """Stores the end of a task, though other tasks of its step still run."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_STORE_SECONDS, self._begin_storing)

    def _begin_storing(self) -> None:
        self._timer = None
        if self._has_work and self._storing is None:
            self._storing = asyncio.create_task(self._store())
            self._storing.add_done_callback(self._end_storing)

    def _end_storing(self, _: asyncio.Task[None]) -> None:
        self._storing = None

    async def _store(self, *, is_end: bool = False) -> None:
        async with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            self._has_work = False
            held = self._held
            self._held = []
            state: JsonObject | None = self._saver.take_state()
            if held or state is not None or is_end:
                await self._turn.store(*held, state=state, is_end=is_end)
