"""Checks by regular expressions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from greenroom.invocation.context import InvocationContext
from greenroom.plugins.guardrails.check import Action, GuardrailCheck, Where
from greenroom.redaction.findings import Finding
from greenroom.redaction.patterns import TextPattern


class PatternCheck(GuardrailCheck):
    """Finds text by a regular expression, or by a ready-made one: `card_number` (with its check digit), `email`, `iban`
    (with its check digits), `phone` (international, and as in North America), `token` (keys and tokens of well-known
    services, JSON Web Tokens, private keys).

    The arguments are those of `TextPattern`; without `longest_match`, streamed text is kept back to the end of its
    message. Raises AgentConfigError.
    """

    def __init__(
        self,
        name: str,
        expression: str | re.Pattern[str] | None = None,
        *,
        is_valid: Callable[[str], bool] | None = None,
        longest_match: int | None = None,
        where: Iterable[Where] | None = None,
        on_violation: Action | None = None,
    ) -> None:
        super().__init__(name, where=where, on_violation=on_violation)
        self._pattern = TextPattern(name, expression, is_valid=is_valid, longest_match=longest_match)

    def keep_back_from(self, text: str, start: int) -> int:
        return self._pattern.may_begin_from(text, start)

    async def find(self, text: str, *, where: Where, ctx: InvocationContext, start: int = 0) -> Sequence[Finding]:
        return list(self._pattern.find(text, start))
