"""Who has spent what, and what is held for calls under way."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import NamedTuple

HOLD_SECONDS = 900.0
"""A hold that nobody settles ends by then: its process may be gone."""

_DAY_SECONDS = 86_400.0


class Amount(NamedTuple):
    """money: in the currency of the price table."""

    tokens: int = 0
    money: Decimal = Decimal(0)

    def plus(self, other: Amount) -> Amount:
        return Amount(self.tokens + other.tokens, self.money + other.money)


NOTHING = Amount()


class Account(NamedTuple):
    """per: "run", "user", "app" or "key". owner: ids that say which. day: "2025-01-31" (UTC), empty for no day."""

    per: str
    owner: tuple[str, ...]
    day: str = ""


class Ceiling(NamedTuple):
    """What an account may hold and spend at most; None means no limit."""

    account: Account
    tokens: int | None
    money: Decimal | None

    def takes(self, total: Amount) -> bool:
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
    spent: Amount = NOTHING
    holds: dict[str, tuple[Amount, float]] = field(default_factory=dict[str, tuple[Amount, float]])

    def held(self, now: float) -> Amount:
        self.holds = {key: hold for key, hold in self.holds.items() if hold[1] > now}
        total = NOTHING
        for amount, _ in self.holds.values():
            total = total.plus(amount)
        return total


class BudgetLedger:
    """In memory, gone with the process. clock: Unix seconds."""

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._entries: dict[Account, _Entry] = {}
        self._pruned_at = clock()

    # Nothing is awaited in here, so each operation is one step for all tasks of the loop.

    async def reserve(self, hold_id: str, ceilings: Sequence[Ceiling], amount: Amount) -> Refusal | None:
        """Hold an amount in all of the accounts, or in none and say which one can't take it; as one step.

        A hold counts as spent until it is settled or `HOLD_SECONDS` have passed.
        """
        now = self._clock()
        self._prune(now)
        for ceiling in ceilings:
            entry = self._entries.get(ceiling.account)
            spent, held = (entry.spent, entry.held(now)) if entry is not None else (NOTHING, NOTHING)
            if not ceiling.takes(spent.plus(held).plus(amount)):
                return Refusal(ceiling, spent, held)
        for ceiling in ceilings:
            self._entry(ceiling.account, now).holds[hold_id] = (amount, now + HOLD_SECONDS)
        return None

    async def settle(self, hold_id: str, accounts: Iterable[Account], spent: Amount) -> None:
        """Put what was spent in place of a hold. It is written down even if the hold has ended or never was."""
        now = self._clock()
        for account in accounts:
            entry = self._entry(account, now)
            entry.holds.pop(hold_id, None)
            entry.spent = entry.spent.plus(spent)

    async def balance(self, account: Account) -> tuple[Amount, Amount]:
        """What is spent, and what is held."""
        entry = self._entries.get(account)
        return (entry.spent, entry.held(self._clock())) if entry is not None else (NOTHING, NOTHING)

    def _entry(self, account: Account, now: float) -> _Entry:
        entry = self._entries.setdefault(account, _Entry(now))
        entry.touched_at = now
        return entry

    def _prune(self, now: float) -> None:
        """Once a day, forget the days that are over and the runs that have been silent for a day."""
        if now - self._pruned_at < _DAY_SECONDS:
            return
        self._pruned_at = now
        self._entries = {
            account: entry
            for account, entry in self._entries.items()
            if now - entry.touched_at < _DAY_SECONDS or not (account.day or account.per == "run")
        }
