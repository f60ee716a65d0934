"""Tools in a live conversation: they run while it continues, and their responses are sent over the
connection.

A streaming tool is an asynchronous generator. Its call is answered at once; each value is sent to
the model as one more response to the same call. A function named `stop_streaming`, which the agent
declares, stops one by its name.

Source: ADK's live flow and streaming tools.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import aclosing
from functools import partial
from typing import cast

from greenroom.agents.human_input.requests import with_requests
from greenroom.agents.live.connection import TASK_COMPLETED, OpenConnection
from greenroom.agents.live.conversation import LiveConversation
from greenroom.agents.transfer import transfer_target
from greenroom.agents.turn.output import final_answer
from greenroom.agents.turn.tool_calls import PendingCall, call_tools, error_in
from greenroom.errors import GreenroomError, ToolError
from greenroom.invocation.live_requests import LiveRequestQueue
from greenroom.invocation.user_context import ToolContext
from greenroom.log.calls import DecidedCall
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.content import Content, FunctionCall, FunctionResponse, Part
from greenroom.records.event import EventActions
from greenroom.records.human_requests import requests_in
from greenroom.records.model_exchange import LiveRequest
from greenroom.tools.functions.function_tool import FunctionTool
from greenroom.tools.result import to_response
from greenroom.tools.tool import BaseTool

STOP_STREAMING = "stop_streaming"

Spawn = Callable[[Coroutine[None, None, None]], asyncio.Task[None]]


class _LiveTool(BaseTool):
    """A declared tool whose calls do something else in a live conversation."""

    def __init__(
        self,
        tool: BaseTool,
        run: Callable[[JsonObject, ToolContext], Awaitable[JsonValue]],
    ) -> None:
        super().__init__(name=tool.name, description=tool.description)
        self._run = run

    async def run_async(self, *, args: JsonObject, tool_context: ToolContext) -> JsonValue:
        return await self._run(args, tool_context)


class ToolCalls:
    """The calls of a conversation, and its streaming tools, each of which runs once at a time.

    asked: ids of the calls whose approval was requested.
    storing: held while calls are stored and started.
    spawn: starts a task that ends with the conversation.
    """

    def __init__(self, conversation: LiveConversation, spawn: Spawn) -> None:
        self._conversation = conversation
        self._at_work: set[asyncio.Task[None]] = set()
        self._streams: dict[str, tuple[asyncio.Task[None], LiveRequestQueue | None]] = {}
        self._spawn = spawn
        self.asked: set[str | None] = set()
        self.storing = asyncio.Lock()

    @property
    def are_at_work(self) -> bool:
        return bool(self._at_work)

    def start(
        self,
        calls: Sequence[FunctionCall | DecidedCall],
        opened: OpenConnection | None = None,
    ) -> None:
        """Runs calls that arrived over a connection, or on which a person has just decided."""
        if calls:
            task = self._spawn(self._run(calls, opened))
            self._at_work.add(task)
            task.add_done_callback(self._at_work.discard)

    def copy_input(self, request: LiveRequest) -> None:
        """Gives a copy of the client's input to the streams that listen."""
        for _, queue in self._streams.values():
            if queue is not None:
                queue.send(request)

    async def settle(self) -> None:
        """Stops the streams, and waits until every other call has its response in the log."""
        streams = [task for task, _ in self._streams.values()]
        for task in streams:
            task.cancel()
        await asyncio.gather(*streams, return_exceptions=True)
        waiting = self._at_work - {asyncio.current_task()}
        if waiting:
            await asyncio.wait(waiting)

    async def _run(self, new_calls: Sequence[FunctionCall | DecidedCall], opened: OpenConnection | None) -> None:
        conversation = self._conversation
        tools = (opened or await conversation.connection.opened()).request.tools_dict
        calls = [
            PendingCall(call) if isinstance(call, FunctionCall) else PendingCall(call.call, call.answer)
            for call in new_calls
        ]
        responses = await call_tools(
            conversation.agent, conversation.ctx, calls, {name: self._wrapped(tool) for name, tool in tools.items()}
        )
        readings = conversation.connection.readings

        events = await with_requests(
            conversation.ctx,
            [(call.call, call.context) for call in calls],
            responses,
        )
        error = error_in(calls)
        if error is not None:  # the run ends with the responses, which then carry the error
            conversation.ctx.unstored += [*(event for event in events if event is not responses)]
            conversation.ctx.unstored += [responses] if responses is not None else []
            raise error

        for event in events:
            self.asked |= {request.id for request in requests_in(event)}
            await conversation.show(event)

        if responses is None:
            return

        conversation.successor = transfer_target(conversation.agent, responses)

        if conversation.successor is not None or conversation.ctx.end_invocation:
            conversation.over.set()
            return

        content = responses.content
        if content is not None:
            conversation.ctx.llm_calls.add()
            await conversation.connection.send(
                lambda live: live.send_content(content),
                stored_at=readings,
            )

        await conversation.show(final_answer(conversation.agent, responses))
        if any(response.name == TASK_COMPLETED for response in responses.get_function_responses()):
            conversation.finish_soon()

    def _wrapped(self, tool: BaseTool) -> BaseTool:
        if isinstance(tool, FunctionTool) and tool.is_streaming:
            return _LiveTool(tool, partial(self._start_stream, tool))
        if tool.name == STOP_STREAMING:
            return _LiveTool(tool, self._stop_stream)
        return tool

    async def _start_stream(
        self,
        tool: FunctionTool,
        args: JsonObject,
        tool_context: ToolContext,
    ) -> JsonValue:
        refusal = await tool.refusal(args=args, tool_context=tool_context)
        if refusal is not None:
            return refusal
        if tool.name in self._streams:
            return {"error": f"{tool.name} is running already; stop it first."}

        queue = LiveRequestQueue() if tool.takes_input_stream else None
        # A separate context: the actions of the call's own context are stored with the first response.
        own = ToolContext(
            tool_context.invocation_context,
            function_call_id=tool_context.function_call_id,
            args=args,
        )
        values = tool.stream(args=args, tool_context=own, input_stream=queue)
        self._streams[tool.name] = (self._spawn(self._run_stream(tool, values, own)), queue)

        return {"status": "The function is running; its results will come one by one."}

    async def _stop_stream(self, args: JsonObject, tool_context: ToolContext) -> JsonValue:
        name: JsonValue = args.get("function_name")
        if name not in self._streams:
            return {"error": f"No function named {name!r} is streaming."}
        self._streams.pop(name)[0].cancel()
        return {"status": f"{name} was stopped."}

    async def _run_stream(
        self, tool: FunctionTool, values: AsyncIterator[JsonValue], tool_context: ToolContext
    ) -> None:
        try:
            async with aclosing(cast("AsyncGenerator[JsonValue]", values)) as stream:
                async for value in stream:
                    await self._respond(tool, to_response(value), tool_context, is_last=False)
            await self._respond(tool, {"status": "The function has ended."}, tool_context)
        except Exception as error:  # a tool may raise anything; the model gets the error
            if isinstance(error, GreenroomError):
                raised = error
            else:
                raised = ToolError(f"{type(error).__name__}: {error}")
            await self._respond(tool, {"error": raised.detail}, tool_context)
        finally:
            if tool.name in self._streams and self._streams[tool.name][0] is asyncio.current_task():
                del self._streams[tool.name]

    async def _respond(
        self, tool: FunctionTool, value: JsonObject, tool_context: ToolContext, *, is_last: bool = True
    ) -> None:
        """Sends one response of a stream. The last one only says that no more follow, so it is not stored."""
        conversation = self._conversation
        response = FunctionResponse(
            id=tool_context.function_call_id,
            name=tool.name,
            response=value,
            scheduling=tool.response_scheduling,
            will_continue=None if is_last else True,
        )

        content = Content(role="user", parts=[Part(function_response=response)])
        readings: int | None = None
        done = tool_context.collect_actions()
        if not is_last or done != EventActions():
            readings = conversation.connection.readings
            actions = EventActions(
                state_delta=dict(done.state_delta),
                artifact_delta=dict(done.artifact_delta),
            )
            done.state_delta.clear()
            done.artifact_delta.clear()
            await conversation.show(conversation.ctx.new_event(content=content, actions=actions))

        await conversation.connection.send(
            lambda live: live.send_content(content),
            stored_at=readings,
        )
