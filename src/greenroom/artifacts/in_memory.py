"""Artifacts in the memory of this process, gone when it ends."""

from __future__ import annotations

from greenroom.artifacts.by_path import ArtifactServiceByPath
from greenroom.artifacts.layout import (
    ArtifactPath,
    Description,
    Scope,
    encode_description,
    put_together,
    read_description,
    scopes_of,
    uri_path,
)
from greenroom.records.content import Part
from greenroom.records.listings import ArtifactVersion, ListArtifactsResponse

_Versions = list[tuple[bytes, bytes]]


class InMemoryArtifactService(ArtifactServiceByPath):
    """Callers get copies: changing a part that was saved or loaded changes nothing here."""

    def __init__(self) -> None:
        self._scopes: dict[Scope, dict[str, _Versions]] = {}

    async def _save(self, path: ArtifactPath, description: Description, payload: bytes) -> int:
        stored = encode_description(description), payload
        versions = self._scopes.setdefault(path.scope, {}).setdefault(path.filename, [])
        versions.append(stored)
        return len(versions) - 1

    async def _load(self, path: ArtifactPath, version: int | None) -> Part | None:
        number = self._number(path, version)
        if number is None:
            return None
        description, payload = self._versions(path)[number]
        return put_together(read_description(description), payload)

    async def list_artifact_keys(self, *, app_name: str, user_id: str, session_id: str) -> ListArtifactsResponse:
        scopes = scopes_of(app_name, user_id, session_id)
        return ListArtifactsResponse(sorted(name for scope in scopes for name in self._scopes.get(scope, ())))

    async def _list_versions(self, path: ArtifactPath) -> list[int]:
        return list(range(len(self._versions(path))))

    async def _describe(self, path: ArtifactPath, version: int | None) -> ArtifactVersion | None:
        number = self._number(path, version)
        if number is None:
            return None
        description = read_description(self._versions(path)[number][0])
        return description.as_version(number, f"memory://{uri_path(path)}/versions/{number}")

    async def _delete(self, path: ArtifactPath) -> None:
        names = self._scopes.get(path.scope, {})
        names.pop(path.filename, None)
        if not names:
            self._scopes.pop(path.scope, None)

    async def delete_user(self, *, app_name: str, user_id: str) -> None:
        for scope in [scope for scope in self._scopes if scope[:2] == (app_name, user_id)]:
            del self._scopes[scope]

    def _versions(self, path: ArtifactPath) -> _Versions:
        return self._scopes.get(path.scope, {}).get(path.filename, [])

    def _number(self, path: ArtifactPath, version: int | None) -> int | None:
        count = len(self._versions(path))
        number = count - 1 if version is None else version
        return number if 0 <= number < count else None
