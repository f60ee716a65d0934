"""The contract of a store of published versions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import NamedTuple

from greenroom.errors import InvalidRequest, NotFound, VersionInUse
from greenroom.records.app_version import SOURCE, PublishedVersion, Shares

MAX_VERSIONS = 100
"""Maximum number of published versions of an app."""


class TrafficState(NamedTuple):
    """The traffic of an app."""

    revision: int
    """Greater with each version that is published or deleted, and with each change of the shares."""
    shares: Shares


class VersionStore(ABC):
    """Belongs to a run store. Every server on a database may write, whatever sessions it owns."""

    @abstractmethod
    async def publish(self, version: PublishedVersion, archive: bytes) -> PublishedVersion:
        """Stores a version under the next name, and returns it; or the stored one with the same files.

        version: its `name` is not used. Raises TooManyVersions for an app that has `MAX_VERSIONS`.
        """

    @abstractmethod
    async def list(self, app_name: str) -> list[PublishedVersion]:
        """The versions of an app, newest first, without agents and files."""

    @abstractmethod
    async def get(self, app_name: str, name: str) -> PublishedVersion | None:
        """A version with its agents and files."""

    @abstractmethod
    async def find(self, app_name: str, version: str) -> PublishedVersion | None:
        """The version with this hash, without agents and files."""

    @abstractmethod
    async def read_archive(self, app_name: str, version: str) -> bytes | None:
        """The archive of the version with this hash."""

    @abstractmethod
    async def delete(self, app_name: str, name: str) -> None:
        """Raises NotFound, and VersionInUse for a version with a share of the traffic."""

    @abstractmethod
    async def set_traffic(self, app_name: str, shares: Shares) -> None:
        """Raises NotFound for the name of a version that isn't there."""

    @abstractmethod
    async def list_traffic(self) -> Mapping[str, TrafficState]:
        """The traffic of all apps that have published a version at some time."""


def check_shares(app_name: str, shares: Shares, names: Collection[str]) -> None:
    """Raises InvalidRequest for shares whose sum isn't 100, NotFound for a version that isn't among the names."""
    if shares and sum(shares.values()) != 100:
        raise InvalidRequest("The sum of the shares must be 100", location=("body", "shares"))
    for name in shares:
        if name != SOURCE and name not in names:
            raise version_not_found(app_name, name)


def check_is_unused(app_name: str, name: str, shares: Shares) -> None:
    """Raises VersionInUse."""
    if name in shares:
        raise VersionInUse(app_name, name)


def version_not_found(app_name: str, name: str) -> NotFound:
    return NotFound(f"App {app_name!r} has no version {name!r}")
