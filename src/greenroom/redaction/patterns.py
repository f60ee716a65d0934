"""Regular expressions of personal data and secrets, ready-made and of the user's own."""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterator
from typing import NamedTuple

from greenroom.errors import AgentConfigError
from greenroom.redaction.findings import Finding


class _ReadyMade(NamedTuple):
    expression: str
    longest_match: int
    is_valid: Callable[[str], bool] | None = None
    characters: str | None = None
    """All that a match may hold, if it doesn't begin with `marker`: only the text's last word of them is kept back."""
    marker: str = ""


def is_card_number(text: str) -> bool:
    """Whether the digits have a valid check digit (Luhn)."""
    digits = [int(character) for character in text if character.isdigit()]
    doubled = [sum(divmod(2 * digit, 10)) for digit in digits[-2::-2]]
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


def is_iban(text: str) -> bool:
    """Whether the check digits are right (ISO 7064, MOD 97-10)."""
    compact = text.replace(" ", "").upper()
    if not 15 <= len(compact) <= 34:
        return False
    rearranged = compact[4:] + compact[:4]
    return int("".join(str(int(character, 36)) for character in rearranged)) % 97 == 1


_SIXTEEN_DIGITS = r"(?:4\d{3}|5[1-5]\d{2}|2[2-7]\d{2}|6(?:011|4[4-9]\d|5\d{2})|35\d{2})(?:[ -]?\d{4}){3}"
_FIFTEEN_DIGITS = r"3[47]\d{2}[ -]?\d{6}[ -]?\d{5}"
_FOURTEEN_DIGITS = r"3(?:0[0-5]|[68]\d)\d[ -]?\d{6}[ -]?\d{4}"

_INTERNATIONAL_PHONE = r"(?<![\w+])\+\d(?:[ .()/-]{0,2}\d){6,14}(?![\w-])"
_AMERICAN_PHONE = r"(?<![\w.+-])(?:\(\d{3}\) ?|\d{3}[ .-])\d{3}[ .-]\d{4}(?![\w-])"

_TOKENS = (
    r"sk-(?:ant-|proj-|svcacct-)?[A-Za-z0-9_-]{20,200}",  # OpenAI, Anthropic
    r"[sr]k_(?:live|test)_[A-Za-z0-9]{16,200}",  # Stripe
    r"gh[pousr]_[A-Za-z0-9]{36,251}",  # GitHub
    r"github_pat_[A-Za-z0-9_]{22,200}",
    r"glpat-[A-Za-z0-9_-]{20,100}",  # GitLab
    r"xox[abeoprs]-[A-Za-z0-9-]{10,250}",  # Slack
    r"(?:AKIA|ASIA)[A-Z0-9]{16}",  # AWS
    r"AIza[A-Za-z0-9_-]{35}",  # Google
    r"hf_[A-Za-z0-9]{30,100}",  # Hugging Face
    r"npm_[A-Za-z0-9]{36}",
    r"pypi-[A-Za-z0-9_-]{50,250}",
    r"eyJ[A-Za-z0-9_-]{8,400}\.eyJ[A-Za-z0-9_-]{8,2000}\.[A-Za-z0-9_-]{10,700}",  # a JSON Web Token
    r"-----BEGIN [A-Z ]{0,20}PRIVATE KEY-----[A-Za-z0-9+/=\s\\]{0,4000}-----END [A-Z ]{0,20}PRIVATE KEY-----",
)

_WORD = string.ascii_letters + string.digits + "._-"

_READY_MADE = {
    "card_number": _ReadyMade(
        rf"(?<!\d)(?:{_SIXTEEN_DIGITS}|{_FIFTEEN_DIGITS}|{_FOURTEEN_DIGITS})(?!\d)", 20, is_card_number
    ),
    "email": _ReadyMade(
        r"[A-Za-z0-9._%+'-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.){1,4}[A-Za-z]{2,24}", 350, None, f"{_WORD}%+'@"
    ),
    "iban": _ReadyMade(
        r"(?<![A-Za-z0-9])[A-Za-z]{2}\d{2}(?: ?[A-Za-z0-9]{4}){2,7}(?: ?[A-Za-z0-9]{1,3})?(?![A-Za-z0-9])",
        45,
        is_iban,
    ),
    "phone": _ReadyMade(rf"{_INTERNATIONAL_PHONE}|{_AMERICAN_PHONE}", 48),
    "token": _ReadyMade(rf"(?<![A-Za-z0-9])(?:{'|'.join(_TOKENS)})", 4100, None, _WORD, "-----BEGIN "),
}

READY_MADE_PATTERNS: tuple[str, ...] = tuple(_READY_MADE)


class TextPattern:
    """A regular expression that finds places in a text.

    name: of a ready-made pattern, or the label of `expression`. is_valid: decides about a match. longest_match: the
    length of the longest match of `expression`, in characters; only streamed text needs it. Raises AgentConfigError.
    """

    def __init__(
        self,
        name: str,
        expression: str | re.Pattern[str] | None = None,
        *,
        is_valid: Callable[[str], bool] | None = None,
        longest_match: int | None = None,
    ) -> None:
        self.name = name
        if expression is None:
            ready_made = _READY_MADE.get(name)
            if ready_made is None:
                known = ", ".join(READY_MADE_PATTERNS)
                raise AgentConfigError(f"There is no ready-made pattern {name!r}, only {known}: give an expression")
            expression, longest_match, is_valid, self._characters, self._marker = ready_made
        else:
            self._characters = None
            self._marker = ""

        if longest_match is not None and longest_match < 1:
            raise AgentConfigError(f"The pattern {name!r}: longest_match must be 1 or more")

        try:
            self._expression = re.compile(expression)
        except re.error as error:
            raise AgentConfigError(f"The pattern {name!r} is no regular expression: {error}") from None

        if self._expression.match("") is not None:
            raise AgentConfigError(f"The pattern {name!r} matches an empty text")

        self._is_valid = is_valid
        self._longest_match = longest_match

    def find(self, text: str, start: int = 0) -> Iterator[Finding]:
        """The valid matches from `start` on, in order."""
        while (match := self._expression.search(text, start)) is not None:
            if match.end() > match.start() and (self._is_valid is None or self._is_valid(match[0])):
                yield Finding(match.start(), match.end(), self.name)
                start = match.end()
            else:
                start = match.start() + 1

    def may_begin_from(self, text: str, start: int) -> int:
        """The index, at least `start`, from which a match may begin whose end is still to come."""
        if self._longest_match is None:
            return start

        oldest = max(start, len(text) - self._longest_match - 1)  # one more, for a lookahead
        if self._characters is None:
            return oldest

        last_word = oldest + len(text[oldest:].rstrip(self._characters))
        marked = text.find(self._marker, oldest, last_word) if self._marker else -1
        return last_word if marked == -1 else marked
