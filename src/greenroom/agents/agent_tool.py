"""An agent that another agent's model can call like a function, and which events belong to it.

They are stored in the same session, in a branch of their own that is named after the call, and with
that name as their isolation scope: only agents of the same scope see them. Source: ADK's AgentTool
and `isolationScope`.
"""

from __future__ import annotations

from contextlib import aclosing

import msgspec

from greenroom.agents.agent import BaseAgent
from greenroom.agents.events import ToolCallPending
from greenroom.errors import AgentConfigError
from greenroom.invocation.context import NO_HOOKS, InvocationContext
from greenroom.invocation.user_context import ToolContext
from greenroom.log.run_state import RunState
from greenroom.log.state import events_of_run, log_state_of
from greenroom.records import wire
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.content import Content, Part
from greenroom.records.copy_on_write import CopyOnWriteList
from greenroom.records.event import Event, EventActions
from greenroom.records.run import StreamingMode
from greenroom.records.state import GROUNDING_METADATA
from greenroom.records.tool_declaration import FunctionDeclaration
from greenroom.tools.tool import BaseTool
from greenroom.tools.value_types.answer_text import value_in
from greenroom.tools.value_types.plain_types import InvalidValue, TypeSchema
from greenroom.tools.value_types.type_schema import type_schema


def isolated(
    ctx: InvocationContext, *, agent: str, call_id: str | None, request: Content, number: int
) -> InvocationContext:
    """The run as an agent sees it that does this call.

    number: which one within the call, from 1.

    After a crash, or a request to a person, the agent resumes where it was.
    """
    at = _index_of_call(ctx, call_id)
    again = f"#{number}" if number > 1 else ""
    scope = f"{_prefix(ctx.branch, ctx.agent.name)}{agent}{again}@{call_id}"
    inner = ctx.for_agent(ctx.agent, branch=scope)
    inner.isolation_scope = scope
    inner.scope_start = at + 1
    inner.user_content = request
    inner.run_config = msgspec.structs.replace(ctx.run_config, streaming_mode=StreamingMode.NONE)
    later = events_of_run(ctx.session.events, ctx.invocation_id, since=at + 1)
    was_begun = any(is_inside(event.isolation_scope, scope) for event in later)
    inner.resumed_from = at + 1 if was_begun else None

    return inner


def is_inside(scope: str | None, outer: str) -> bool:
    """True if a scope is the other scope, or is inside it."""
    return scope is not None and (scope == outer or scope.startswith(outer + "."))


def caller_of(events: CopyOnWriteList[Event], event: Event) -> Event:
    """Returns the event with the outermost call that led to this event; the event itself outside of all scopes."""
    run = log_state_of(events).run(event.invocation_id)
    while event.isolation_scope is not None:
        calling = _calling(run, event.isolation_scope)
        if calling is None or calling is event:
            break
        event = calling
    return event


def _calling(run: RunState, scope: str) -> Event | None:
    """The newest event with the call that a scope is named after. Ids may hold an `@`, as the scope
    does before its call's id.
    """
    end = len(scope)
    while (end := scope.rfind("@", 0, end)) >= 0:
        candidates = [
            record
            for record in run.calls_with_id(scope[end + 1 :])
            if record.event is not None and scope.startswith(_prefix(record.event.branch, record.event.author))
        ]
        if candidates:
            return max(candidates, key=lambda record: record.made_at).event

    return None


def _index_of_call(ctx: InvocationContext, call_id: str | None) -> int:
    record = log_state_of(ctx.session.events).run(ctx.invocation_id).call(call_id, ctx.agent.name, ctx.branch)
    if record is None or record.event is None:
        raise AgentConfigError(f"Agent {ctx.agent.name!r} made no call {call_id!r} that another agent could do")
    return record.made_at


def _prefix(branch: str | None, caller: str) -> str:
    return f"{branch}.{caller}." if branch else f"{caller}."


_REQUEST = "request"


class AgentTool(BaseTool):
    """Name and description are the agent's; its answer is the call's result.

    The agent is asked the `request` alone, or the arguments as JSON if it has an input schema (a workflow agent: if its
    first agent has one), and sees nothing else of the conversation. With an output schema the result has that shape. It
    runs in the same session: it shares state, artifacts and the limit of model calls, and its steps are stored, so that
    it is resumed after a crash, and may wait for a person. The steps carry an `isolationScope`, come whole and not in
    chunks, and none of them is a final response to the user.

    skip_summarization: its answer ends the caller's turn.
    include_plugins: the app's plugins are asked inside, too.
    propagate_grounding_metadata: the caller's next reply carries the sources of the agent's answer.

    Source: ADK's AgentTool, whose agents run in a session of their own, and can't wait there.
    """

    shows_result = True

    def __init__(
        self,
        agent: BaseAgent,
        skip_summarization: bool = False,
        *,
        include_plugins: bool = True,
        propagate_grounding_metadata: bool = False,
    ) -> None:
        super().__init__(name=agent.name, description=agent.description, on_interrupt="retry")
        self.agent = agent
        self.skip_summarization = skip_summarization
        self.include_plugins = include_plugins
        self.propagate_grounding_metadata = propagate_grounding_metadata
        self._input = _type_of(agent, "input_schema", 0)
        self._output = _type_of(agent, "output_schema", -1)

    def _get_declaration(self) -> FunctionDeclaration:
        schema: JsonObject = {
            "type": "object",
            "properties": {_REQUEST: {"type": "string"}},
            "required": [_REQUEST],
        }
        if self._input is not None:
            schema = self._input.json_schema()

        return FunctionDeclaration(
            name=self.name,
            description=self.description,
            parameters_json_schema=schema,
        )

    async def run_async(self, *, args: JsonObject, tool_context: ToolContext) -> JsonValue:
        """Raises whatever the agent raises, and AgentConfigError outside of an agent's turn."""
        try:
            request = self._request(args)
        except InvalidValue as error:
            return {"error": f"{self.name} was not asked, because of these arguments: {error}. Correct them."}

        caller = tool_context.invocation_context

        store = caller.send
        if store is None:
            raise AgentConfigError(f"{self.name} can only be asked while the tools of an agent's turn run")

        tool_context.agent_calls += 1
        inner = isolated(
            caller,
            agent=self.name,
            call_id=tool_context.function_call_id,
            request=Content(role="user", parts=[Part(text=request)]),
            number=tool_context.agent_calls,
        )
        if not self.include_plugins:
            inner.plugins = NO_HOOKS

        inner.unstored = []

        async def send(event: Event) -> None:
            event.isolation_scope = event.isolation_scope or inner.isolation_scope
            await store(event)

        try:
            async with aclosing(self.agent.run_async(inner)) as events:
                async for event in events:
                    if not event.partial:
                        for handled in inner.take_handled():
                            await send(handled)
                        await send(event)

            for handled in inner.take_handled():
                await send(handled)
        except Exception:  # not when it is cancelled: nobody stores events any more
            for event in inner.unstored:
                await send(event)
            raise

        if inner.is_waiting(inner.scope_start):
            raise ToolCallPending

        if self.skip_summarization:
            tool_context.actions.skip_summarization = True

        self._report_changes(inner, tool_context.actions)

        return self._result(inner, tool_context)

    def _request(self, args: JsonObject) -> str:
        if self._input is not None:
            return wire.encode(self._input.to_json(self._input.convert(args))).decode()
        if _REQUEST not in args:
            raise InvalidValue("Required, but missing", location=(_REQUEST,), kind="missing")

        request = args[_REQUEST]
        if isinstance(request, str):
            return request

        return wire.encode(request).decode()

    def _report_changes(self, inner: InvocationContext, actions: EventActions) -> None:
        """Adds the agent's changes to those of the call's response: ADK's clients see none of its
        steps.
        """
        for event in inner.session.events[inner.scope_start :]:
            if is_inside(event.isolation_scope, inner.isolation_scope or ""):
                actions.state_delta.update(event.actions.state_delta)
                actions.artifact_delta.update(event.actions.artifact_delta)

    def _result(self, inner: InvocationContext, tool_context: ToolContext) -> JsonValue:
        for event in reversed(inner.session.events[inner.scope_start :]):
            if event.author == "user" or not is_inside(event.isolation_scope, inner.isolation_scope or ""):
                continue
            if event.error_code is not None and event.content is None:
                return {"error": event.error_message or event.error_code}

            text = _text(event)
            if text is not None:
                if self.propagate_grounding_metadata and event.grounding_metadata is not None:
                    tool_context.state[GROUNDING_METADATA] = event.grounding_metadata
                return self._in_shape(text)

        return ""

    def _in_shape(self, text: str) -> JsonValue:
        if self._output is None:
            return text
        try:
            return value_in(text, self._output)
        except InvalidValue as error:
            return {"error": f"{self.name} did not answer in the form it was to: {error}", "answer": text}


def _text(event: Event) -> str | None:
    """Returns the event's text without thoughts; None when there is none."""
    texts: list[str] = []
    for part in (event.content.parts if event.content is not None else None) or ():
        if part.thought:
            continue
        code = part.executable_code
        outcome = part.code_execution_result
        text = part.text or (code.code if code else None) or (outcome.output if outcome else None)
        if text:
            texts.append(text)

    return "\n".join(texts) if texts else None


def _type_of(agent: BaseAgent, name: str, index: int) -> TypeSchema | None:
    """The schema that an agent declares under that name; of a workflow agent, that of its first or
    last agent.
    """
    while getattr(agent, name) is None and agent.sub_agents and not agent.takes_transfers:
        agent = agent.sub_agents[index]
    schema: object = getattr(agent, name)
    return None if schema is None else type_schema(schema)
