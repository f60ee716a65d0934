"""Budgets that administrators store, with the usage, and the warnings of budgets that are nearly used up."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from greenroom.records import wire
from greenroom.records.budget import Budget, BudgetPer, BudgetUse
from greenroom.usage.prices import Amount
from greenroom.usage.store import (
    BALANCE,
    SECONDS_PER_DAY,
    Account,
    Ceiling,
    Refusal,
    Statement,
    UsageStore,
    balance_of,
    balance_query,
    day_of,
)

KEEP_WARNINGS_SECONDS = 40 * SECONDS_PER_DAY
"""Warnings of days before that are deleted."""

MAX_BUDGETS = 1000
"""Of one app."""

MAX_USES = 20

_LIST = "SELECT app_name, data FROM budgets ORDER BY app_name, per, owner, budget_window"
_PUT = """
    INSERT INTO budgets (app_name, per, owner, budget_window, data) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (app_name, per, owner, budget_window) DO UPDATE SET data = excluded.data
"""
_DELETE = "DELETE FROM budgets WHERE app_name = ? AND per = ? AND owner = ? AND budget_window = ?"
_OF_ACCOUNT = "app_name = ? AND per = ? AND owner = ? AND day = ?"
_COUNT_WARNINGS = f"SELECT COUNT(*) FROM budget_warnings WHERE {_OF_ACCOUNT}"
_ADD_WARNING = "INSERT INTO budget_warnings (app_name, per, owner, day, warned_at) VALUES (?, ?, ?, ?, ?)"
_WARNINGS = "SELECT owner, warned_at FROM budget_warnings WHERE app_name = ? AND per = ? AND day = ?"
_DELETE_OLD_WARNINGS = "DELETE FROM budget_warnings WHERE day <> '' AND day < ?"
_USES_OF_ALL = {
    "user": ("user_id", "app_name = ?"),
    "key": ("key_id", "app_name = ? AND key_id <> ''"),
}
"""The column of the owners, and the condition of the app."""

_read_budget = wire.decoder(Budget)


class StoredBudgets:
    """The stored budgets of a usage store. `UsageStore.budgets` has them for runs, without a query."""

    def __init__(self, store: UsageStore) -> None:
        self._store = store

    async def load(self) -> None:
        """Reads what this and other processes have stored into `UsageStore.budgets`."""
        budgets: dict[str, list[Budget]] = {}
        for app_name, data in await self._store.fetch(_LIST):
            budgets.setdefault(app_name, []).append(_read_budget(data.encode()))
        self._store.budgets = budgets

    async def put(self, app_name: str, budget: Budget) -> None:
        """Stores a budget in place of the one with the same owner and window. There may be a new warning of it."""
        key = (app_name, budget.per, budget.owner, budget.window)
        data = wire.encode(budget).decode()
        await self._store.write([(_PUT, (*key, data)), _forget_warnings(app_name, budget)])
        await self.load()

    async def delete(self, app_name: str, budget: Budget) -> None:
        """Deletes the stored budget with this owner and window."""
        key = (app_name, budget.per, budget.owner, budget.window)
        await self._store.write([(_DELETE, key), _forget_warnings(app_name, budget)])
        await self.load()

    async def warn_once(
        self, app_name: str, ceiling: Ceiling, *, share: float, now: float
    ) -> tuple[Amount, bool] | None:
        """Returns the amount spent if it has reached the share of the ceiling, and whether this is the first time, in
        all processes.
        """
        account = ceiling.account
        key = (app_name, account.per, _owner_text(account.owner), account.day)
        spent = Amount()
        is_warned = False

        def check(rows: list[Any]) -> Refusal | None:
            nonlocal spent, is_warned
            spent, held = balance_of(rows[0])
            is_warned = rows[1][0] > 0
            return Refusal(ceiling, spent, held) if is_warned or ceiling.share_of(spent) < share else None

        queries: list[Statement] = [balance_query(account, now), (_COUNT_WARNINGS, key)]
        refusal = await self._store.write_checked([account], queries, check, (_ADD_WARNING, (*key, now)))
        if refusal is not None:
            return (spent, False) if is_warned else None
        await self._store.write([(_DELETE_OLD_WARNINGS, (day_of(now - KEEP_WARNINGS_SECONDS),))])
        return spent, True

    async def uses(self, app_name: str, ceiling: Ceiling, *, now: float) -> list[BudgetUse]:
        """The use of the ceiling's account; of an account without an owner, the largest uses of users or keys."""
        account = ceiling.account
        rows: Iterable[Any]
        if account.owner:
            query, arguments = balance_query(account, now)
            rows = [(*row, account.owner[-1]) for row in await self._store.fetch(query, *arguments)]
        else:
            column, condition = _USES_OF_ALL[account.per]
            days: tuple[str, ...] = (account.day,) if account.day else ()
            rows = await self._store.fetch(
                f"SELECT {BALANCE}, {column} FROM model_usage WHERE {condition}{' AND day = ?' if days else ''} "
                f"GROUP BY {column} ORDER BY SUM(total_tokens) DESC, {column} LIMIT {MAX_USES}",
                now,
                now,
                app_name,
                *days,
            )
        warned = dict(await self._store.fetch(_WARNINGS, app_name, account.per, account.day))

        uses: list[BudgetUse] = []
        for *amounts, name in rows:
            spent, held = balance_of(amounts)
            owner = (app_name, name) if account.per == "user" else (name,)
            use = BudgetUse(
                user_id=name if account.per == "user" else None,
                key_id=name if account.per == "key" else None,
                tokens=spent.tokens,
                money=float(spent.money),
                reserved_tokens=held.tokens,
                reserved_money=float(held.money),
                share=round(ceiling.share_of(spent), 4),
                warned_at=warned.get(_owner_text(owner)),
            )
            uses.append(use)
        return uses


def account_of(per: BudgetPer, *, app_name: str, owner: str, day: str) -> Account:
    """The account of an app, or of a user or key of it. Without an owner, that of all users or keys."""
    if per == "app":
        return Account(per, (app_name,), day)
    if not owner:
        return Account(per, (), day)
    return Account(per, (app_name, owner) if per == "user" else (owner,), day)


def _forget_warnings(app_name: str, budget: Budget) -> Statement:
    condition = "day = ''" if budget.window == "ever" else "day <> ''"
    statement = f"DELETE FROM budget_warnings WHERE app_name = ? AND per = ? AND {condition}"
    if not budget.owner:
        return statement, (app_name, budget.per)
    account = account_of(budget.per, app_name=app_name, owner=budget.owner, day="")
    return f"{statement} AND owner = ?", (app_name, budget.per, _owner_text(account.owner))


def _owner_text(owner: tuple[str, ...]) -> str:
    return msgspec.json.encode(owner).decode()
