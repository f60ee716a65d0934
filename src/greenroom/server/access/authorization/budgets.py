"""Budgets, limited to the caller's permissions."""

from __future__ import annotations

from collections.abc import Sequence

from greenroom.plugins.budget import BudgetLimit
from greenroom.records.audit import AuditAction
from greenroom.records.budget import Budget, ListBudgetsResponse
from greenroom.runs.app_budgets import AppBudgets
from greenroom.server.access.authorization.authorized import Authorized


class AuthorizedBudgets(Authorized[AppBudgets]):
    """`AppBudgets` for one caller. Users see their own; administrators of the app change them."""

    __slots__ = ()

    async def list(
        self, app_name: str, of_code: Sequence[BudgetLimit], *, user_id: str | None, key_id: str | None
    ) -> ListBudgetsResponse:
        """Raises Forbidden for another user's budgets, and another key's."""
        identity = self._identity
        all_users = identity.acts_for(app_name, None)
        if not all_users:
            if key_id not in (None, identity.key_id):
                self._permissions.check("read", app_name, None)
            user_id = user_id or identity.subject
            key_id = identity.key_id
        self._permissions.check("read", app_name, user_id)
        return await self._service.list(app_name, of_code, user_id=user_id, key_id=key_id, all_users=all_users)

    async def put(self, app_name: str, budget: Budget) -> Budget:
        """Raises Forbidden, InvalidRequest."""
        self._check_admin(app_name)
        stored = await self._service.put(app_name, budget)
        await self._record("budget.changed", app_name, budget)
        return stored

    async def delete(self, app_name: str, budget: Budget) -> None:
        """Raises Forbidden, NotFound."""
        self._check_admin(app_name)
        await self._service.delete(app_name, budget)
        await self._record("budget.deleted", app_name, budget)

    def _check_admin(self, app_name: str) -> None:
        self._identity.check("admin")
        self._identity.check_app(app_name)

    async def _record(self, action: AuditAction, app_name: str, budget: Budget) -> None:
        target = f"{budget.per} {budget.key_id or ''} {budget.window}".replace("  ", " ")
        await self._permissions.record(action, app_name=app_name, user_id=budget.user_id, target=target)
