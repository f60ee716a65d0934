"""Base of greenroom's artifact stores: arguments are checked and parsed here, once."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterable

from greenroom.artifacts.layout import (
    ArtifactPath,
    Description,
    artifact_path,
    describe_upload,
    take_apart,
)
from greenroom.artifacts.service import BaseArtifactService
from greenroom.records.base import JsonObject
from greenroom.records.content import Part
from greenroom.records.listings import ArtifactVersion


class ArtifactServiceByPath(BaseArtifactService):
    """Implements the contract by methods that take a valid path; `version` is the newest when it is None."""

    @abstractmethod
    async def _save(self, path: ArtifactPath, description: Description, payload: bytes) -> int: ...

    async def _upload(self, path: ArtifactPath, description: Description, chunks: AsyncIterable[bytes]) -> int:
        """Saves a payload that arrives in chunks, of up to `limit_bytes` in total."""
        payload = b"".join([chunk async for chunk in chunks])
        description.payload_bytes = len(payload)
        return await self._save(path, description, payload)

    @abstractmethod
    async def _load(self, path: ArtifactPath, version: int | None) -> Part | None: ...

    @abstractmethod
    async def _describe(self, path: ArtifactPath, version: int | None) -> ArtifactVersion | None: ...

    @abstractmethod
    async def _list_versions(self, path: ArtifactPath) -> list[int]: ...

    @abstractmethod
    async def _delete(self, path: ArtifactPath) -> None: ...

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
        path = artifact_path(app_name, user_id, session_id, filename)
        return await self._save(path, *take_apart(artifact, custom_metadata, limit_bytes=self.limit_bytes))

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
        path = artifact_path(app_name, user_id, session_id, filename)
        return await self._upload(path, describe_upload(mime_type, custom_metadata), self._limited(chunks))

    async def load_artifact(
        self, *, app_name: str, user_id: str, session_id: str, filename: str, version: int | None = None
    ) -> Part | None:
        return await self._load(artifact_path(app_name, user_id, session_id, filename), version)

    async def get_artifact_version(
        self, *, app_name: str, user_id: str, session_id: str, filename: str, version: int | None = None
    ) -> ArtifactVersion | None:
        return await self._describe(artifact_path(app_name, user_id, session_id, filename), version)

    async def list_versions(self, *, app_name: str, user_id: str, session_id: str, filename: str) -> list[int]:
        return await self._list_versions(artifact_path(app_name, user_id, session_id, filename))

    async def delete_artifact(self, *, app_name: str, user_id: str, session_id: str, filename: str) -> None:
        await self._delete(artifact_path(app_name, user_id, session_id, filename))
