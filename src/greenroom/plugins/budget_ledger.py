"""What each account of a budget has spent, and what is reserved for calls in progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import NamedTuple

from greenroom.plugins.model_cost import Amount

HOLD_SECONDS = 900.0
"""A reservation that nobody settles expires after this time."""

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
