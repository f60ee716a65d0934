"""Statistics, limited to the caller's permissions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from greenroom.records.statistics import LoadStatistics, Statistics
from greenroom.server.access.authorization.authorized import Authorized
from greenroom.statistics.store import Period, StatisticsQuery, StatisticsStore


class AuthorizedStatistics(Authorized[StatisticsStore]):
    """`StatisticsStore` for one caller."""

    __slots__ = ()

    async def query(self, query: StatisticsQuery, *, currency: str) -> Statistics:
        """The figures that the caller may see. Raises Forbidden, InvalidRequest."""
        return await self._service.query(self._visible(query), currency=currency)

    async def query_load(self, period: Period, *, app_name: str | None) -> LoadStatistics:
        """The load of an app, or of all that the caller may access. Raises Forbidden."""
        identity = self._permissions.identity
        if app_name is not None:
            identity.check_app(app_name)
            app_names: Sequence[str] | None = [app_name]
        else:
            app_names = None if identity.apps is None else sorted(identity.apps)
        return await self._service.query_load(period, app_names=app_names)

    def _visible(self, query: StatisticsQuery) -> StatisticsQuery:
        """Limits a query to the apps for all users of which the caller acts, or else to the caller's own user.

        Raises Forbidden if it names an app or a user that the caller may not see.
        """
        identity = self._permissions.identity
        app_names = query.app_names
        if app_names is None and query.user_id is None:
            app_names = self._apps_of_all_users()
        if app_names is None and identity.apps is not None:
            app_names = sorted(identity.apps)
        user_id = query.user_id
        apps = ["*"] if app_names is None else app_names
        if user_id is None and not all(identity.acts_for(app, None) for app in apps):
            user_id = identity.subject
        for app in apps:
            self._permissions.check("read", app, user_id)
        return replace(query, app_names=app_names, user_id=user_id)

    def _apps_of_all_users(self) -> Sequence[str] | None:
        """The apps for all users of which the caller acts, if these aren't all or none."""
        identity = self._permissions.identity
        return sorted(identity.apps_of_all_users) or None
