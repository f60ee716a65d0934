"""The plugin that applies guardrails to the runs of an app."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar, cast

import msgspec

from greenroom.errors import AgentConfigError, GuardrailBlocked, code_of, message_of
from greenroom.invocation.context import InvocationContext
from greenroom.invocation.user_context import CallbackContext, ToolContext
from greenroom.plugins.guardrails.check import Action, Finding, GuardrailCheck, Where
from greenroom.plugins.guardrails.redaction import (
    Find,
    merged,
    redact_json,
    redact_parts,
    redacted,
    replacement,
)
from greenroom.plugins.guardrails.stream import StreamedText
from greenroom.plugins.plugin import PerRunPlugin, UnwrappedError, raised_error
from greenroom.records import wire
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.content import Content, Part, Transcription
from greenroom.records.event import Event
from greenroom.records.human_requests import REQUESTS
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from greenroom.records.run import StreamingMode
from greenroom.telemetry import names
from greenroom.telemetry.agent_spans import PlainSpan
from greenroom.telemetry.span import AttributeValue, Span
from greenroom.tools.confirmation import awaiting_confirmation
from greenroom.tools.result import is_plain, to_plain, to_response
from greenroom.tools.tool import BaseTool

JsonT = TypeVar("JsonT", bound=JsonValue)

GUARDRAILS = "guardrails"
"""Key in the custom metadata of events: the decisions since the run's event before."""


class GuardrailDecision(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A violation and its consequence, without the text."""

    check: str
    where: Where
    action: Action
    labels: list[str]
    function_call_id: str | None = None


DecisionHook: TypeAlias = Callable[[GuardrailDecision, InvocationContext], Awaitable[None] | None]
"""Called with each decision before it takes effect, as for an audit trail. An error in it fails the run."""


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


@dataclass
class _Violations:
    """The violations in one message, call or result."""

    labels: dict[tuple[GuardrailCheck, Where], list[str]] = field(
        default_factory=dict[tuple[GuardrailCheck, Where], list[str]]
    )
    blocked: GuardrailBlocked | None = None
    """The first that blocks."""
    blocks_all: bool = False
    """Whether those to be redacted block too."""


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
        self._checks = list(checks)
        self._action: Action = on_violation
        self._reply = reply
        self._on_decision = on_decision

        check_names = [check.name for check in self._checks]
        if not check_names or len(set(check_names)) != len(check_names):
            raise AgentConfigError(f"{type(self).__name__} needs checks, each with a name of its own")
        for check in self._checks:
            self._validate(check)

        streamed = [check for check in self._checks if check.reads_text and "model_output" in check.where]
        self._streamed: list[tuple[GuardrailCheck, Action]] = [(check, self._action_of(check)) for check in streamed]

    def _validate(self, check: GuardrailCheck) -> None:
        action = self._action_of(check)
        if action not in ("block", "redact", "ask"):
            raise AgentConfigError(f"on_violation must be block, redact or ask, not {action!r}")
        if action == "ask" and check.where != frozenset[Where]({"tool_arguments"}):
            raise AgentConfigError(
                f"The check {check.name!r} can ask a person about tool calls only: "
                "give it where=['tool_arguments'], or another on_violation"
            )
        if action == "redact" and not check.reads_text:
            raise AgentConfigError(
                f"The check {check.name!r} has no text to redact: give it on_violation='block' or 'ask'"
            )

    def _action_of(self, check: GuardrailCheck) -> Action:
        return check.on_violation or self._action

    async def on_user_message_callback(self, *, invocation_context: InvocationContext, user_message: Content) -> None:
        ctx = invocation_context
        found = _Violations()
        parts = user_message.parts or []
        clean = await redact_parts(parts, self._text_finder("user_message", ctx, found)) or list(parts)
        for index, part in enumerate(clean):
            clean[index] = await self._clean_data(part, ctx, found)

        await self._decide(found, ctx)
        if found.blocked is not None:
            self._run_of(ctx).blocked = found.blocked
            clean = [Part(text=f"[blocked: {found.blocked.label}]")]

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
        found = _Violations()
        newest = request.contents[-1].parts if request.contents else None
        for part in newest or ():
            if part.function_response is not None and part.function_response.response is not None:
                await self._clean_json(part.function_response.response, "tool_results", ctx, found)

        _block_instead_of_redacting(found)
        await self._decide(found, ctx)
        return found.blocked

    async def after_model_callback(self, *, callback_context: CallbackContext, llm_response: LlmResponse) -> None:
        if llm_response.partial or llm_response.content is None or not llm_response.content.parts:
            return

        ctx = callback_context.invocation_context
        found = _Violations()
        content = await self._clean_content(llm_response.content, ctx, found)
        if _is_hosted(ctx):
            _block_instead_of_redacting(found)

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
            if self._streamed and event.author != "user":
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
        found = _Violations()
        for check in self._checks:
            label = check.refuse_call(tool, tool_args) if "tool_arguments" in check.where else None
            if label is not None:
                self._note(check, "tool_arguments", [label], found)

        is_of_model = call_id is not None  # its arguments were judged in the model's reply
        clean = await self._clean_json(tool_args, "tool_arguments", ctx, found, judges=not is_of_model)
        await self._clean_json(tool_args, "tool_arguments", ctx, found, asking=True)
        if tool_context.tool_confirmation is not None:  # a person has decided; a rejected call doesn't get here
            found.labels = {at: labels for at, labels in found.labels.items() if self._action_of(at[0]) != "ask"}

        await self._count_usage(ctx)
        await self._decide(found, ctx, call_id)
        if found.blocked is not None:
            return self._refusal(ctx, found.blocked)

        if clean is not tool_args:
            tool_args.clear()
            tool_args.update(clean)

        asked = [label for at, labels in found.labels.items() if self._action_of(at[0]) == "ask" for label in labels]
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
        found = _Violations()
        plain: JsonValue = result if is_plain(result) else to_plain(result)
        clean = await self._clean_json(plain, "tool_results", ctx, found)
        await self._count_usage(ctx)
        await self._decide(found, ctx, call_id)
        self._run_of(ctx).results.add(call_id)

        if found.blocked is not None:
            return self._refusal(ctx, found.blocked)
        return clean if clean is not plain else None

    async def on_tool_error_callback(
        self, *, tool: BaseTool, tool_args: JsonObject, tool_context: ToolContext, error: Exception
    ) -> JsonObject | None:
        ctx = tool_context.invocation_context
        found = _Violations()
        text = message_of(error)
        clean = await self._clean_json(text, "tool_results", ctx, found)
        await self._decide(found, ctx, tool_context.function_call_id)

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
        for check in self._checks:
            await check.close()

    def _run_of(self, ctx: InvocationContext) -> _GuardedRun:
        return self._runs.setdefault(ctx.invocation_id, _GuardedRun())

    async def _count_usage(self, ctx: InvocationContext) -> None:
        """Stores the usage of models that checks have called. Not called before the user's message is stored."""
        for check in self._checks:
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

    def _note(self, check: GuardrailCheck, where: Where, labels: Iterable[str], found: _Violations) -> None:
        known = found.labels.setdefault((check, where), [])
        known += [label for label in dict.fromkeys(labels) if label not in known]
        if found.blocked is None and self._action_of(check) == "block":
            found.blocked = GuardrailBlocked(check.name, where, known[0])

    def _finder(
        self, checks: Iterable[GuardrailCheck], where: Where, ctx: InvocationContext, found: _Violations
    ) -> Find:
        """Finds and notes violations; returns those to be redacted."""

        async def find(text: str) -> Sequence[Finding]:
            to_redact: list[Finding] = []
            for check in sorted(checks, key=lambda check: check.judges_whole):  # judges see what the others leave
                if check.judges_whole and found.blocked is not None:
                    break
                shown = redacted(text, merged(to_redact)) if check.judges_whole else text
                findings = await check.find(shown, where=where, ctx=ctx)
                if findings:
                    self._note(check, where, [finding.label for finding in findings], found)
                    if self._action_of(check) == "redact" and check.judges_whole:
                        return [Finding(0, len(text), findings[0].label)]
                    if self._action_of(check) == "redact":
                        to_redact += findings
            return merged(to_redact)

        return find

    def _text_finder(self, where: Where, ctx: InvocationContext, found: _Violations) -> Find:
        return self._finder([check for check in self._checks if where in check.where], where, ctx, found)

    async def _clean_json(
        self,
        value: JsonT,
        where: Where,
        ctx: InvocationContext,
        found: _Violations,
        *,
        judges: bool = True,
        asking: bool = False,
    ) -> JsonT:
        """The value with the violations replaced; the value itself if there are none.

        judges: also by checks that read it as one text. asking: only by checks that ask a person, which change nothing.
        """
        checks = [
            check
            for check in self._checks
            if where in check.where
            and (self._action_of(check) == "ask") == asking
            and (judges or not check.judges_whole)
        ]
        places = [check for check in checks if not check.judges_whole]
        clean: Any = value
        if places:
            clean = await redact_json(value, self._finder(places, where, ctx, found))

        whole = [check for check in checks if check.judges_whole]
        if whole:
            text: str = clean if isinstance(clean, str) else wire.encode(clean).decode()
            findings = await self._finder(whole, where, ctx, found)(text)
            if findings:
                clean = _replacement_of(value, findings[0].label)

        return cast("JsonT", clean)

    async def _clean_content(self, content: Content, ctx: InvocationContext, found: _Violations) -> Content:
        """A message of a model or an agent."""
        parts = content.parts or []
        clean = await redact_parts(parts, self._text_finder("model_output", ctx, found)) or list(parts)
        for index, part in enumerate(clean):
            clean[index] = await self._clean_data(part, ctx, found)
        return msgspec.structs.replace(content, parts=clean)

    async def _clean_data(self, part: Part, ctx: InvocationContext, found: _Violations) -> Part:
        """The part with its call or its result checked, unless that is done elsewhere."""
        call = part.function_call
        if call is not None and call.args and call.name not in REQUESTS:
            plain: JsonObject = call.args if is_plain(call.args) else to_response(call.args)
            args = await self._clean_json(plain, "tool_arguments", ctx, found)
            if args is not plain:
                return msgspec.structs.replace(part, function_call=msgspec.structs.replace(call, args=args))

        response = part.function_response
        if response is not None and response.response and response.name not in REQUESTS:
            results = self._runs[ctx.invocation_id].results if ctx.invocation_id in self._runs else set[str | None]()
            if response.id in results:
                results.discard(response.id)
                return part
            result = await self._clean_json(response.response, "tool_results", ctx, found)
            if result is not response.response:
                clean = msgspec.structs.replace(response, response=result)
                return msgspec.structs.replace(part, function_response=clean)

        return part

    async def _clean_event(self, event: Event, ctx: InvocationContext) -> None:
        """Checks an event that is no reply of a model: of an agent in code, a node, another framework, or live."""
        found = _Violations()
        content = None
        if event.content is not None and event.content.parts:
            content = await self._clean_content(event.content, ctx, found)

        output = event.output
        if output is not None:
            output = await self._clean_json(output, "model_output", ctx, found)
        heard = await self._clean_transcription(event.input_transcription, "user_message", ctx, found)
        said = await self._clean_transcription(event.output_transcription, "model_output", ctx, found)

        if event.actions.agent_state:  # another framework's, which holds the same text
            _block_instead_of_redacting(found)
        await self._decide(found, ctx)
        if found.blocked is not None:
            raise self._block(ctx, found.blocked, event)

        if content is not None:
            event.content = content
        event.output = output
        event.input_transcription = heard
        event.output_transcription = said

    async def _clean_transcription(
        self, transcription: Transcription | None, where: Where, ctx: InvocationContext, found: _Violations
    ) -> Transcription | None:
        if transcription is None or not transcription.text:
            return transcription
        findings = await self._text_finder(where, ctx, found)(transcription.text)
        if not findings:
            return transcription
        return msgspec.structs.replace(transcription, text=redacted(transcription.text, findings), words=None)

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
                    stream = streams[key] = StreamedText(self._streamed)
                text = await stream.add(part.text, ctx)
                if text:
                    sent.append(msgspec.structs.replace(part, text=text))
            elif part.inline_data is not None or part.file_data is not None:
                sent.append(part)

        event.content = msgspec.structs.replace(event.content, parts=sent)

    async def _decide(self, found: _Violations, ctx: InvocationContext, call_id: str | None = None) -> None:
        """Records the decisions: in the trace, for the metadata of the next event, and with the hook."""
        for (check, where), labels in found.labels.items():
            decision = GuardrailDecision(
                check=check.name,
                where=where,
                action="block" if found.blocks_all else self._action_of(check),
                labels=labels,
                function_call_id=call_id,
            )
            self._run_of(ctx).decisions.append(wire.to_plain(decision))
            if ctx.span is not None:
                _trace(ctx.span, decision)
            if self._on_decision is not None:
                outcome = self._on_decision(decision, ctx)
                if inspect.isawaitable(outcome):
                    await outcome

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


def _replacement_of(value: JsonValue, label: str) -> Any:
    return {"result": replacement(label)} if isinstance(value, dict) else replacement(label)


def _is_hosted(ctx: InvocationContext) -> bool:
    """Whether another framework calls the agent's model, so that its messages can't be changed."""
    return getattr(ctx.agent, "is_hosted", False)


def _block_instead_of_redacting(found: _Violations) -> None:
    found.blocks_all = True
    if found.labels and found.blocked is None:
        (check, where), labels = next(iter(found.labels.items()))
        found.blocked = GuardrailBlocked(check.name, where, labels[0])


def _trace(span: Span, decision: GuardrailDecision) -> None:
    attributes: dict[str, AttributeValue] = {
        names.GUARDRAIL_CHECK: decision.check,
        names.GUARDRAIL_WHERE: decision.where,
        names.GUARDRAIL_ACTION: decision.action,
        names.GUARDRAIL_LABELS: decision.labels,
    }
    PlainSpan(span, f"{names.GUARDRAIL} {decision.check}", attributes).end()
