"""Published versions of apps, limited to the caller's permissions. They concern all users of an app."""

from __future__ import annotations

from greenroom.records import wire
from greenroom.records.app_version import ListVersionsResponse, PublishedVersion, Shares, Traffic, VersionComparison
from greenroom.runs.versions import Versions
from greenroom.server.access.authorization.authorized import Authorized


class AuthorizedVersions(Authorized[Versions]):
    __slots__ = ()

    async def publish(self, app_name: str, *, message: str) -> PublishedVersion:
        """Raises Forbidden, and what `Versions.publish` does."""
        self._permissions.check("write", app_name, None)
        caller = self._permissions.identity.caller
        published_by = caller.user_id if caller is not None else None
        published = await self._service.publish(app_name, message=message, published_by=published_by)
        await self._permissions.record(
            "app.version.published", app_name=app_name, target=published.name, app_version=published.version
        )
        return published

    async def list(self, app_name: str) -> ListVersionsResponse:
        """Raises Forbidden."""
        self._permissions.check("read", app_name, None)
        return await self._service.list(app_name)

    def find_hash(self, app_name: str, name: str) -> str | None:
        """The hash of a version, for anybody who may access the app. Raises Forbidden."""
        self._permissions.identity.check_app(app_name)
        return self._service.find_hash(app_name, name)

    async def get(self, app_name: str, name: str) -> PublishedVersion:
        """Raises Forbidden, NotFound."""
        self._permissions.check("read", app_name, None)
        return await self._service.get(app_name, name)

    async def delete(self, app_name: str, name: str) -> None:
        """Raises Forbidden, NotFound, VersionInUse."""
        self._permissions.check("write", app_name, None)
        await self._service.delete(app_name, name)
        await self._permissions.record("app.version.deleted", app_name=app_name, target=name)

    async def set_traffic(self, app_name: str, shares: Shares) -> Traffic:
        """Raises Forbidden, InvalidRequest, NotFound."""
        self._permissions.check("write", app_name, None)
        traffic = await self._service.set_traffic(app_name, shares)
        await self._permissions.record(
            "app.traffic.changed", app_name=app_name, target=wire.encode(traffic.shares).decode()
        )
        return traffic

    async def compare(self, app_name: str, first: str, second: str) -> VersionComparison:
        """Raises Forbidden, and what `Versions.compare` does."""
        self._permissions.check("read", app_name, None)
        return await self._service.compare(app_name, first, second)
