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

import msgspec
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import Checkpoint
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.pregel import Pregel
from langgraph.types import Interrupt

from greenroom.agents.frameworks.hosted import HostedTurn
from greenroom.agents.frameworks.langgraph.callbacks import HIDDEN_TAGS, handlers_for
from greenroom.agents.frameworks.langgraph.checkpoints import LogCheckpointSaver, Namespace, read_states
from greenroom.agents.frameworks.langgraph.graph_io import (
    MESSAGES,
    GraphInput,
    changed_fields,
    exported,
    shown,
    state_delta,
)
from greenroom.agents.frameworks.langgraph.interrupts import breakpoint_request, command_for, requests_for
from greenroom.agents.frameworks.langgraph.messages import messages_in, reply_of, response_part, to_request
from greenroom.agents.frameworks.model_call import HostedModelCall
from greenroom.models.langchain import LangchainReply
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.content import Part
from greenroom.records.event import Event
from greenroom.records.run import StreamingMode

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
        self,
        graph: Pregel[Any, Any, Any, Any],
        turn: HostedTurn,
        *,
        takes: GraphInput,
        serde: SerializerProtocol,
    ) -> None:
        self._turn = turn
        self._takes = takes
        self._streams = turn.ctx.run_config.streaming_mode is StreamingMode.SSE

        ctx = turn.ctx
        key = ("langgraph", turn.agent.name, ctx.branch, ctx.isolation_scope)
        store = read_states(turn.states, ctx.session.events.derived, key)
        self._is_new = not store.checkpoints
        self._saver = LogCheckpointSaver(
            store,
            serde=serde,
            on_checkpoint=self._checkpoint_put,
            on_writes=self._task_ended,
        )
        self._graph = copy.copy(graph)
        self._graph.checkpointer = self._saver
        self._config: RunnableConfig = {
            "configurable": {"thread_id": ctx.session.id},
            "callbacks": handlers_for(self, streams=self._streams),
        }

        self._calls: dict[UUID, _ModelCall] = {}
        self._held: list[Event] = []
        """Events of tasks that have ended, to be stored with their writes."""
        self._seen: set[str] = set()
        """Ids of the messages that the log has as events, or that are no news to the user."""
        self._asked: set[str] = set()
        """Ids of the interrupts; an outer graph reports those of the graphs in it again."""
        self._values: Mapping[str, Any] = {}
        """The newest values of the outermost graph's channels."""
        self._has_spoken = False
        self._has_work = False
        """Whether something was put that isn't in the log, and that running again would repeat."""
        self._timer: asyncio.TimerHandle | None = None
        self._storing: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()

    async def run(self, *, instruction: str) -> None:
        """Runs the graph. instruction: a system message before the first message."""
        self._read_latest()
        given = self._input(instruction)

        graph = cast("Any", self._graph)
        stream = graph.astream(given, self._config, stream_mode=["custom"], subgraphs=True, durability="sync")
        try:
            async with aclosing(stream) as chunks:
                async for _, _, chunk in chunks:
                    self._show_custom(chunk)
        finally:
            if self._timer is not None:
                self._timer.cancel()

        for call in self._calls.values():
            self._add_call(call)
        await self._add_breakpoint()
        if not self._has_spoken and not self._asked:
            self._add_output()
        if self._storing is not None:
            await self._storing
        await self._store(is_end=not self._asked)

    def _read_latest(self) -> None:
        """Reads the state of the graph and of those in it: nodes that return messages in it don't say them again."""
        for namespace in self._saver.namespaces():
            latest = self._saver.get_tuple({"configurable": {"checkpoint_ns": namespace}})
            if latest is None:
                continue
            if not namespace:
                self._values = latest.checkpoint["channel_values"]
            written = [write[2] for write in latest.pending_writes or ()]
            for value in (*latest.checkpoint["channel_values"].values(), *written):
                self._seen.update(message.id for message in messages_in(value) if message.id is not None)

    def _input(self, instruction: str) -> Any:
        turn = self._turn
        if turn.is_continued and not self._is_new:
            return command_for(turn.inputs)

        has_messages = any(True for value in self._values.values() for _ in messages_in(value))
        state = changed_fields(turn.ctx.session.state, self._values, self._takes.fields)
        return self._takes.make(
            turn.messages,
            instruction="" if has_messages else instruction,
            state=state,
            before=self._missed_messages(),
        )

    def _missed_messages(self) -> list[BaseMessage]:
        """The messages of runs that had waited for a person while the newest run began without them."""
        known = {message.id for message in messages_in(self._values.get(MESSAGES))}
        missed: list[BaseMessage] = []
        for states in self._turn.ended_meanwhile:
            values = self._saver.values_of(states)
            missed += [message for message in messages_in(values.get(MESSAGES)) if message.id not in known]
        self._seen.update(message.id for message in missed if message.id is not None)
        return missed

    # models

    async def model_begins(
        self, call_id: UUID, messages: Sequence[BaseMessage], metadata: Mapping[str, Any], options: Mapping[str, Any]
    ) -> None:
        provider = str(metadata.get("ls_provider") or "langchain")
        call = _ModelCall(self._turn.model_call(model=None, provider_name=provider), messages, metadata, options)
        await call.hosted.begin(call.request)
        self._calls[call_id] = call

    def model_streams(self, call_id: UUID, chunk: BaseMessage) -> None:
        call = self._calls.get(call_id)
        if call is None or call.is_hidden:
            return
        for reply in call.reply.add(chunk):
            if reply.content is not None and reply.content.parts:
                self._turn.publish(call.hosted.chunk(*reply.content.parts))

    async def model_ends(self, call_id: UUID, message: AIMessage) -> None:
        call = self._calls.get(call_id)
        if call is None:
            return
        reply = reply_of(message)
        call.message = message
        call.event = await call.hosted.end(reply)
        _note(call.event, "node", message.name or call.speaker)

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
                self._add_interrupts(value, number=self._saver.resume_count(namespace, task_id))
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
            if call is None:
                call = _take_call_with_text(message.text, calls)
            if call is not None and call.event is not None:
                self._hold(call.event)
                return
            reply = reply_of(message)
            event = self._turn.new_event(*(reply.content.parts if reply.content is not None else None) or ())
            _note(event, "node", message.name)
            if event.content is not None:
                self._hold(event)
        elif isinstance(message, ToolMessage):
            self._hold_response(response_part(message))

    def _hold(self, event: Event) -> None:
        self._has_spoken = self._has_spoken or event.content is not None
        self._held.append(event)

    def _hold_response(self, part: Part) -> None:
        """Holds the response of a tool. Those to the calls of one reply are one event, as far as they are stored in one
        step.
        """
        last = self._held[-1].content if self._held else None
        if last is not None and last.role == "user" and last.parts is not None:
            last.parts.append(part)
        else:
            self._hold(self._turn.new_event(part, role="user"))

    def _add_call(self, call: _ModelCall) -> None:
        """Adds a reply that is no message of the graph's state: its text, if it is to be shown, and its usage."""
        event = call.event
        if event is None:
            return
        if call.is_hidden or event.get_function_calls():
            event.content = None
        if event.content is not None or event.usage_metadata is not None:
            self._hold(event)

    def _add_interrupts(self, interrupts: Sequence[Interrupt], *, number: int) -> None:
        for interrupt in interrupts:
            if interrupt.id not in self._asked:
                self._asked.add(interrupt.id)
                self._held += requests_for(self._turn, interrupt, number=number)

    async def _add_breakpoint(self) -> None:
        """Asks whether the graph may continue, if it was compiled to halt before or after a node, and has."""
        graph = self._graph
        if self._asked or not (graph.interrupt_before_nodes or graph.interrupt_after_nodes):
            return
        state = await graph.aget_state(self._config)
        if state.next:
            checkpoint_id = str(state.config.get("configurable", {}).get("checkpoint_id"))
            self._asked.add(checkpoint_id)
            self._held.append(breakpoint_request(self._turn, checkpoint_id, state.next))

    def _add_output(self) -> None:
        """Adds the graph's output as text, where no node has said anything."""
        channels = self._output_channels()
        values = {name: value for name in channels if (value := exported(self._values.get(name))) is not None}
        if not values:
            return
        value = next(iter(values.values())) if len(values) == 1 else values
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        self._hold(self._turn.new_event(Part(text=text)))

    def _output_channels(self) -> Sequence[str]:
        channels = self._graph.output_channels
        return [channels] if isinstance(channels, str) else channels

    def _show_custom(self, chunk: Any) -> None:
        """Shows what a node wrote with LangGraph's stream writer."""
        event = self._turn.new_event()
        _note(event, "custom", shown(chunk))
        self._turn.publish(event)

    # the log

    async def _checkpoint_put(self, namespace: Namespace, checkpoint: Checkpoint) -> None:
        """LangGraph awaits this before it begins the next tasks."""
        if not namespace:
            self._values = checkpoint["channel_values"]
        if self._has_work and not (namespace or self._is_last(checkpoint)):
            await self._store()

    def _is_last(self, checkpoint: Checkpoint) -> bool:
        """Whether no node follows, so that the checkpoint is stored with the end of the turn."""
        updated = checkpoint.get("updated_channels")
        return updated is not None and self._graph.trigger_to_nodes.keys().isdisjoint(updated)

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
            delta = state_delta(self._values, self._output_channels(), self._turn.ctx.session.state)
            if delta:
                held.append(self._turn.new_event(state_delta=delta))
            if held or state is not None or is_end:
                await self._turn.store(*held, state=state, is_end=is_end)


def _take_call_with_text(text: str, calls: dict[str | None, _ModelCall]) -> _ModelCall | None:
    """Takes the call whose text a node has put into a message of its own."""
    for message_id, call in calls.items():
        if call.message is not None and text and call.message.text == text and not call.message.tool_calls:
            return calls.pop(message_id)
    return None


def _note(event: Event, name: str, value: JsonValue) -> None:
    if value is not None:
        event.custom_metadata = {**(event.custom_metadata or {}), "langgraph": {name: value}}
