"""Published versions that live as long as the process."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from greenroom.errors import TooManyVersions
from greenroom.records.app_version import PublishedVersion, Shares
from greenroom.versions.store import (
    MAX_VERSIONS,
    TrafficState,
    VersionStore,
    check_is_unused,
    check_shares,
    version_not_found,
)


class _Versions:
    """The versions of one app."""

    def __init__(self) -> None:
        self.by_name: dict[str, tuple[PublishedVersion, bytes]] = {}
        self.last_number = 0
        self.traffic = TrafficState(0, {})

    def change(self, shares: Shares | None = None) -> None:
        revision, earlier = self.traffic
        self.traffic = TrafficState(revision + 1, earlier if shares is None else dict(shares))


class InMemoryVersionStore(VersionStore):
    def __init__(self) -> None:
        self._apps: dict[str, _Versions] = {}

    async def publish(self, version: PublishedVersion, archive: bytes) -> PublishedVersion:
        existing = await self.find(version.app_name, version.version)
        if existing is not None:
            return existing
        of_app = self._apps.setdefault(version.app_name, _Versions())
        if len(of_app.by_name) >= MAX_VERSIONS:
            raise TooManyVersions(version.app_name, MAX_VERSIONS)
        of_app.last_number += 1
        stored = msgspec.structs.replace(version, name=f"v{of_app.last_number}")
        of_app.by_name[stored.name] = stored, archive
        of_app.change()
        return _listed(stored)

    async def list(self, app_name: str) -> list[PublishedVersion]:
        of_app = self._apps.get(app_name)
        if of_app is None:
            return []
        return [_listed(version) for version, _ in reversed(of_app.by_name.values())]

    async def get(self, app_name: str, name: str) -> PublishedVersion | None:
        of_app = self._apps.get(app_name)
        found = of_app.by_name.get(name) if of_app is not None else None
        return msgspec.structs.replace(found[0]) if found is not None else None

    async def find(self, app_name: str, version: str) -> PublishedVersion | None:
        return next((one for one in await self.list(app_name) if one.version == version), None)

    async def read_archive(self, app_name: str, version: str) -> bytes | None:
        of_app = self._apps.get(app_name)
        stored = of_app.by_name.values() if of_app is not None else ()
        return next((archive for one, archive in stored if one.version == version), None)

    async def delete(self, app_name: str, name: str) -> None:
        of_app = self._apps.get(app_name)
        if of_app is None or name not in of_app.by_name:
            raise version_not_found(app_name, name)
        check_is_unused(app_name, name, of_app.traffic.shares)
        del of_app.by_name[name]
        of_app.change()

    async def set_traffic(self, app_name: str, shares: Shares) -> None:
        of_app = self._apps.get(app_name, _Versions())
        check_shares(app_name, shares, of_app.by_name)
        if app_name in self._apps:
            of_app.change(shares)

    async def list_traffic(self) -> Mapping[str, TrafficState]:
        return {name: of_app.traffic for name, of_app in self._apps.items()}


def _listed(version: PublishedVersion) -> PublishedVersion:
    return msgspec.structs.replace(version, agents=None, files=None)
