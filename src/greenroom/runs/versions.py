"""Published versions of an engine's apps: what clients do with them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence

from greenroom.apps.loader import AppLoader
from greenroom.apps.published import PublishedApps, pack, unpack
from greenroom.errors import GreenroomError
from greenroom.records.app_version import (
    SOURCE,
    AgentDescription,
    ListVersionsResponse,
    PublishedVersion,
    Shares,
    Traffic,
    VersionComparison,
    VersionFile,
)
from greenroom.runs.traffic import TrafficSplitter
from greenroom.versions.store import VersionStore, version_not_found


class Versions:
    """Publishes, compares and deletes versions, and sets the traffic of apps."""

    def __init__(
        self, *, apps: AppLoader, store: VersionStore, published: PublishedApps, traffic: TrafficSplitter
    ) -> None:
        self._apps = apps
        self._store = store
        self._published = published
        self._traffic = traffic

    async def publish(self, app_name: str, *, message: str, published_by: str | None) -> PublishedVersion:
        """Stores the present files of an app as a version, if the app can be loaded from them. Files that were
        published before are the version of that time.

        Raises AppNotFound, AppLoadError, NotOffered, TooLarge, TooManyVersions.
        """
        snapshot = await self._published.snapshot(app_name)
        existing = await self._store.find(app_name, snapshot.version)
        if existing is not None:
            return existing

        from greenroom.apps.agent_descriptions import describe_agents

        app = await self._published.load_files(app_name, snapshot)
        version = PublishedVersion(
            app_name=app_name,
            name="",
            version=snapshot.version,
            message=message,
            published_at=time.time(),
            published_by=published_by,
            agents=await describe_agents(app),
            files=[VersionFile(path=path, size_bytes=len(data)) for path, data in snapshot.files.items()],
        )
        stored = await self._store.publish(version, await asyncio.to_thread(pack, snapshot.files))
        await self._traffic.refresh()
        return stored

    async def list(self, app_name: str) -> ListVersionsResponse:
        traffic = (await self._store.list_traffic()).get(app_name)
        try:
            source_version = (await self._apps.load_async(app_name)).version or None
        except GreenroomError:  # listed as a problem of the app
            source_version = None
        return ListVersionsResponse(
            versions=await self._store.list(app_name),
            shares=traffic.shares if traffic is not None else {},
            source_version=source_version,
        )

    def find_hash(self, app_name: str, name: str) -> str | None:
        """The hash of the version with a name, as far as this process has read; None if there is none."""
        return self._traffic.find_hash(app_name, name)

    async def get(self, app_name: str, name: str) -> PublishedVersion:
        """A version with its agents and files. Raises NotFound."""
        version = await self._store.get(app_name, name)
        if version is None:
            raise version_not_found(app_name, name)
        return version

    async def delete(self, app_name: str, name: str) -> None:
        """Raises NotFound, VersionInUse."""
        await self._store.delete(app_name, name)
        await self._traffic.refresh()

    async def set_traffic(self, app_name: str, shares: Shares) -> Traffic:
        """Raises InvalidRequest, NotFound."""
        await self._store.set_traffic(app_name, shares)
        await self._traffic.refresh()
        return Traffic(shares=shares)

    async def compare(self, app_name: str, first: str, second: str) -> VersionComparison:
        """The differences from one version to another; `source` is the present code.

        Raises NotFound, and for `source` AppLoadError, NotOffered, TooLarge.
        """
        from greenroom.apps.compare_versions import compare_agents, compare_files

        agents_before, files_before = await self._contents(app_name, first)
        agents_after, files_after = await self._contents(app_name, second)
        return VersionComparison(
            first=first,
            second=second,
            agents=compare_agents(agents_before, agents_after),
            files=await asyncio.to_thread(compare_files, files_before, files_after),
        )

    async def _contents(self, app_name: str, name: str) -> tuple[Sequence[AgentDescription], Mapping[str, bytes]]:
        if name == SOURCE:
            from greenroom.apps.agent_descriptions import describe_agents

            snapshot = await self._published.snapshot(app_name)
            return await describe_agents(await self._apps.load_async(app_name)), snapshot.files

        version = await self.get(app_name, name)
        archive = await self._store.read_archive(app_name, version.version)
        if archive is None:  # deleted meanwhile
            raise version_not_found(app_name, name)
        return version.agents or (), await asyncio.to_thread(unpack, archive)
