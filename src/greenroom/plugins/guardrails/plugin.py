"""The plugin that applies guardrails to the runs of an app."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from greenroom.errors import GuardrailBlocked, code_of, message_of
from greenroom.invocation.context import InvocationContext
from greenroom.invocation.user_context import CallbackContext, ToolContext
from greenroom.plugins.guardrails.check import Action, GuardrailCheck, Where
from greenroom.plugins.guardrails.content_checks import ContentChecks, Violations
from greenroom.plugins.guardrails.decisions import GUARDRAILS, DecisionHook, GuardrailDecision, record_decisions
from greenroom.plugins.guardrails.stream import StreamedText
from greenroom.plugins.plugin import PerRunPlugin, UnwrappedError, raised_error
from greenroom.records import wire
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.content import Content, Part
from greenroom.records.event import Event
from greenroom.records.identifiers import uuid4
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from greenroom.records.run import StreamingMode
from greenroom.tools.confirmation import awaiting_confirmation
from greenroom.tools.result import is_plain, to_plain
from greenroom.tools.tool import BaseTool


@dataclass(eq=False)
class _GuardedRun:
    decisions: list[JsonValue] = field(default_factory=list[JsonValue])
    """Not in an event's metadata yet."""
    blocked: GuardrailBlocked | None = None
    """The violation in the user's message, until the run has acted on it."""
    streams: dict[tuple[str, str], StreamedText] = field(default_factory=dict[tuple[str, str], StreamedText])
    """By the event's id and the kind of the text."""
    replies: set[tuple[str | None, str | None, str]] = field(default_factory=set[tuple[str | None, str | None, str]])
    """Agents whose newest reply was checked before it became an event."""
    results: set[str | None] = field(default_factory=set[str | None])
    """Ids of calls whose result was checked before it became an event."""


class GuardrailPlugin(PerRunPlugin[_GuardedRun]):
    """Checks the user's messages, the model's output, and the arguments and results of tools.

    Register it before plugins that read messages, and after `BudgetPlugin`.

    on_violation: `block` ends the run with the error GuardrailBlocked, or with `reply` where one is given (a blocked
        tool call then gets it as its error, and the run continues); `redact` replaces the text for the log, the
        client, the model and the trace; `ask` requests a person's approval of a tool call.
    on_decision: gets each decision.

    Raises AgentConfigError.
    """

    def __init__(
        self,
        checks: Iterable[GuardrailCheck],
        *,
        on_violation: Action = "block",
        reply: str | None = None,
        on_decision: DecisionHook | None = None,
        name: str = "guardrail",
    ) -> None:
        super().__init__(name)
        self._checks = ContentChecks(checks, on_violation=on_violation)
        self._reply = reply
        self._on_decision = on_decision

    async def on_user_message_callback(self, *, invocation_context: InvocationContext, user_message: Content) -> None:
        ctx = invocation_context
        found = Violations()
        clean = await self._checks.clean_message(user_message.parts or [], ctx, found)
        await self._decide(found, ctx)
        if found.blocked is not None:
            self._run_of(ctx).blocked = found.blocked

        user_message.parts = clean  # in place: the run's record holds the same message

    async def before_run_callback(self, *, invocation_context: InvocationContext) -> Content | None:
        await self._count_usage(invocation_context)
        blocked = self._take_blocked(invocation_context)
        if blocked is None:
            return None
        if self._reply is not None:
            return Content(role="model", parts=[Part(text=self._reply)])
        raise self._block(invocation_context, blocked)

    async def before_model_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest
    ) -> LlmResponse | None:
        """Refuses the call after a message that arrived during the run and is blocked, and where an agent of another
        framework would send its model a tool's result that is.
        """
        ctx = callback_context.invocation_context
        await self._count_usage(ctx)
        blocked = self._take_blocked(ctx)
        if blocked is None and _is_hosted(ctx):
            blocked = await self._blocked_results(llm_request, ctx)

        if blocked is None:
            return None
        if self._reply is not None and not _is_hosted(ctx):
            return LlmResponse(content=Content(role="model", parts=[Part(text=self._reply)]))

        callback_context.actions.escalate = True
        return LlmResponse(error_code=blocked.code, error_message=blocked.detail)

    async def _blocked_results(self, request: LlmRequest, ctx: InvocationContext) -> GuardrailBlocked | None:
        found = Violations()
        newest = request.contents[-1].parts if request.contents else None
        for part in newest or ():
            if part.function_response is not None and part.function_response.response is not None:
                await self._checks.clean_json(part.function_response.response, "tool_results", ctx, found)

        found.block_instead_of_redacting()
        await self._decide(found, ctx)
        return found.blocked

    async def after_model_callback(self, *, callback_context: CallbackContext, llm_response: LlmResponse) -> None:
        if llm_response.partial or llm_response.content is None or not llm_response.content.parts:
            return

        ctx = callback_context.invocation_context
        found = Violations()
        content = await self._checks.clean_content(llm_response.content, ctx, found)
        if _is_hosted(ctx):
            found.block_instead_of_redacting()

        await self._count_usage(ctx)
        await self._decide(found, ctx)
        if found.blocked is not None:
            if self._reply is None:
                raise self._block(ctx, found.blocked, llm_response)
            content = Content(role="model", parts=[Part(text=self._reply)])

        llm_response.content = content
        if ctx.run_config.streaming_mode is not StreamingMode.BIDI:  # there, replies are put together afterwards
            self._run_of(ctx).replies.add((ctx.isolation_scope, ctx.branch, ctx.agent.name))

    async def on_event_callback(self, *, invocation_context: InvocationContext, event: Event) -> None:
        ctx = invocation_context
        run = self._runs.get(ctx.invocation_id)
        if event.partial:
            if self._checks.streamed and event.author != "user":
                await self._keep_back(event, ctx)
            return

        if run is not None:
            for kind in ("text", "thought"):
                run.streams.pop((event.id, kind), None)

        key = (event.isolation_scope, event.branch, event.author)
        if run is not None and key in run.replies and not event.get_function_responses():
            run.replies.discard(key)
        else:
            await self._clean_event(event, ctx)

        run = self._runs.get(ctx.invocation_id)
        if run is not None and run.decisions:
            event.custom_metadata = {**(event.custom_metadata or {}), GUARDRAILS: run.decisions}
            run.decisions = []

    async def before_tool_callback(
        self, *, tool: BaseTool, tool_args: JsonObject, tool_context: ToolContext
    ) -> JsonObject | None:
        ctx = tool_context.invocation_context
        call_id = tool_context.function_call_id
        found = Violations()
        self._checks.refuse_call(tool, tool_args, found)

        is_of_model = call_id is not None  # its arguments were judged in the model's reply
        clean = await self._checks.clean_json(tool_args, "tool_arguments", ctx, found, judges=not is_of_model)
        await self._checks.clean_json(tool_args, "tool_arguments", ctx, found, asking=True)
        if tool_context.tool_confirmation is not None:  # a person has decided; a rejected call doesn't get here
            for at in self._asking(found):
                del found.labels[at]

        await self._count_usage(ctx)
        await self._decide(found, ctx, call_id, tool)
        if found.blocked is not None:
            return self._refusal(ctx, found.blocked)

        if clean is not tool_args:
            tool_args.clear()
            tool_args.update(clean)

        asked = [label for at in self._asking(found) for label in found.labels[at]]
        if not asked:
            return None
        tool_context.request_confirmation(hint=f"{tool.name} needs an approval: {', '.join(asked)}.")
        tool_context.actions.skip_summarization = True
        return awaiting_confirmation(tool.name)

    async def after_tool_callback(
        self, *, tool: BaseTool, tool_args: JsonObject, tool_context: ToolContext, result: Any
    ) -> Any:
        if result is None:
            return None

        ctx = tool_context.invocation_context
        call_id = tool_context.function_call_id
        found = Violations()
        plain: JsonValue = result if is_plain(result) else to_plain(result)
        clean = await self._checks.clean_json(plain, "tool_results", ctx, found)
        await self._count_usage(ctx)
        await self._decide(found, ctx, call_id, tool)
        self._run_of(ctx).results.add(call_id)

        if found.blocked is not None:
            return self._refusal(ctx, found.blocked)
        return clean if clean is not plain else None

    async def on_tool_error_callback(
        self, *, tool: BaseTool, tool_args: JsonObject, tool_context: ToolContext, error: Exception
    ) -> JsonObject | None:
        ctx = tool_context.invocation_context
        found = Violations()
        text = message_of(error)
        clean = await self._checks.clean_json(text, "tool_results", ctx, found)
        await self._decide(found, ctx, tool_context.function_call_id, tool)

        if found.blocked is not None:
            return self._refusal(ctx, found.blocked)
        if clean is not text:
            raise UnwrappedError(raised_error(code_of(error), str(clean)))
        return None

    async def after_run_callback(self, *, invocation_context: InvocationContext) -> None:
        await self._count_usage(invocation_context)
        await super().after_run_callback(invocation_context=invocation_context)

    async def on_run_error_callback(self, *, invocation_context: InvocationContext, error: Exception) -> None:
        await self._count_usage(invocation_context)
        await super().on_run_error_callback(invocation_context=invocation_context, error=error)

    async def close(self) -> None:
        for check in self._checks.checks:
            await check.close()

    def _run_of(self, ctx: InvocationContext) -> _GuardedRun:
        return self._runs.setdefault(ctx.invocation_id, _GuardedRun())

    async def _count_usage(self, ctx: InvocationContext) -> None:
        """Stores the usage of models that checks have called. Not called before the user's message is stored."""
        for check in self._checks.checks:
            for reply in check.take_replies(ctx):
                event = ctx.new_event(author=self.name)
                event.usage_metadata = reply.usage_metadata
                event.model_version = reply.model_version
                if ctx.store is not None:
                    await ctx.store(event)

    def _take_blocked(self, ctx: InvocationContext) -> GuardrailBlocked | None:
        run = self._runs.get(ctx.invocation_id)
        if run is None:
            return None
        blocked = run.blocked
        run.blocked = None
        return blocked

    async def _clean_event(self, event: Event, ctx: InvocationContext) -> None:
        """Checks an event that is no reply of a model: of an agent in code, a node, another framework, or live."""
        found = Violations()
        content = None
        if event.content is not None and event.content.parts:
            results = self._run_of(ctx).results
            content = await self._checks.clean_content(event.content, ctx, found, checked_results=results)
            results.difference_update(response.id for response in event.get_function_responses())

        output = event.output
        if output is not None:
            output = await self._checks.clean_json(output, "model_output", ctx, found)
        heard = await self._checks.clean_transcription(event.input_transcription, "user_message", ctx, found)
        said = await self._checks.clean_transcription(event.output_transcription, "model_output", ctx, found)

        if event.id in ctx.stored_later or event.actions.agent_state:  # stored with another framework's state
            found.block_instead_of_redacting()
        await self._decide(found, ctx)
        if found.blocked is not None:
            raise self._block(ctx, found.blocked, event)

        if content is not None:
            event.content = content
        event.output = output
        event.input_transcription = heard
        event.output_transcription = said

    async def _keep_back(self, event: Event, ctx: InvocationContext) -> None:
        """Leaves in a chunk only what no violation can begin in any more."""
        streams = self._run_of(ctx).streams
        if event.output_transcription is not None:
            event.output_transcription = msgspec.structs.replace(event.output_transcription, text="", words=None)
        if event.content is None:
            return

        sent: list[Part] = []
        for part in event.content.parts or ():
            if part.text:
                key = event.id, "thought" if part.thought else "text"
                stream = streams.get(key)
                if stream is None:
                    stream = streams[key] = StreamedText(self._checks.streamed)
                text = await stream.add(part.text, ctx)
                if text:
                    sent.append(msgspec.structs.replace(part, text=text))
            elif part.inline_data is not None or part.file_data is not None:
                sent.append(part)

        event.content = msgspec.structs.replace(event.content, parts=sent)

    def _asking(self, found: Violations) -> list[tuple[GuardrailCheck, Where]]:
        """The keys of the violations about which a person is asked."""
        return [at for at in found.labels if self._checks.action_of(at[0]) == "ask"]

    async def _decide(
        self, found: Violations, ctx: InvocationContext, call_id: str | None = None, tool: BaseTool | None = None
    ) -> None:
        """Records the decisions, and keeps them for the metadata of the run's next event."""
        if not found.labels:
            return
        decisions = [
            GuardrailDecision(
                id=uuid4(),
                check=check.name,
                where=where,
                action="block" if found.blocks_all else self._checks.action_of(check),
                labels=labels,
                function_call_id=call_id,
            )
            for (check, where), labels in found.labels.items()
        ]
        self._run_of(ctx).decisions += map(wire.to_plain, decisions)
        name = tool.name if tool is not None else None
        await record_decisions(decisions, ctx, on_decision=self._on_decision, tool=name)

    def _refusal(self, ctx: InvocationContext, blocked: GuardrailBlocked) -> JsonObject:
        """The response of a blocked call, or of one whose result is blocked. Without `reply`, raises the error."""
        if self._reply is None:
            raise self._block(ctx, blocked)
        return {"error": self._reply}

    def _block(
        self, ctx: InvocationContext, blocked: GuardrailBlocked, reply: LlmResponse | None = None
    ) -> UnwrappedError:
        """The error that ends the run. An event with the decisions, and with the usage of the blocked reply, is stored
        with the end of the run.
        """
        run = self._run_of(ctx)
        event = ctx.new_event()
        event.custom_metadata = {GUARDRAILS: run.decisions}
        run.decisions = []
        if reply is not None:
            event.usage_metadata = reply.usage_metadata
            event.model_version = reply.model_version
        ctx.unstored.append(event)
        return UnwrappedError(blocked)


def _is_hosted(ctx: InvocationContext) -> bool:
    """Whether another framework calls the agent's model, so that its messages can't be changed."""
    return getattr(ctx.agent, "is_hosted", False)
