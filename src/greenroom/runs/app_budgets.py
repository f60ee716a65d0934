"""The budgets of apps: those that administrators have stored, besides those in the apps' code.

Model calls are checked against them without reading them, so every server keeps them in memory. One of several servers
reads them again every two seconds, since another one may have changed them. An app without `BudgetPlugin` gets one with
its first stored budget.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from greenroom.errors import InvalidRequest, NotFound, StorageError
from greenroom.plugins.budget import BudgetLimit, BudgetPlugin, limits_in_effect
from greenroom.records.budget import Budget, BudgetInEffect, ListBudgetsResponse
from greenroom.runner.runner import Runner
from greenroom.runs.store import RunStore
from greenroom.sessions.service import BaseSessionService
from greenroom.usage.budgets import MAX_BUDGETS, StoredBudgets, account_of
from greenroom.usage.store import Ceiling, day_of

_log = logging.getLogger("greenroom.runs")

REFRESH_SECONDS = 2.0

PLUGIN_NAME = "stored_budgets"


class AppBudgets:
    """The budgets of all apps. They are kept with the usage of the sessions' models."""

    def __init__(
        self, run_store: RunStore, session_service: BaseSessionService, runners: Callable[[], Iterable[Runner]]
    ) -> None:
        """runners: those that may begin runs."""
        self._run_store = run_store
        self._session_service = session_service
        self._runners = runners
        self._lock = asyncio.Lock()
        self._refreshing: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Raises StorageError."""
        if not self._is_unused():
            await self._stored.load()
        if self._run_store.replicas is not None:
            self._refreshing = asyncio.create_task(self._refresh())

    def close(self) -> None:
        if self._refreshing is not None:
            self._refreshing.cancel()

    def enforce(self, runner: Runner) -> None:
        """Adds a plugin to a runner whose app has stored budgets and no `BudgetPlugin`."""
        if self._is_unused() or runner.app_name not in self._session_service.usage.budgets:
            return
        if not any(isinstance(plugin, BudgetPlugin) for plugin in runner.plugin_manager):
            runner.plugin_manager.register_plugin(BudgetPlugin([], name=PLUGIN_NAME), first=True)

    async def list(
        self, app_name: str, of_code: Sequence[BudgetLimit], *, user_id: str | None, key_id: str | None, all_users: bool
    ) -> ListBudgetsResponse:
        """The budgets in effect and their use, as they are stored now: all, or those of one user and key.

        all_users: also those of the app.
        """
        await self._read()
        usage = self._session_service.usage
        stored = usage.budgets.get(app_name, ())
        limits = limits_in_effect(of_code, stored, user_id, key_id)
        if user_id is None and key_id is None:
            found = [_in_effect(limit, "app") for limit in limits if _is_one_of(limit, of_code)]
            found += [_in_effect(budget, "stored") for budget in stored]
        else:
            owners = {"run": "", "app": "", "user": user_id, "key": key_id}
            found = [
                _in_effect(limit, "app" if _is_one_of(limit, of_code) else "stored")
                for limit in limits
                if owners[limit.per] is not None
            ]
        if not all_users:
            found = [one for one in found if one.per != "app"]

        now = time.time()
        for one in found:
            if one.per == "run":
                continue
            owners = {"app": "", "user": one.user_id or user_id or "", "key": one.key_id or key_id or ""}
            day = day_of(now) if one.window == "day" else ""
            account = account_of(one.per, app_name=app_name, owner=owners[one.per], day=day)
            money = BudgetLimit(per=one.per, tokens=one.tokens, money=one.money).money_limit
            one.uses = await StoredBudgets(usage).uses(app_name, Ceiling(account, one.tokens, money), now=now)
        return ListBudgetsResponse(currency=usage.prices.currency, budgets=found)

    async def put(self, app_name: str, budget: Budget) -> Budget:
        """Stores a budget, in place of the one with the same owner and window. Raises InvalidRequest."""
        _check(budget)
        async with self._lock:
            await self._stored.load()
            others = [one for one in self._session_service.usage.budgets.get(app_name, ()) if _key(one) != _key(budget)]
            if len(others) >= MAX_BUDGETS:
                raise InvalidRequest(f"An app may have {MAX_BUDGETS} stored budgets")
            await self._stored.put(app_name, budget)
        self._enforce_all()
        return budget

    async def delete(self, app_name: str, budget: Budget) -> None:
        """Deletes the stored budget with this owner and window. Raises NotFound."""
        async with self._lock:
            await self._stored.load()
            if not any(_key(one) == _key(budget) for one in self._session_service.usage.budgets.get(app_name, ())):
                raise NotFound(f"App {app_name!r} has no such stored budget")
            await self._stored.delete(app_name, budget)

    def _is_unused(self) -> bool:
        """True while usage would be kept in memory, and none is: its store, with SQLite, is made on first use."""
        service = self._session_service
        return type(service).usage is BaseSessionService.usage and "usage" not in vars(service)

    @property
    def _stored(self) -> StoredBudgets:
        return StoredBudgets(self._session_service.usage)

    async def _refresh(self) -> None:
        while True:
            await asyncio.sleep(REFRESH_SECONDS)
            try:
                await self._read()
            except StorageError as error:
                _log.warning("the budgets of apps could not be read again: %s", error)

    async def _read(self) -> None:
        async with self._lock:
            await self._stored.load()
        self._enforce_all()

    def _enforce_all(self) -> None:
        for runner in self._runners():
            self.enforce(runner)


def _key(budget: Budget) -> tuple[str, str, str]:
    return budget.per, budget.owner, budget.window


def _check(budget: Budget) -> None:
    """Raises InvalidRequest."""
    if budget.tokens is None and budget.money is None:
        raise InvalidRequest("A budget needs tokens or money", location=("body",))
    check_owner(budget)


def check_owner(budget: Budget) -> None:
    """Raises InvalidRequest for a user or key that `per` doesn't name."""
    if budget.user_id is not None and budget.per != "user":
        raise InvalidRequest("userId is only for a budget per user", location=("body", "userId"))
    if budget.key_id is not None and budget.per != "key":
        raise InvalidRequest("keyId is only for a budget per key", location=("body", "keyId"))


def _in_effect(limit: BudgetLimit | Budget, source: Literal["app", "stored"]) -> BudgetInEffect:
    return BudgetInEffect(
        per=limit.per,
        user_id=limit.user_id if isinstance(limit, Budget) else None,
        key_id=limit.key_id if isinstance(limit, Budget) else None,
        window=limit.window,
        tokens=limit.tokens,
        money=None if limit.money is None else float(limit.money),
        warn_at=limit.warn_at,
        source=source,
    )


def _is_one_of(limit: BudgetLimit, of_code: Sequence[BudgetLimit]) -> bool:
    return any(limit is one for one in of_code)
