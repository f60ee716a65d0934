"""Applies checks to messages, calls and results: notes the violations, and replaces what is to be redacted."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import msgspec

from greenroom.errors import AgentConfigError, GuardrailBlocked
from greenroom.invocation.context import InvocationContext
from greenroom.plugins.guardrails.check import Action, GuardrailCheck, Where
from greenroom.records import wire
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.content import Content, FunctionResponse, Part, Transcription
from greenroom.records.human_requests import REQUEST_CONFIRMATION, REQUESTS, read_confirmation
from greenroom.redaction.contents import Find, redact_json, redact_parts
from greenroom.redaction.findings import Finding, merged, redacted, replacement
from greenroom.tools.result import is_plain, to_response
from greenroom.tools.tool import BaseTool

JsonT = TypeVar("JsonT", bound=JsonValue)


@dataclass
class Violations:
    """The violations in one message, call or result."""

    labels: dict[tuple[GuardrailCheck, Where], list[str]] = field(
        default_factory=dict[tuple[GuardrailCheck, Where], list[str]]
    )
    blocked: GuardrailBlocked | None = None
    """The first that blocks."""
    blocks_all: bool = False
    """Whether those to be redacted block too."""

    def block_instead_of_redacting(self) -> None:
        """For content that can't be changed any more."""
        self.blocks_all = True
        if self.labels and self.blocked is None:
            (check, where), labels = next(iter(self.labels.items()))
            self.blocked = GuardrailBlocked(check.name, where, labels[0])


class ContentChecks:
    """The checks of a plugin, each with its action.

    Raises AgentConfigError for checks that can't act as they are to.
    """

    def __init__(self, checks: Iterable[GuardrailCheck], *, on_violation: Action) -> None:
        self.checks = list(checks)
        self._action: Action = on_violation

        check_names = [check.name for check in self.checks]
        if not check_names or len(set(check_names)) != len(check_names):
            raise AgentConfigError("GuardrailPlugin needs checks, each with a name of its own")
        for check in self.checks:
            self._validate(check)

        streamed = [check for check in self.checks if check.reads_text and "model_output" in check.where]
        self.streamed: list[tuple[GuardrailCheck, Action]] = [(check, self.action_of(check)) for check in streamed]
        """Those that look at the text of a model as it arrives."""

    def _validate(self, check: GuardrailCheck) -> None:
        action = self.action_of(check)
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

    def action_of(self, check: GuardrailCheck) -> Action:
        return check.on_violation or self._action

    def refuse_call(self, tool: BaseTool, args: JsonObject, found: Violations) -> None:
        """Notes the violations of a call as a whole."""
        for check in self.checks:
            label = check.refuse_call(tool, args) if "tool_arguments" in check.where else None
            if label is not None:
                self._note(check, "tool_arguments", [label], found)

    async def clean_json(
        self,
        value: JsonT,
        where: Where,
        ctx: InvocationContext,
        found: Violations,
        *,
        judges: bool = True,
        asking: bool = False,
    ) -> JsonT:
        """The value with the violations replaced; the value itself if there are none.

        judges: also by checks that read it as one text. asking: only by checks that ask a person, which change nothing.
        """
        checks = [
            check
            for check in self.checks
            if where in check.where
            and (self.action_of(check) == "ask") == asking
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

    async def clean_message(self, parts: Sequence[Part], ctx: InvocationContext, found: Violations) -> list[Part]:
        """The parts of a user's message; of one that is blocked, what is stored in their place."""
        clean = await redact_parts(parts, self._text_finder("user_message", ctx, found)) or list(parts)
        for index, part in enumerate(clean):
            clean[index] = await self._clean_data(part, ctx, found)

        if found.blocked is None:
            return clean
        text = f"[blocked: {found.blocked.label}]"
        answers = [_blocked_answer(part.function_response, text) for part in parts if part.function_response]
        return answers or [Part(text=text)]

    async def clean_content(
        self,
        content: Content,
        ctx: InvocationContext,
        found: Violations,
        *,
        checked_results: Collection[str | None] = (),
    ) -> Content:
        """A message of a model or an agent. checked_results: ids of calls whose results need no further check."""
        parts = content.parts or []
        clean = await redact_parts(parts, self._text_finder("model_output", ctx, found)) or list(parts)
        for index, part in enumerate(clean):
            response = part.function_response
            if response is None or response.id not in checked_results:
                clean[index] = await self._clean_data(part, ctx, found)
        return msgspec.structs.replace(content, parts=clean)

    async def clean_transcription(
        self, transcription: Transcription | None, where: Where, ctx: InvocationContext, found: Violations
    ) -> Transcription | None:
        if transcription is None or not transcription.text:
            return transcription
        findings = await self._text_finder(where, ctx, found)(transcription.text)
        if not findings:
            return transcription
        return msgspec.structs.replace(transcription, text=redacted(transcription.text, findings), words=None)

    async def _clean_data(self, part: Part, ctx: InvocationContext, found: Violations) -> Part:
        """The part with its call or its result checked."""
        call = part.function_call
        if call is not None and call.args and call.name not in REQUESTS:
            plain: JsonObject = call.args if is_plain(call.args) else to_response(call.args)
            args = await self.clean_json(plain, "tool_arguments", ctx, found)
            if args is not plain:
                return msgspec.structs.replace(part, function_call=msgspec.structs.replace(call, args=args))

        response = part.function_response
        if response is None or not response.response:
            return part
        if response.name == REQUEST_CONFIRMATION:
            result = await self._clean_approval(response, ctx, found)
        elif response.name not in REQUESTS:
            result = await self.clean_json(response.response, "tool_results", ctx, found)
        else:
            return part
        if result is response.response:
            return part
        return msgspec.structs.replace(part, function_response=msgspec.structs.replace(response, response=result))

    async def _clean_approval(
        self, response: FunctionResponse, ctx: InvocationContext, found: Violations
    ) -> JsonObject | None:
        """An approval with its payload checked: a person may have edited the arguments of the call."""
        confirmation = read_confirmation(response)
        if confirmation.payload is None:
            return response.response
        payload = await self.clean_json(confirmation.payload, "tool_arguments", ctx, found)
        if payload is confirmation.payload:
            return response.response
        clean = msgspec.structs.replace(confirmation, payload=payload)
        return cast("JsonObject", wire.to_plain(clean))

    def _note(self, check: GuardrailCheck, where: Where, labels: Iterable[str], found: Violations) -> None:
        known = found.labels.setdefault((check, where), [])
        known += [label for label in dict.fromkeys(labels) if label not in known]
        if found.blocked is None and self.action_of(check) == "block":
            found.blocked = GuardrailBlocked(check.name, where, known[0])

    def _text_finder(self, where: Where, ctx: InvocationContext, found: Violations) -> Find:
        return self._finder([check for check in self.checks if where in check.where], where, ctx, found)

    def _finder(
        self, checks: Iterable[GuardrailCheck], where: Where, ctx: InvocationContext, found: Violations
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
                    if self.action_of(check) == "redact" and check.judges_whole:
                        return [Finding(0, len(text), findings[0].label)]
                    if self.action_of(check) == "redact":
                        to_redact += findings
            return merged(to_redact)

        return find


def _replacement_of(value: JsonValue, label: str) -> Any:
    return {"result": replacement(label)} if isinstance(value, dict) else replacement(label)


def _blocked_answer(response: FunctionResponse, text: str) -> Part:
    """An answer without its content: an approval becomes a rejection."""
    if response.name == REQUEST_CONFIRMATION:
        clean: JsonObject = {"confirmed": False}
    elif response.name in REQUESTS:
        clean = response.response or {}  # a login, which isn't checked
    else:
        clean = {"result": text}
    return Part(function_response=msgspec.structs.replace(response, response=clean))
