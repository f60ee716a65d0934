"""Watches a run of an agent of Pydantic AI, and stores its progress.

The event of a response waits for what comes next: the first call of a tool, another request, or the end of the turn.
It is stored in one step with the messages up to it, so the calls of a response that is in the log are made, and made
once: each result is stored when its tool returns, and is given again to a run that was cut off.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering
from pydantic_ai.exceptions import ModelRetry, ToolFailed, ToolFailedError, ToolRetryError
from pydantic_ai.messages import (
    AgentStreamEvent,
    ModelMessage,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.tools import (
    DeferredToolRequests,
    DeferredToolResults,
    RunContext,
    ToolApproved,
    ToolDefinition,
    ToolDenied,
)

from greenroom.agents.frameworks.hosted import HostedTurn
from greenroom.agents.frameworks.model_call import HostedModelCall
from greenroom.agents.frameworks.pydantic_ai.messages import (
    dump_result,
    error_part,
    load_result,
    message_of,
    reply_of,
    response_part,
    to_call,
    to_request,
)
from greenroom.agents.frameworks.pydantic_ai.progress import Progress
from greenroom.invocation.user_context import CallbackContext
from greenroom.records.base import JsonObject
from greenroom.records.content import Part
from greenroom.records.event import Event
from greenroom.tools.confirmation import approval_hint, rejected_response


class TurnHalted(BaseException):
    """Raised through the framework when the turn waits for answers. Not an Exception, so that nothing handles it."""


class Recorder(AbstractCapability[Any]):
    """The capability that a run of the agent gets. It is the outermost, so it sees what the others have made of it."""

    def __init__(self, turn: HostedTurn, progress: Progress, context: CallbackContext) -> None:
        super().__init__()
        self._turn = turn
        self._progress = progress
        self._context = context
        self._call: HostedModelCall | None = None
        self._response: Event | None = None
        """The event of the newest response, until it is stored."""
        self._messages: list[ModelMessage] = []
        self._unanswered: set[str] = set()
        """The ids of the newest response's calls that have no event with their response yet."""
        self._external: set[str] = set()
        """The ids of calls whose tools a client executes."""
        self._lock = asyncio.Lock()

    def get_ordering(self) -> CapabilityOrdering:
        return CapabilityOrdering(position="outermost")

    # models

    async def wrap_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, handler: Any
    ) -> ModelResponse:
        await self._store_response()
        await self._store_refusals(ctx.messages)
        model = request_context.model
        parameters = request_context.model_request_parameters

        def request() -> Any:
            return to_request(
                request_context.messages,
                model=model.model_name,
                parameters=parameters,
                settings=request_context.model_settings,
            )

        call = self._turn.model_call(model=model.model_name, provider_name=model.system)
        await call.begin(request)
        self._call = call
        try:
            response: ModelResponse = await handler(request_context)
        except BaseException as error:
            await call.fail(error, request)
            raise
        finally:
            self._call = None

        output_tools = {tool.name for tool in parameters.output_tools}
        external = {tool.name for tool in parameters.function_tools if tool.kind == "external"}
        event = await call.end(reply_of(response, hidden=output_tools))
        self._unanswered = {one.id for one in event.get_function_calls() if one.id is not None}
        self._external = {one.id for one in event.get_function_calls() if one.name in external and one.id is not None}
        if self._external:
            event.long_running_tool_ids = sorted(self._external)
        self._response = event
        self._messages = [*ctx.messages, response]
        return response

    async def _store_response(self) -> None:
        """Stores the newest response, if it isn't stored yet."""
        async with self._lock:
            if self._response is None:
                return
            event = self._response
            self._response = None
            state = self._progress.add(self._messages, at_least=2)
            await self._store(event, state=state)

    async def _store(self, *events: Event, state: JsonObject, is_end: bool = False) -> None:
        """Stores events, and with the first of them what the app's code has changed through the agent's context."""
        actions = self._context.collect_actions()
        if events and (actions.state_delta or actions.artifact_delta):
            events[0].actions.state_delta.update(actions.state_delta)
            events[0].actions.artifact_delta.update(actions.artifact_delta)
            actions.state_delta.clear()
            actions.artifact_delta.clear()
        await self._turn.store(*events, state=state, is_end=is_end)

    async def end(self, messages: Sequence[ModelMessage], output: Event | None) -> None:
        """Stores the end of the turn. output: the event of an output that no response had as text."""
        state = self._progress.add(messages, at_least=2 if self._response is not None else 0)
        events = [event for event in (self._response, output) if event is not None]
        self._response = None
        await self._store(*events, state=state, is_end=True)

    # tools

    async def wrap_tool_execute(
        self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: ToolDefinition, args: Any, handler: Any
    ) -> Any:
        if tool_def.kind == "output":
            return await handler(args)

        await self._store_response()
        stored = self._progress.results.get(call.tool_call_id)
        if stored is not None:
            self._unanswered.discard(call.tool_call_id)
            return load_result(stored)

        try:
            result = await handler(args)
        except (ModelRetry, ToolFailed, ToolRetryError, ToolFailedError) as error:
            part = error_part(call.tool_name, call.tool_call_id, message_of(error))
            await self._store_result(call, part, dump_result(error))
            raise
        part = response_part(call.tool_name, call.tool_call_id, result)
        await self._store_result(call, part, dump_result(result))
        return result

    async def _store_refusals(self, messages: Sequence[ModelMessage]) -> None:
        """Stores the responses to calls that never reached their tools, as those with wrong arguments."""
        last = messages[-1]
        for part in last.parts:
            if isinstance(part, ToolReturnPart) and part.tool_call_id in self._unanswered:
                message = part.model_response_str(wrap_if_error=False)
                response = error_part(part.tool_name, part.tool_call_id, message)
                await self._store_result(part, response, {"retry": message})

    async def _store_result(self, call: ToolCallPart | ToolReturnPart, part: Part, result: JsonObject) -> None:
        self._unanswered.discard(call.tool_call_id)
        self._progress.results[call.tool_call_id] = result
        event = self._turn.new_event(part, role="user")
        await self._store(event, state={"results": {call.tool_call_id: result}})

    # people and clients

    async def handle_deferred_tool_calls(
        self, ctx: RunContext[Any], *, requests: DeferredToolRequests
    ) -> DeferredToolResults:
        """Answers the calls whose answers are known. Raises TurnHalted after asking for the others."""
        await self._store_response()
        decided = self._progress.decided
        approvals = [call for call in requests.approvals if call.tool_call_id not in decided]
        others = [call for call in requests.calls if call.tool_call_id not in decided]
        if approvals or others:
            await self._ask(approvals, others, requests)
            raise TurnHalted

        results = DeferredToolResults()
        for call in requests.approvals:
            answer = decided[call.tool_call_id]
            if answer["confirmed"]:
                results.approvals[call.tool_call_id] = ToolApproved(override_args=answer["args"])
            else:
                results.approvals[call.tool_call_id] = await self._denied(call)
        for call in requests.calls:
            self._unanswered.discard(call.tool_call_id)
            results.calls[call.tool_call_id] = decided[call.tool_call_id]["response"]
        return results

    async def _ask(
        self, approvals: Sequence[ToolCallPart], others: Sequence[ToolCallPart], requests: DeferredToolRequests
    ) -> None:
        events: list[Event] = []
        if approvals:
            calls = [to_call(call) for call in approvals]
            events += self._turn.request_approvals(calls, hints=[approval_hint(call.name or "") for call in calls])
        for call in others:
            if call.tool_call_id not in self._external:  # else the client has the call itself
                payload = {"tool": call.tool_name, "args": call.args_as_dict()}
                payload.update(requests.metadata.get(call.tool_call_id, {}))
                events.append(self._turn.request_input(f"{call.tool_call_id}-answer", payload=payload))
        await self._store(*events, state={})

    async def _denied(self, call: ToolCallPart) -> ToolDenied:
        response = rejected_response(call.tool_name)
        if call.tool_call_id not in self._progress.results:
            part = response_part(call.tool_name, call.tool_call_id, response)
            await self._store_result(call, part, {"returned": response})
        return ToolDenied(response["error"])


class StreamingRecorder(Recorder):
    """Also shows what the model streams. A capability with `on_event` makes the framework stream."""

    async def on_event(self, ctx: RunContext[Any], *, event: AgentStreamEvent) -> None:
        if self._call is None:
            return
        match event:
            case PartStartEvent(part=TextPart(content=text)) | PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
                is_thought = False
            case (
                PartStartEvent(part=ThinkingPart(content=text))
                | PartDeltaEvent(delta=ThinkingPartDelta(content_delta=text))
            ):
                is_thought = True
            case _:
                return
        if text:
            self._turn.publish(self._call.chunk(Part(text=text, thought=is_thought or None)))
