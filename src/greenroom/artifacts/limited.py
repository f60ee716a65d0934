"""An artifact store that takes nothing over a size, whoever saves it: a request, a tool or a plugin."""

from __future__ import annotations

from greenroom.artifacts.service import BaseArtifactService
from greenroom.errors import TooLarge
from greenroom.records.artifact import ArtifactVersion, ListArtifactsResponse
from greenroom.records.base import JsonObject
from greenroom.records.content import Part


class LimitedArtifactService(BaseArtifactService):
    """limit_bytes: of the data, or of the text in UTF-8."""

    def __init__(self, artifacts: BaseArtifactService, *, limit_bytes: int) -> None:
        self._artifacts = artifacts
        self.limit_bytes = limit_bytes

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
        """Raises TooLarge, and as the store does."""
        data = artifact.inline_data.data if artifact.inline_data is not None else None
        if max(len(data or b""), len((artifact.text or "").encode())) > self.limit_bytes:
            raise TooLarge("The artifact", limit_bytes=self.limit_bytes)
        return await self._artifacts.save_artifact(
            app_name=app_name,
            user_id=user_id,
            session_id=session_id,
            filename=filename,
            artifact=artifact,
            custom_metadata=custom_metadata,
        )

    async def load_artifact(
        self, *, app_name: str, user_id: str, session_id: str, filename: str, version: int | None = None
    ) -> Part | None:
        return await self._artifacts.load_artifact(
            app_name=app_name, user_id=user_id, session_id=session_id, filename=filename, version=version
        )

    async def list_artifact_keys(self, *, app_name: str, user_id: str, session_id: str) -> ListArtifactsResponse:
        return await self._artifacts.list_artifact_keys(app_name=app_name, user_id=user_id, session_id=session_id)

    async def list_versions(self, *, app_name: str, user_id: str, session_id: str, filename: str) -> list[int]:
        return await self._artifacts.list_versions(
            app_name=app_name, user_id=user_id, session_id=session_id, filename=filename
        )

    async def get_artifact_version(
        self, *, app_name: str, user_id: str, session_id: str, filename: str, version: int | None = None
    ) -> ArtifactVersion | None:
        return await self._artifacts.get_artifact_version(
            app_name=app_name, user_id=user_id, session_id=session_id, filename=filename, version=version
        )

    async def delete_artifact(self, *, app_name: str, user_id: str, session_id: str, filename: str) -> None:
        await self._artifacts.delete_artifact(
            app_name=app_name, user_id=user_id, session_id=session_id, filename=filename
        )

    async def close(self) -> None:
        await self._artifacts.close()
