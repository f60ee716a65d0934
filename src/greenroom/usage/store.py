"""Stores of usage, kept with the sessions: the usage of runs, and the reservations of budgets.

SQLite and PostgreSQL share the statements; a backend executes them.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from asyncio import Future
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, TypeAlias

import msgspec

from greenroom.errors import InvalidRequest
from greenroom.records import wire
from greenroom.records.answer_metadata import GenerateContentResponseUsageMetadata
from greenroom.records.budget import Budget
from greenroom.records.run import Run
from greenroom.records.usage import ListUsageResponse, UsageGroup, UsageSum
from greenroom.usage.prices import Amount, Price, PriceTable, default_prices

Statement: TypeAlias = tuple[str, tuple[Any, ...]]
"""With its parameters, which are written `?`."""

Balance: TypeAlias = tuple[Amount, Amount]
"""Spent, and reserved."""

MAX_RUNNING = 100_000
"""Maximum number of unfinished runs with a budget whose keys and prices are kept; the oldest are dropped."""

_COUNTS = (
    "calls", "prompt_tokens", "cached_tokens", "tool_use_tokens", "candidates_tokens", "thoughts_tokens",
    "total_tokens",
)  # fmt: skip
_OWNER = "app_name, user_id, session_id, run_id, key_id, model, day, estimated"
_INSERT = f"""
    INSERT INTO model_usage ({_OWNER}, {", ".join(_COUNTS)}, cost) VALUES ({", ".join("?" * 16)})
    ON CONFLICT (run_id, model, day, estimated) DO UPDATE SET
"""
_SET_COUNTS = ", ".join(f"{name} = excluded.{name}" for name in _COUNTS)
_ADD_COUNTS = ", ".join(f"{name} = model_usage.{name} + excluded.{name}" for name in _COUNTS)
_REPLACE = f"""
    {_INSERT} {_SET_COUNTS}, cost = COALESCE(excluded.cost, model_usage.cost), held_tokens = 0, held_cost = 0
"""
_ADD = f"{_INSERT} {_ADD_COUNTS}, cost = model_usage.cost + excluded.cost"
_DELETE_REPORTED = "DELETE FROM model_usage WHERE run_id = ? AND estimated = 0"
_FORGET_USER = "UPDATE model_usage SET user_id = '', session_id = '' WHERE app_name = ? AND user_id = ?"
_DELETE_BUDGETS = "DELETE FROM budgets WHERE app_name = ? AND per = 'user' AND owner = ?"
_DELETE_WARNINGS = "DELETE FROM budget_warnings WHERE app_name = ? AND per = 'user' AND owner = ?"
_HOLD = f"""
    INSERT INTO model_usage ({_OWNER}, {", ".join(_COUNTS)}, cost, held_tokens, held_cost, held_until)
    VALUES (?, ?, ?, ?, ?, ?, ?, 0, 0, 0, 0, 0, 0, 0, 0, 0, ?, ?, ?)
    ON CONFLICT (run_id, model, day, estimated) DO UPDATE SET
        held_tokens = excluded.held_tokens
            + CASE WHEN model_usage.held_until > ? THEN model_usage.held_tokens ELSE 0 END,
        held_cost = excluded.held_cost
            + CASE WHEN model_usage.held_until > ? THEN model_usage.held_cost ELSE 0 END,
        held_until = excluded.held_until
"""
_RELEASE = """
    UPDATE model_usage SET
        held_tokens = CASE WHEN held_tokens > ? THEN held_tokens - ? ELSE 0 END,
        held_cost = CASE WHEN held_cost > ? THEN held_cost - ? ELSE 0 END
    WHERE run_id = ? AND model = ? AND day = ? AND estimated = 0
"""
BALANCE = """
    CAST(COALESCE(SUM(total_tokens), 0) AS BIGINT), COALESCE(SUM(cost), 0),
        CAST(COALESCE(SUM(CASE WHEN held_until > ? THEN held_tokens ELSE 0 END), 0) AS BIGINT),
        COALESCE(SUM(CASE WHEN held_until > ? THEN held_cost ELSE 0 END), 0)
"""
"""The columns of `balance_of`."""
_OWNED = {
    "run": "run_id = ?",
    "user": "app_name = ? AND user_id = ?",
    "app": "app_name = ?",
    "key": "key_id = ? AND key_id <> ''",
}
_GROUPS: Mapping[UsageGroup, str] = {
    "user": "user_id",
    "session": "session_id",
    "run": "run_id",
    "model": "model",
    "day": "day",
}
_SUMS = f"""
    {", ".join(f"CAST(COALESCE(SUM({name}), 0) AS BIGINT)" for name in _COUNTS)},
    CAST(COALESCE(SUM(CASE WHEN estimated = 1 THEN total_tokens ELSE 0 END), 0) AS BIGINT),
    CAST(COALESCE(SUM(CASE WHEN cost IS NULL THEN total_tokens ELSE 0 END), 0) AS BIGINT),
    COUNT(*) - COUNT(cost), COALESCE(SUM(cost), 0)
"""
_SUMMED = UsageSum.__struct_fields__[5:-1]
"""The fields of these sums, up to the last two."""

HOLD_SECONDS = 900.0
"""The reservations of a run for a model expire this time after the newest of them."""

SECONDS_PER_DAY = 86_400


class ModelDay(NamedTuple):
    """A model, as its replies name it, and a day as the number since 1970-01-01 (UTC)."""

    model: str
    day: int


@dataclass(slots=True)
class ModelUsage:
    """The number of calls and their total usage."""

    calls: int = 0
    reported: GenerateContentResponseUsageMetadata = field(default_factory=GenerateContentResponseUsageMetadata)


class Account(NamedTuple):
    """The usage that a budget limits: of a run, a user, an app or a caller's key."""

    per: str
    """`run`, `user`, `app` or `key`."""

    owner: tuple[str, ...]
    """The ids of what `per` names."""

    day: str = ""
    """As `2025-01-31`, in UTC; empty for all days."""


class Ceiling(NamedTuple):
    """The most that an account may spend and reserve; None means no limit."""

    account: Account
    tokens: int | None
    money: Decimal | None

    def allows(self, total: Amount) -> bool:
        return (self.tokens is None or total.tokens <= self.tokens) and (
            self.money is None or total.money <= self.money
        )

    def share_of(self, spent: Amount) -> float:
        """The spent share; of two limits the larger share."""
        shares = [0.0]
        if self.tokens is not None:
            shares.append(spent.tokens / self.tokens if self.tokens else 1.0)
        if self.money is not None:
            shares.append(float(spent.money / self.money) if self.money else 1.0)
        return max(shares)


class Refusal(NamedTuple):
    ceiling: Ceiling
    spent: Amount
    held: Amount


class Reservation(NamedTuple):
    """A reservation for one model call."""

    app_name: str
    user_id: str
    session_id: str
    run_id: str
    key: str
    """Of the caller, as budgets count it; empty without one."""

    model: str
    day: str
    """Of the call, as in `Account`."""

    amount: Amount


@dataclass(slots=True)
class _Running:
    """The key and the prices by which a budget counts a run."""

    key: str = ""
    prices: dict[str, Price | None] = field(default_factory=dict[str, "Price | None"])


class UsageStore(ABC):
    """Kept with the sessions. Usage stays when its session is deleted.

    A run's usage is recorded at its end. While it runs, a budget reserves the cost of each model call, and settles it
    with what the model used. All operations are atomic, also between the processes that share the store.
    """

    def __init__(self) -> None:
        self._running: dict[str, _Running] = {}
        self.budgets: Mapping[str, Sequence[Budget]] = {}
        """The budgets that administrators have stored, by app; see `StoredBudgets`."""

    @cached_property
    def prices(self) -> PriceTable:
        """Prices at which usage is recorded; may be replaced before the first run."""
        return default_prices()

    @abstractmethod
    def write(self, statements: Sequence[Statement]) -> Future[None]:
        """Queues the statements at the call, for one transaction."""

    @abstractmethod
    async def write_checked(
        self,
        accounts: Sequence[Account],
        queries: Sequence[Statement],
        check: Callable[[list[Any]], Refusal | None],
        statement: Statement,
    ) -> Refusal | None:
        """Runs the statement if `check` returns None for the first row of each query. Concurrent calls for one of the
        accounts, also of other processes, wait for each other.
        """

    @abstractmethod
    async def fetch(self, query: str, *arguments: Any) -> Sequence[Any]:
        """Rows of a query, which sees all that was queued before."""

    def record(self, run: Run, usage: Mapping[ModelDay, ModelUsage]) -> Future[None]:
        """Stores a run's usage so far, replacing its earlier record. Ends its reservations.

        Queued at the call, in order with the run store's writes; where that shares the database, in one transaction
        with a record that is saved right after. The future may be dropped.
        """
        running = self._running.pop(run.id, None)
        key = run.caller.key_id or "" if run.caller is not None else ""
        if running is not None:
            key = running.key
        statements: list[Statement] = [(_DELETE_REPORTED, (run.id,))] if running is not None else []
        for (model, day), used in usage.items():
            price = running.prices.get(model) if running is not None else None
            owner = run.app_name, run.user_id, run.session_id, run.id, key, model, day_of(day * SECONDS_PER_DAY), 0
            cost = _cost(used.reported, price or self.prices.find(model))
            statements.append((_REPLACE, (*owner, *_counts(used.reported, used.calls), cost)))
        return self.write(statements)

    def prices_of_run(self, run_id: str) -> Mapping[str, Price | None] | None:
        """The prices of an unfinished run's own, by model, which come before those of the table."""
        running = self._running.get(run_id)
        return None if running is None else running.prices

    async def reserve(self, hold: Reservation, ceilings: Sequence[Ceiling], *, now: float) -> Refusal | None:
        """Reserves an amount, or returns the first ceiling that it would exceed, with the amounts spent and reserved.

        now: Unix seconds. The reservation counts for `HOLD_SECONDS`, unless it is settled before.
        """

        def check(rows: list[Any]) -> Refusal | None:
            for ceiling, row in zip(ceilings, rows, strict=True):
                spent, held = balance_of(row)
                if not ceiling.allows(spent.plus(held).plus(hold.amount)):
                    return Refusal(ceiling, spent, held)
            return None

        queries = [balance_query(ceiling.account, now) for ceiling in ceilings]
        amount = hold.amount.tokens, float(hold.amount.money), now + HOLD_SECONDS
        accounts = [ceiling.account for ceiling in ceilings]
        refusal = await self.write_checked(accounts, queries, check, (_HOLD, (*hold[:-1], *amount, now, now)))
        if refusal is None:
            self._running_run(hold)
        return refusal

    async def settle(
        self,
        hold: Reservation,
        usage: GenerateContentResponseUsageMetadata | Amount | None,
        *,
        model: str,
        price: Price | None,
        now: float,
    ) -> None:
        """Replaces a reservation by the amount spent, which counts even if the reservation has expired.

        usage: as reported by the model, or an estimate; None for a call that cost nothing. model: as the reply names
        it. price: of this run's calls of that model, also when `record` replaces settled amounts.
        """
        statements: list[Statement] = []
        if hold.amount.tokens:
            tokens = hold.amount.tokens
            money = float(hold.amount.money)
            statements.append((_RELEASE, (tokens, tokens, money, money, hold.run_id, hold.model, hold.day)))

        if usage is not None:
            self._running_run(hold).prices[model] = price
            owner = (*hold[:5], model, day_of(now))
            if isinstance(usage, Amount):
                cost = None if price is None else float(usage.money)
                statements.append((_ADD, (*owner, 1, 1, 0, 0, 0, 0, 0, usage.tokens, cost)))
            else:
                statements.append((_ADD, (*owner, 0, *_counts(usage, 1), _cost(usage, price))))

        await self.write(statements)

    async def balance(self, account: Account, *, now: float) -> Balance:
        """Returns the spent and the reserved amounts."""
        query, arguments = balance_query(account, now)
        return balance_of((await self.fetch(query, *arguments))[0])

    async def query_usage(
        self,
        *,
        app_name: str,
        user_id: str | None = None,
        session_id: str | None = None,
        run_id: str | None = None,
        model: str | None = None,
        first_day: str | None = None,
        last_day: str | None = None,
        group_by: Sequence[UsageGroup] = (),
        limit: int = 100,
        page_token: str | None = None,
    ) -> ListUsageResponse:
        """Sums of the usage of an app by these groups, in their order; without groups one sum of all.

        first_day, last_day: "2026-01-31" (UTC), both included. Raises InvalidRequest for a limit below 1, and for the
        page token of another list.
        """
        if limit < 1:
            raise InvalidRequest("limit must be at least 1", location=("query", "limit"))

        columns = [_GROUPS[group] for group in dict.fromkeys(group_by)]
        terms = ["calls > 0"]
        arguments: list[str] = []
        for term, value in (
            ("app_name = ?", app_name),
            ("user_id = ?", user_id),
            ("session_id = ?", session_id),
            ("run_id = ?", run_id),
            ("model = ?", model),
            ("day >= ?", first_day),
            ("day <= ?", last_day),
        ):
            if value is not None:
                terms.append(term)
                arguments.append(value)

        if page_token:
            arguments += wire.read_page_token(page_token, keys=len(columns))[1]
            if columns:
                terms.append(f"({', '.join(columns)}) > ({', '.join('?' * len(columns))})")

        chosen = " AND ".join(terms)
        names = ", ".join(columns)
        order = f"GROUP BY {names} ORDER BY {names} LIMIT {limit + 1}" if columns else ""
        query = f"SELECT {', '.join([*columns, _SUMS])} FROM model_usage WHERE {chosen} {order}"

        rows = await self.fetch(query, *arguments)
        page = rows[:limit]
        following = wire.write_page_token(0.0, *page[-1][: len(columns)]) if len(rows) > limit else None
        sums = [_sum(columns, row) for row in page]
        return ListUsageResponse(currency=self.prices.currency, usage=sums, next_page_token=following)

    async def forget_user(self, *, app_name: str, user_id: str) -> None:
        """Makes the usage of a user in an app nobody's, so that the sums of the app stay as they are, and deletes the
        budgets that are stored for the user.
        """
        account = msgspec.json.encode([app_name, user_id]).decode()
        await self.write(
            [
                (_FORGET_USER, (app_name, user_id)),
                (_DELETE_BUDGETS, (app_name, user_id)),
                (_DELETE_WARNINGS, (app_name, account)),
            ]
        )

    def _running_run(self, hold: Reservation) -> _Running:
        running = self._running.get(hold.run_id)
        if running is None:
            running = self._running[hold.run_id] = _Running()
            if len(self._running) > MAX_RUNNING:
                del self._running[next(iter(self._running))]
        running.key = hold.key
        return running


def day_of(now: float | None = None) -> str:
    """The day (UTC) of a time, by default of now."""
    return _name_of_day(int((time.time() if now is None else now) // SECONDS_PER_DAY))


@lru_cache(maxsize=64)
def _name_of_day(number: int) -> str:
    return datetime.fromtimestamp(number * SECONDS_PER_DAY, UTC).date().isoformat()


def _counts(usage: GenerateContentResponseUsageMetadata, calls: int) -> tuple[int, ...]:
    prompt = usage.prompt_token_count or 0
    tools = usage.tool_use_prompt_token_count or 0
    candidates = usage.candidates_token_count or 0
    thoughts = usage.thoughts_token_count or 0
    total = max(usage.total_token_count or 0, prompt + tools + candidates + thoughts)
    return calls, prompt, usage.cached_content_token_count or 0, tools, candidates, thoughts, total


def _cost(usage: GenerateContentResponseUsageMetadata, price: Price | None) -> float | None:
    return None if price is None else float(price.cost_of(usage).money)


def balance_query(account: Account, now: float) -> Statement:
    """The query of an account's balance, which `balance_of` reads."""
    condition = _OWNED[account.per]
    owner = account.owner
    if account.day:
        condition = f"{condition} AND day = ?"
        owner = (*owner, account.day)
    return f"SELECT {BALANCE} FROM model_usage WHERE {condition}", (now, now, *owner)


def balance_of(row: Any) -> Balance:
    spent, cost, held, held_cost = row
    return Amount(spent, _money(cost)), Amount(held, _money(held_cost))


def _money(cost: float) -> Decimal:
    return Decimal(str(round(cost, 9)))


def _sum(columns: Sequence[str], row: Sequence[Any]) -> UsageSum:
    groups = dict(zip(columns, row, strict=False))
    *counts, without_cost, cost = row[len(columns) :]
    return UsageSum(**groups, **dict(zip(_SUMMED, counts, strict=True)), cost=None if without_cost else round(cost, 9))


def retrieve(future: Future[Any]) -> None:
    """Marks the exception as seen: the future may be dropped."""
    if not future.cancelled():
        future.exception()
