"""Artifacts in memory keep the contract."""

from __future__ import annotations

import pytest

from greenroom.artifacts.in_memory import InMemoryArtifactService
from greenroom.records.base import JsonObject
from greenroom.records.content import Part
from greenroom.testing.contracts.artifact_service import *  # noqa: F403


@pytest.fixture
def artifact_service() -> InMemoryArtifactService:
    return InMemoryArtifactService()


@pytest.mark.parametrize(
    ("user_id", "filename", "uri"),
    [
        ("ann", "a.png", "memory://apps/concierge/users/ann/sessions/s-7/artifacts/a.png/versions/0"),
        ("ann", "user:a/b c", "memory://apps/concierge/users/ann/artifacts/user:a/b%20c/versions/0"),
        ("a/ü", "a#1", "memory://apps/concierge/users/a%2F%C3%BC/sessions/s-7/artifacts/a%231/versions/0"),
    ],
)
async def test_canonical_uri_is_as_adk_spells_it(
    artifact_service: InMemoryArtifactService, user_id: str, filename: str, uri: str
) -> None:
    where: JsonObject = {"app_name": "concierge", "user_id": user_id, "session_id": "s-7", "filename": filename}
    await artifact_service.save_artifact(**where, artifact=Part(text="x"))
    known = await artifact_service.get_artifact_version(**where)
    assert known is not None
    assert known.canonical_uri == uri
