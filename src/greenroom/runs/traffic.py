"""Decides which published version of its app serves a session.

The shares are in memory. One of several servers reads them again every two seconds, since another one may have changed
them. Apps without shares are served by the code in their folder, and nothing is looked up for them.

For example, `{"v3": 90, "v4": 10}`: a new session gets a number from 0 to 100 that follows from its key, and v3 if that
is below 90. The record of its run has the version. The next turn finds it there and stays on it, even if the shares are
50 and 50 by then. With `{"v3": 100}`, v4 is withdrawn: its sessions get v3 from their next run on.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from greenroom.errors import StorageError
from greenroom.records.app_version import SOURCE, Shares
from greenroom.records.run import RunFilter
from greenroom.records.session import SessionKey
from greenroom.runs.store import RunStore

_log = logging.getLogger("greenroom.runs")

REFRESH_SECONDS = 2.0
MAX_SESSIONS = 10_000
"""Number of sessions of an app whose version is kept in memory."""


@dataclass(kw_only=True, eq=False)
class _AppTraffic:
    revision: int
    shares: Shares
    names: Mapping[str, str]
    """The names of the published versions by their hash."""
    hashes: Mapping[str, str]
    """The other way around."""
    is_split: bool
    """Whether a published version has a share."""
    sessions: dict[SessionKey, str] = field(default_factory=dict[SessionKey, str])
    """The names of the versions of sessions that have run since the last change, the oldest first."""


class TrafficSplitter:
    """The traffic of all apps that have published versions."""

    def __init__(self, run_store: RunStore) -> None:
        self._run_store = run_store
        self._apps: Mapping[str, _AppTraffic] = {}
        self._lock = asyncio.Lock()
        self._refreshing: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self.refresh()
        if self._run_store.replicas is not None:
            self._refreshing = asyncio.create_task(self._refresh_repeatedly())

    def close(self) -> None:
        if self._refreshing is not None:
            self._refreshing.cancel()

    def is_split(self, app_name: str) -> bool:
        """Whether `version_for` has to be asked; if not, the code in the app's folder serves all of its sessions."""
        traffic = self._apps.get(app_name)
        return traffic is not None and traffic.is_split

    async def version_for(self, key: SessionKey) -> str | None:
        """The hash of the version that serves a session; None for the code in the app's folder.

        That of its newest run, as long as it has a share, if only of 0; else the one that follows from its key.
        """
        traffic = self._apps[key.app_name]
        name = traffic.sessions.get(key)
        if name is None:
            name = await self._name_of_newest_run(key, traffic)
            if name not in traffic.shares:
                name = choose(key, traffic.shares)
            traffic.sessions[key] = name
            if len(traffic.sessions) > MAX_SESSIONS:
                del traffic.sessions[next(iter(traffic.sessions))]
        return traffic.hashes.get(name)

    def find_hash(self, app_name: str, name: str) -> str | None:
        """The hash of the version with a name, as far as this process has read."""
        traffic = self._apps.get(app_name)
        return traffic.hashes.get(name) if traffic is not None else None

    def knows(self, app_name: str, version: str | None) -> bool:
        """Whether a version is published, as far as this process has read."""
        traffic = self._apps.get(app_name)
        return traffic is not None and version in traffic.names

    async def is_published(self, app_name: str, version: str) -> bool:
        """Whether a version is published."""
        if self.knows(app_name, version):
            return True
        if self._run_store.replicas is None:
            return False
        await self.refresh()  # another server may have published it a moment ago
        return self.knows(app_name, version)

    async def refresh(self) -> None:
        """Reads what has changed. Raises StorageError."""
        async with self._lock:
            apps = dict[str, _AppTraffic]()
            for app_name, (revision, shares) in (await self._run_store.versions.list_traffic()).items():
                known = self._apps.get(app_name)
                if known is not None and known.revision == revision:
                    apps[app_name] = known
                    continue
                versions = await self._run_store.versions.list(app_name)
                apps[app_name] = _AppTraffic(
                    revision=revision,
                    shares=shares,
                    names={one.version: one.name for one in versions},
                    hashes={one.name: one.version for one in versions},
                    is_split=bool(shares.keys() - {SOURCE}),
                )
            self._apps = apps

    async def _name_of_newest_run(self, key: SessionKey, traffic: _AppTraffic) -> str | None:
        of_session = RunFilter(app_names=[key.app_name], user_id=key.user_id, session_id=key.session_id)
        newest = (await self._run_store.list_runs(of_session, limit=1)).runs
        if not newest:
            return None
        return traffic.names.get(newest[0].app_version or "", SOURCE)

    async def _refresh_repeatedly(self) -> None:
        while True:
            await asyncio.sleep(REFRESH_SECONDS)
            try:
                await self.refresh()
            except StorageError as error:
                _log.warning("the traffic of apps could not be read again: %s", error)


def choose(key: SessionKey, shares: Shares) -> str:
    """The name of the version that a new session gets."""
    digest = hashlib.sha256("\0".join(("traffic", *key)).encode(errors="surrogatepass")).digest()
    number = int.from_bytes(digest[:8], "big") * 100 >> 64
    end = 0
    for name in sorted(shares, key=_order):
        end += shares[name]
        if number < end:
            return name
    raise AssertionError("the sum of the shares is 100")


def _order(name: str) -> int:
    return 0 if name == SOURCE else int(name[1:])
