"""The contract of an artifact store."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterable, AsyncIterator
from typing import NamedTuple

from greenroom.errors import NotOffered, TooLarge
from greenroom.records.base import JsonObject
from greenroom.records.content import Part
from greenroom.records.listings import ArtifactVersion, ListArtifactVersionsResponse

USER_NAMESPACE = "user:"


def belongs_to_session(filename: str) -> bool:
    """False for names that are seen from all the user's sessions. Code that a model writes must not choose those."""
    return not filename.startswith(USER_NAMESPACE)


class ArtifactContent(NamedTuple):
    """The bytes of a version as they are read: text in UTF-8, none for a file reference."""

    version: ArtifactVersion
    size: int
    """In bytes."""

    chunks: AsyncIterator[bytes]


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
        """Stores a part with inline data, text or a file reference, and returns its version.

        Raises InvalidRequest for other parts, and TooLarge.
        """

    @abstractmethod
    async def load_artifact(
        self, *, app_name: str, user_id: str, session_id: str, filename: str, version: int | None = None
    ) -> Part | None:
        """Loads the newest version, or the given one; None if it doesn't exist, or if a rewind has removed it."""

    @abstractmethod
    async def list_artifact_keys(self, *, app_name: str, user_id: str, session_id: str) -> list[str]:
        """Names of the session and `user:` names, sorted. Our stores return a ListArtifactsResponse."""

    @abstractmethod
    async def list_versions(self, *, app_name: str, user_id: str, session_id: str, filename: str) -> list[int]:
        """Ascending; empty when there is no such artifact."""

    @abstractmethod
    async def get_artifact_version(
        self, *, app_name: str, user_id: str, session_id: str, filename: str, version: int | None = None
    ) -> ArtifactVersion | None:
        """Metadata of a version, by default the newest; None if there is none."""

    async def list_artifact_versions(
        self, *, app_name: str, user_id: str, session_id: str, filename: str
    ) -> list[ArtifactVersion]:
        """Returns the metadata of all versions, ascending, without those deleted in the meantime."""
        key = {"app_name": app_name, "user_id": user_id, "session_id": session_id, "filename": filename}
        versions = ListArtifactVersionsResponse()
        for version in await self.list_versions(**key):
            described = await self.get_artifact_version(**key, version=version)
            if described is not None:
                versions.append(described)
        return versions

    @abstractmethod
    async def delete_artifact(self, *, app_name: str, user_id: str, session_id: str, filename: str) -> None:
        """Deletes all versions, if there are any."""

    async def delete_user(self, *, app_name: str, user_id: str) -> None:
        """Deletes all artifacts of a user and of the user's sessions in an app."""
        raise NotOffered(f"{type(self).__name__} can't delete a user's artifacts together")

    async def is_empty(self) -> bool:
        """True for a store that certainly holds nothing."""
        return False

    async def upload_artifact(
        self,
        *,
        app_name: str,
        user_id: str,
        session_id: str,
        filename: str,
        chunks: AsyncIterable[bytes],
        mime_type: str,
        custom_metadata: JsonObject | None = None,
    ) -> int:
        """Stores data as it arrives; returns its version. Other stores than this default hold a few MB of it at a time.

        When `chunks` raises, no version is stored. Raises TooLarge.
        """
        data = b"".join([chunk async for chunk in self._limited(chunks)])
        return await self.save_artifact(
            app_name=app_name,
            user_id=user_id,
            session_id=session_id,
            filename=filename,
            artifact=Part.from_bytes(data=data, mime_type=mime_type),
            custom_metadata=custom_metadata,
        )

    async def download_artifact(
        self, *, app_name: str, user_id: str, session_id: str, filename: str, version: int | None = None
    ) -> ArtifactContent | None:
        """The content of a version, by default the newest, piece by piece; None when there is none."""
        key = {"app_name": app_name, "user_id": user_id, "session_id": session_id, "filename": filename}
        description = await self.get_artifact_version(**key, version=version)
        part = description and await self.load_artifact(**key, version=description.version)
        if description is None or part is None:
            return None
        data = part.inline_data.data if part.inline_data is not None else (part.text or "").encode()

        async def chunks() -> AsyncIterator[bytes]:
            yield data or b""

        return ArtifactContent(description, len(data or b""), chunks())

    async def signed_url(
        self,
        *,
        app_name: str,
        user_id: str,
        session_id: str,
        filename: str,
        version: int | None = None,
        expires_seconds: float = 3600,
    ) -> str | None:
        """Returns a URL at which anybody may download a version until it expires; None if the version doesn't exist.

        Raises NotOffered if the store has no such URLs.
        """
        raise NotOffered("This artifact store has no signed URLs")

    async def _limited(self, chunks: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in chunks:
            size += len(chunk)
            if self.limit_bytes is not None and size > self.limit_bytes:
                raise TooLarge("The artifact", limit_bytes=self.limit_bytes)
            yield chunk

    async def close(self) -> None:
        """Closes connections."""
