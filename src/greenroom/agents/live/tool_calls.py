"""Tools in a live conversation: they run while it goes on, and their answers go back into the connection."""

from __future__ import annotations

import asyncio

from greenroom.agents.asking.ask import with_requests
from greenroom.agents.live.conversation import Conversation
from greenroom.agents.live.streaming_tools import Spawn, StreamingTools
from greenroom.agents.live.task_completed import TASK_COMPLETED
from greenroom.agents.turn.hand_over import handed_over_to
from greenroom.agents.turn.structured_output import final_answer
from greenroom.agents.turn.tool_calls import PendingCall, call_tools, error_in, needed_credentials
from greenroom.invocation.user_context import ToolContext
from greenroom.records.calls import DecidedCall, requests_in
from greenroom.records.content import Content, FunctionCall, FunctionResponse, Part
from greenroom.records.event import Event, EventActions
from greenroom.records.model_exchange import LiveRequest
from greenroom.tools.tool import BaseTool


class ToolCalls:
    """The calls of one conversation. asked: ids of the approvals it has asked for. spawn: starts a task that ends with
    the conversation."""

    def __init__(self, talk: Conversation, spawn: Spawn) -> None:
        self._talk = talk
        self._at_work: set[asyncio.Task[None]] = set()
        self._spawn = spawn
        self._streams = StreamingTools(self._tell, spawn)
        self.asked: set[str | None] = set()

    @property
    def are_at_work(self) -> bool:
        return bool(self._at_work)

    def start(self, calls: list[FunctionCall], tools: dict[str, BaseTool]) -> None:
        task = self._spawn(self._run([PendingCall(call) for call in calls], self._streams.wrap(tools)))
        self._at_work.add(task)
        task.add_done_callback(self._at_work.discard)

    def go_on(self, grants: list[DecidedCall]) -> None:
        """Make the calls that a person has just decided on."""
        if grants:
            task = self._spawn(self._run_granted(grants))
            self._at_work.add(task)
            task.add_done_callback(self._at_work.discard)

    def hear(self, request: LiveRequest) -> None:
        self._streams.hear(request)

    async def settle(self) -> None:
        """Stop the streams, and wait until every other call has its response in the log."""
        await self._streams.close()
        waiting = self._at_work - {asyncio.current_task()}
        if waiting:
            await asyncio.wait(waiting)

    async def _run_granted(self, grants: list[DecidedCall]) -> None:
        tools = (await self._talk.link.opened()).request.tools_dict
        await self._run([PendingCall(one.call, one.answer) for one in grants], self._streams.wrap(tools))

    async def _run(self, calls: list[PendingCall], tools: dict[str, BaseTool]) -> None:
        talk = self._talk
        responses = await call_tools(talk.agent, talk.ctx, calls, tools)
        readings = talk.link.readings
        told = (
            await with_requests(talk.ctx, [one.call for one in calls], responses, needed_credentials(calls))
            if responses is not None
            else []
        )
        for event in told:
            self.asked |= {request.id for request in requests_in(event)}
            await talk.show(event)
        error = error_in(calls)
        if error is not None:
            raise error
        if responses is None:
            return
        talk.successor = handed_over_to(talk.agent, responses)
        if talk.successor is not None or talk.ctx.end_invocation:
            talk.finish()
            return
        content = responses.content
        if content is not None:
            await talk.link.deliver(lambda connection: connection.send_content(content), stored_at=readings)
        answer = final_answer(talk.agent, responses)
        if answer is not None:
            await talk.show(answer)
        if any(response.name == TASK_COMPLETED for response in responses.get_function_responses()):
            talk.leave()

    async def _tell(self, response: FunctionResponse, tool_context: ToolContext) -> None:
        """One more response of a stream. The last one only says that there are no more, so it is not stored."""
        talk = self._talk
        content = Content(role="user", parts=[Part(function_response=response)])
        readings: int | None = None
        done = tool_context.settle()
        if response.will_continue or done != EventActions():
            readings = talk.link.readings
            event = Event(
                invocation_id=talk.ctx.invocation_id,
                author=talk.agent.name,
                branch=talk.ctx.branch,
                content=content,
                actions=EventActions(state_delta=dict(done.state_delta), artifact_delta=dict(done.artifact_delta)),
            )
            done.state_delta.clear()
            done.artifact_delta.clear()
            await talk.show(event)
        await talk.link.deliver(lambda connection: connection.send_content(content), stored_at=readings)
