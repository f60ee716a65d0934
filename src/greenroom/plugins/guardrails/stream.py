"""Keeps streamed text back until no violation can begin in it any more."""

from __future__ import annotations

from collections.abc import Sequence

from greenroom.invocation.context import InvocationContext
from greenroom.plugins.guardrails.check import Action, GuardrailCheck
from greenroom.redaction.findings import Finding, merged, redacted


class StreamedText:
    """The text of one message as it arrives. Worked example, with a check for `secret` (6 characters):

        arrives          "a se"      "cret b"        "ye, everyone"
        sent             ""          ""              "a [redacted: x] bye, ev"
        with the complete message: the rest

    A violation that blocks stops the stream: the complete message is then refused.
    """

    def __init__(self, checks: Sequence[tuple[GuardrailCheck, Action]]) -> None:
        self._checks = checks
        self._text = ""
        self._sent = 0
        self._is_blocked = False

    async def add(self, text: str, ctx: InvocationContext) -> str:
        """Adds a chunk, and returns the text that may be sent now."""
        self._text += text
        if self._is_blocked:
            return ""

        until = min(check.keep_back_from(self._text, self._sent) for check, _ in self._checks)
        if until <= self._sent:
            return ""

        found: list[Finding] = []
        for check, action in self._checks:
            new = await check.find(self._text, where="model_output", ctx=ctx, start=self._sent)
            if new and action == "block":
                self._is_blocked = True
                return ""
            found += new

        findings = merged(found)
        for finding in findings:
            if finding.start < until < finding.end or finding.end == len(self._text):
                until = min(until, finding.start)

        ready = redacted(self._text, findings, self._sent, until)
        self._sent = until
        return ready
