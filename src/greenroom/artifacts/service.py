"""The contract of an artifact store."""

from __future__ import annotations

from abc import ABC, abstractmethod

from greenroom.records.base import JsonObject
from greenroom.records.content import Part
from greenroom.records.listings import ArtifactVersion

USER_NAMESPACE = "user:"


class BaseArtifactService(ABC):
    """Stores parts under names, with all versions.

    A name that starts with `user:` belongs to the user in the app and is seen from all the user's sessions; others
    belong to the session. Names may contain `/`. Versions are 0, 1, 2 …; two savers at once get two versions. The
    session need not exist. Names and ids that would leave their folder (`..`, NUL, over 1,024 bytes) raise
    InvalidRequest.

    limit_bytes: the most that is taken in one version, of data or of text in UTF-8; a server sets its own limit here.
    """

    limit_bytes: int | None = None

    @abstractmethod
    async def save_artifact(
        self,
        *,
        app_name: str,
        user_id: str,
        session_id: str,
        filename: str,
        artifact: Part,
        custom_metadata: JsonObject | None = None,
    ) -> int:
        """Store a part with inline data, text or a file reference; returns its version.

        Raises InvalidRequest for other parts, and TooLarge.
        """

    @abstractmethod
    async def load_artifact(
        self, *, app_name: str, user_id: str, session_id: str, filename: str, version: int | None = None
    ) -> Part | None:
        """The newest version, or the given one; None when there is none."""

    @abstractmethod
    async def list_artifact_keys(self, *, app_name: str, user_id: str, session_id: str) -> list[str]:
        """Names of the session and `user:` names, sorted."""

    @abstractmethod
    async def list_versions(self, *, app_name: str, user_id: str, session_id: str, filename: str) -> list[int]:
        """Ascending; empty when there is no such artifact."""

    @abstractmethod
    async def get_artifact_version(
        self, *, app_name: str, user_id: str, session_id: str, filename: str, version: int | None = None
    ) -> ArtifactVersion | None:
        """Metadata of a version, by default the newest; None if there is none."""

    @abstractmethod
    async def delete_artifact(self, *, app_name: str, user_id: str, session_id: str, filename: str) -> None:
        """Deletes all versions, if there are any."""

    async def close(self) -> None:
        """Closes connections."""
