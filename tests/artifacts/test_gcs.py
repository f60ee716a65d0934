"""Artifacts in Google Cloud Storage keep the contract, with obstore's real client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from obstore.store import GCSStore

from greenroom.artifacts.object_store import ObjectStoreArtifactService
from greenroom.records.base import JsonObject
from greenroom.records.content import Part
from greenroom.testing.contracts.artifact_service import *  # noqa: F403
from tests.artifacts.gcs_server import GcsServer, running_gcs

_WHERE: JsonObject = {"app_name": "concierge", "user_id": "ann", "session_id": "s-7"}


@pytest.fixture
async def gcs() -> AsyncIterator[tuple[GcsServer, GCSStore]]:
    async with running_gcs() as running:
        yield running


@pytest.fixture
def artifact_service(gcs: tuple[GcsServer, GCSStore]) -> ObjectStoreArtifactService:
    return ObjectStoreArtifactService(gcs[1])


async def test_objects_are_where_adk_looks_for_them(
    artifact_service: ObjectStoreArtifactService, gcs: tuple[GcsServer, GCSStore]
) -> None:
    version = await artifact_service.save_artifact(**_WHERE, filename="a/b.txt", artifact=Part(text="hello"))
    found = await artifact_service.get_artifact_version(**_WHERE, filename="a/b.txt")
    assert found is not None
    assert (version, found.canonical_uri) == (0, "gs://bucket/some/where/concierge/ann/s-7/a/b.txt/0")
    stored = gcs[0].objects["some/where/concierge/ann/s-7/a/b.txt/0"]
    assert (stored.data, stored.headers["content-type"], stored.headers["x-goog-meta-adkistext"]) == (
        b"hello",
        "text/plain",
        "true",
    )


async def test_an_object_of_adk_is_read(
    artifact_service: ObjectStoreArtifactService, gcs: tuple[GcsServer, GCSStore]
) -> None:
    gcs[0]._store("some/where/concierge/ann/s-7/a.png/0", b"png", {"content-type": "image/png", "x-goog-meta-k": "v"})
    part = await artifact_service.load_artifact(**_WHERE, filename="a.png")
    found = await artifact_service.get_artifact_version(**_WHERE, filename="a.png")
    assert part == Part.from_bytes(data=b"png", mime_type="image/png")
    assert found is not None
    assert found.custom_metadata == {"k": "v"}


async def test_savers_of_two_processes_get_versions_of_their_own(gcs: tuple[GcsServer, GCSStore]) -> None:
    """The store decides, by the precondition of a write."""
    services = [ObjectStoreArtifactService(gcs[1]) for _ in range(4)]
    versions = await asyncio.gather(
        *(
            service.save_artifact(**_WHERE, filename="log", artifact=Part(text=str(number)))
            for number in range(5)
            for service in services
        )
    )
    assert sorted(versions) == list(range(20))


async def test_large_data_goes_up_in_parts_or_not_at_all(
    artifact_service: ObjectStoreArtifactService, gcs: tuple[GcsServer, GCSStore]
) -> None:
    async def pieces(last: int):
        for number in range(14):
            if number == last:
                raise ValueError("gone")
            yield bytes([number]) * 1_000_000

    upload: JsonObject = {**_WHERE, "filename": "film", "mime_type": "video/mp4"}
    with pytest.raises(ValueError, match="gone"):
        await artifact_service.upload_artifact(**upload, chunks=pieces(12))
    assert (gcs[0].objects, gcs[0].uploads) == ({}, {})
    assert await artifact_service.upload_artifact(**upload, chunks=pieces(-1)) == 0
    content = await artifact_service.download_artifact(**_WHERE, filename="film")
    assert content is not None
    assert b"".join([chunk async for chunk in content.chunks]) == b"".join(
        bytes([number]) * 1_000_000 for number in range(14)
    )
