"""Tools in a live conversation: they run while it continues, and their responses are sent over the connection.

A streaming tool is an asynchronous generator. Its call is answered at once; each value is sent to the model as one more
response to the same call. A function named `stop_streaming`, which the agent declares, stops one by its name.

Source: ADK's live flow and streaming tools.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import aclosing
from typing import cast

from greenroom.agents.human_input.requests import with_requests
from greenroom.agents.live.connection import TASK_COMPLETED
from greenroom.agents.live.conversation import Conversation
from greenroom.agents.transfer import transfer_target
from greenroom.agents.turn.output import final_answer
from greenroom.agents.turn.tool_calls import PendingCall, call_tools, error_in, needed_credentials
from greenroom.errors import GreenroomError, ToolError
from greenroom.invocation.live_requests import LiveRequestQueue
from greenroom.invocation.user_context import ToolContext
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.calls import DecidedCall
from greenroom.records.content import Content, FunctionCall, FunctionResponse, Part
from greenroom.records.event import Event, EventActions
from greenroom.records.human_requests import requests_in
from greenroom.records.model_exchange import LiveRequest
from greenroom.tools.functions.function_tool import FunctionTool
from greenroom.tools.result import to_response
from greenroom.tools.tool import BaseTool

STOP_STREAMING = "stop_streaming"

SendResponse = Callable[[FunctionResponse, ToolContext], Awaitable[None]]
"""Tells the model one more response; what the tool did to state and artifacts goes along."""


Spawn = Callable[[Coroutine[None, None, None]], asyncio.Task[None]]


class StreamingTools:
    """The streams of one conversation, one at a time for each tool."""

    def __init__(self, send_response: SendResponse, spawn: Spawn) -> None:
        self._send_response = send_response
        self._spawn = spawn
        self._running: dict[str, tuple[asyncio.Task[None], LiveRequestQueue | None]] = {}

    def wrap(self, tools: dict[str, BaseTool]) -> dict[str, BaseTool]:
        """The tools by name, with those that stream, and the one that stops them, made to work here."""
        return {name: self._wrapped(tool) for name, tool in tools.items()}

    def _wrapped(self, tool: BaseTool) -> BaseTool:
        if isinstance(tool, FunctionTool) and tool.is_streaming:
            return _Streaming(tool, self)
        return _Stopping(tool, self) if tool.name == STOP_STREAMING else tool

    def copy_input(self, request: LiveRequest) -> None:
        """Give a copy of what the client says to the streams that listen."""
        for _, queue in self._running.values():
            if queue is not None:
                queue.send(request)

    def start(self, tool: FunctionTool, args: JsonObject, tool_context: ToolContext) -> JsonObject:
        if tool.name in self._running:
            return {"error": f"{tool.name} is running already; stop it first."}
        queue = LiveRequestQueue() if tool.takes_input_stream else None
        values = tool.stream(args=args, tool_context=tool_context, input_stream=queue)
        task = self._spawn(self._run(tool.name, values, tool_context))
        self._running[tool.name] = (task, queue)
        return {"status": "The function is running; its results will come one by one."}

    def stop(self, name: JsonValue) -> JsonObject:
        if name not in self._running:
            return {"error": f"No function named {name!r} is streaming."}
        task, _ = self._running.pop(name)
        task.cancel()
        return {"status": f"{name} was stopped."}

    async def close(self) -> None:
        tasks = [task for task, _ in self._running.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, name: str, values: AsyncIterator[JsonValue], tool_context: ToolContext) -> None:
        try:
            async with aclosing(cast("AsyncGenerator[JsonValue]", values)) as stream:
                async for value in stream:
                    await self._respond(name, to_response(value), tool_context, is_last=False)
            await self._respond(name, {"status": "The function has ended."}, tool_context, is_last=True)
        except Exception as error:  # a tool may raise anything; the model gets the error
            raised = error if isinstance(error, GreenroomError) else ToolError(f"{type(error).__name__}: {error}")
            await self._respond(name, {"error": raised.detail}, tool_context, is_last=True)
        finally:
            if name in self._running and self._running[name][0] is asyncio.current_task():
                del self._running[name]

    async def _respond(self, name: str, response: JsonObject, tool_context: ToolContext, *, is_last: bool) -> None:
        will_continue = None if is_last else True
        answer = FunctionResponse(
            id=tool_context.function_call_id, name=name, response=response, will_continue=will_continue
        )
        await self._send_response(answer, tool_context)


class _Streaming(BaseTool):
    """A streaming function in its conversation: a call starts it."""

    def __init__(self, tool: FunctionTool, streams: StreamingTools) -> None:
        super().__init__(name=tool.name, description=tool.description)
        self._tool = tool
        self._streams = streams

    async def run_async(self, *, args: JsonObject, tool_context: ToolContext) -> JsonValue:
        refusal = await self._tool.refusal(args=args, tool_context=tool_context)
        if refusal is not None:
            return refusal
        # One of its own: what this one carries is stored with the first response.
        own = ToolContext(tool_context.invocation_context, function_call_id=tool_context.function_call_id, args=args)
        return self._streams.start(self._tool, args, own)


class _Stopping(BaseTool):
    def __init__(self, tool: BaseTool, streams: StreamingTools) -> None:
        super().__init__(name=tool.name, description=tool.description)
        self._streams = streams

    async def run_async(self, *, args: JsonObject, tool_context: ToolContext) -> JsonValue:
        return self._streams.stop(args.get("function_name"))


class ToolCalls:
    """The calls of one conversation. asked: ids of the approvals it has asked for. spawn: starts a task that ends with
    the conversation."""

    def __init__(self, conversation: Conversation, spawn: Spawn) -> None:
        self._conversation = conversation
        self._at_work: set[asyncio.Task[None]] = set()
        self._spawn = spawn
        self._streams = StreamingTools(self._send_response, spawn)
        self.asked: set[str | None] = set()

    @property
    def are_at_work(self) -> bool:
        return bool(self._at_work)

    def start(self, calls: list[FunctionCall], tools: dict[str, BaseTool]) -> None:
        task = self._spawn(self._run([PendingCall(call) for call in calls], self._streams.wrap(tools)))
        self._at_work.add(task)
        task.add_done_callback(self._at_work.discard)

    def make_decided(self, decided: list[DecidedCall]) -> None:
        """Make the calls that a person has just decided on."""
        if decided:
            task = self._spawn(self._run_decided(decided))
            self._at_work.add(task)
            task.add_done_callback(self._at_work.discard)

    def copy_input(self, request: LiveRequest) -> None:
        self._streams.copy_input(request)

    async def settle(self) -> None:
        """Stop the streams, and wait until every other call has its response in the log."""
        await self._streams.close()
        waiting = self._at_work - {asyncio.current_task()}
        if waiting:
            await asyncio.wait(waiting)

    async def _run_decided(self, decided: list[DecidedCall]) -> None:
        tools = (await self._conversation.connection.opened()).request.tools_dict
        await self._run([PendingCall(one.call, one.answer) for one in decided], self._streams.wrap(tools))

    async def _run(self, calls: list[PendingCall], tools: dict[str, BaseTool]) -> None:
        conversation = self._conversation
        responses = await call_tools(conversation.agent, conversation.ctx, calls, tools)
        readings = conversation.connection.readings
        to_store = (
            await with_requests(conversation.ctx, [one.call for one in calls], responses, needed_credentials(calls))
            if responses is not None
            else []
        )
        for event in to_store:
            self.asked |= {request.id for request in requests_in(event)}
            await conversation.show(event)
        error = error_in(calls)
        if error is not None:
            raise error
        if responses is None:
            return
        conversation.successor = transfer_target(conversation.agent, responses)
        if conversation.successor is not None or conversation.ctx.end_invocation:
            conversation.finish()
            return
        content = responses.content
        if content is not None:
            await conversation.connection.send(lambda live: live.send_content(content), stored_at=readings)
        answer = final_answer(conversation.agent, responses)
        if answer is not None:
            await conversation.show(answer)
        if any(response.name == TASK_COMPLETED for response in responses.get_function_responses()):
            conversation.finish_soon()

    async def _send_response(self, response: FunctionResponse, tool_context: ToolContext) -> None:
        """One more response of a stream. The last one only says that there are no more, so it is not stored."""
        conversation = self._conversation
        content = Content(role="user", parts=[Part(function_response=response)])
        readings: int | None = None
        done = tool_context.collect_actions()
        if response.will_continue or done != EventActions():
            readings = conversation.connection.readings
            event = Event(
                invocation_id=conversation.ctx.invocation_id,
                author=conversation.agent.name,
                branch=conversation.ctx.branch,
                content=content,
                actions=EventActions(state_delta=dict(done.state_delta), artifact_delta=dict(done.artifact_delta)),
            )
            done.state_delta.clear()
            done.artifact_delta.clear()
            await conversation.show(event)
        await conversation.connection.send(lambda live: live.send_content(content), stored_at=readings)
