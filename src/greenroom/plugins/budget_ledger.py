"""The ledger of a budget, prices of models, and estimates of token counts."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import NamedTuple

from greenroom.errors import AgentConfigError
from greenroom.records import wire
from greenroom.records.answer_metadata import GenerateContentResponseUsageMetadata
from greenroom.records.content import Content, Part
from greenroom.records.model_exchange import LlmRequest

_MILLION = Decimal(1_000_000)
_BYTES_PER_TOKEN = 3
"""English has about four, JSON and other alphabets about three: estimates are rather too high."""
_FILE_TOKENS = 1_500
_CONTENT_TOKENS = 4


class Amount(NamedTuple):
    """money: in the currency of the price table."""

    tokens: int = 0
    money: Decimal = Decimal(0)

    def plus(self, other: Amount) -> Amount:
        return Amount(self.tokens + other.tokens, self.money + other.money)


class Price:
    """Per million tokens, in any one currency. cached_input: of prompt tokens from the provider's cache."""

    __slots__ = ("cached_input", "input", "output")

    def __init__(
        self,
        input: Decimal | float | str,  # noqa: A002 - as price lists call it
        output: Decimal | float | str,
        cached_input: Decimal | float | str | None = None,
    ) -> None:
        self.input = Decimal(str(input))
        self.output = Decimal(str(output))
        self.cached_input = self.input if cached_input is None else Decimal(str(cached_input))

    def cost(self, *, input_tokens: int, output_tokens: int, cached_tokens: int = 0) -> Decimal:
        """cached_tokens: how many of the input tokens were cached."""
        fresh = max(input_tokens - cached_tokens, 0)
        return (fresh * self.input + cached_tokens * self.cached_input + output_tokens * self.output) / _MILLION

    def cost_of(self, usage: GenerateContentResponseUsageMetadata) -> Amount:
        """Cost of the usage that a model reported."""
        prompt = (usage.prompt_token_count or 0) + (usage.tool_use_prompt_token_count or 0)
        output = (usage.candidates_token_count or 0) + (usage.thoughts_token_count or 0)
        cached = usage.cached_content_token_count or 0
        money = self.cost(input_tokens=prompt, output_tokens=output, cached_tokens=cached)
        return Amount(max(usage.total_token_count or 0, prompt + output), money)


def price_of(model: str, prices: Mapping[str, Price]) -> Price:
    """Raises AgentConfigError when no pattern matches the model's name: its calls can't be limited in money."""
    for pattern, price in prices.items():
        if re.fullmatch(pattern, model):
            return price
    raise AgentConfigError(
        f"The model {model!r} has no price, and the budget is in money. "
        f"Known name patterns: {', '.join(prices) or 'none'}"
    )


def request_tokens(request: LlmRequest) -> int:
    """Estimates the prompt: contents, system instruction and tool declarations."""
    total = _text_tokens(request.config.system_text()) + contents_tokens(request.contents)
    for declaration in request.function_declarations():
        total += _text_tokens(wire.encode(declaration))
    if request.config.response_schema is not None:
        total += _text_tokens(repr(request.config.response_schema))
    return total


def contents_tokens(contents: Iterable[Content]) -> int:
    return sum(_CONTENT_TOKENS + sum(_part_tokens(part) for part in content.parts or ()) for content in contents)


def _text_tokens(text: str | bytes) -> int:
    size = len(text) if isinstance(text, bytes) or text.isascii() else len(text.encode(errors="replace"))
    return -(-size // _BYTES_PER_TOKEN)


def _part_tokens(part: Part) -> int:
    if part.text is not None:
        return _text_tokens(part.text)
    if part.inline_data is not None or part.file_data is not None:
        return _FILE_TOKENS
    return _text_tokens(wire.encode(part))


HOLD_SECONDS = 900.0
"""A reservation that is not settled expires after this time."""

_DAY_SECONDS = 86_400.0
_NOTHING = Amount()


class Account(NamedTuple):
    """per: "run", "user", "app" or "key". owner: its ids. day: "2025-01-31" (UTC), empty for no day."""

    per: str
    owner: tuple[str, ...]
    day: str = ""


class Ceiling(NamedTuple):
    """The most that an account may spend and reserve; None means no limit."""

    account: Account
    tokens: int | None
    money: Decimal | None

    def allows(self, total: Amount) -> bool:
        return (self.tokens is None or total.tokens <= self.tokens) and (
            self.money is None or total.money <= self.money
        )


class Refusal(NamedTuple):
    ceiling: Ceiling
    spent: Amount
    held: Amount


@dataclass(slots=True)
class _Entry:
    touched_at: float
    spent: Amount = _NOTHING
    holds: dict[str, tuple[Amount, float]] = field(default_factory=dict[str, tuple[Amount, float]])

    def held(self, now: float) -> Amount:
        self.holds = {key: hold for key, hold in self.holds.items() if hold[1] > now}
        total = _NOTHING
        for amount, _ in self.holds.values():
            total = total.plus(amount)
        return total


class BudgetLedger:
    """In memory, gone with the process. Each operation is atomic, since it awaits nothing. clock: Unix seconds."""

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._entries: dict[Account, _Entry] = {}
        self._pruned_at = clock()

    async def reserve(self, hold_id: str, ceilings: Sequence[Ceiling], amount: Amount) -> Refusal | None:
        """Reserves an amount in all of the accounts, or in none, and returns the ceiling that refuses it.

        A reservation counts as spent until it is settled or `HOLD_SECONDS` have passed.
        """
        now = self._clock()
        self._prune(now)
        for ceiling in ceilings:
            entry = self._entries.get(ceiling.account)
            spent, held = (entry.spent, entry.held(now)) if entry is not None else (_NOTHING, _NOTHING)
            if not ceiling.allows(spent.plus(held).plus(amount)):
                return Refusal(ceiling, spent, held)
        for ceiling in ceilings:
            self._entry(ceiling.account, now).holds[hold_id] = (amount, now + HOLD_SECONDS)
        return None

    async def settle(self, hold_id: str, accounts: Iterable[Account], spent: Amount) -> None:
        """Replaces a reservation by what was spent, which counts even if the reservation has expired or never was."""
        now = self._clock()
        for account in accounts:
            entry = self._entry(account, now)
            entry.holds.pop(hold_id, None)
            entry.spent = entry.spent.plus(spent)

    async def balance(self, account: Account) -> tuple[Amount, Amount]:
        """What is spent, and what is reserved."""
        entry = self._entries.get(account)
        return (entry.spent, entry.held(self._clock())) if entry is not None else (_NOTHING, _NOTHING)

    def _entry(self, account: Account, now: float) -> _Entry:
        entry = self._entries.setdefault(account, _Entry(now))
        entry.touched_at = now
        return entry

    def _prune(self, now: float) -> None:
        """Once a day, drops the accounts of past days and of runs that were not touched for a day."""
        if now - self._pruned_at < _DAY_SECONDS:
            return
        self._pruned_at = now
        self._entries = {
            account: entry
            for account, entry in self._entries.items()
            if now - entry.touched_at < _DAY_SECONDS or not (account.day or account.per == "run")
        }
