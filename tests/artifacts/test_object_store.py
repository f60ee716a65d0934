"""Artifacts in object stores keep the contract, in obstore's memory and on a real S3 server."""

from __future__ import annotations

from collections.abc import AsyncIterator

import obstore
import pytest
from obstore.store import MemoryStore, S3Store

from greenroom.artifacts.object_store import ObjectStoreArtifactService
from greenroom.errors import InvalidRequest, NotOffered, StorageError
from greenroom.records.base import JsonObject
from greenroom.records.content import Blob, FileData, Part
from greenroom.testing.contracts.artifact_service import *  # noqa: F403

_WHERE: JsonObject = {"app_name": "concierge", "user_id": "ann", "session_id": "s-7"}
_HOME = "concierge/ann/s-7"


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def artifact_service(store: MemoryStore) -> ObjectStoreArtifactService:
    return ObjectStoreArtifactService(store)


async def test_objects_have_adk_s_keys_types_and_metadata(
    artifact_service: ObjectStoreArtifactService, store: MemoryStore
) -> None:
    image = Part(inline_data=Blob(data=b"png", mime_type="image/png", display_name="B"))
    reference = Part(file_data=FileData(file_uri="gs://b/o", mime_type="video/mp4"))
    for filename, part in (("a/b", image), ("report/1", Part(text="T")), ("user:profile", reference)):
        await artifact_service.save_artifact(**_WHERE, filename=filename, artifact=part)
    assert await _stored(store, f"{_HOME}/a/b/0") == (b"png", {"Content-Type": "image/png", "adkDisplayName": "B"})
    assert await _stored(store, f"{_HOME}/report/%31/0") == (b"T", {"Content-Type": "text/plain", "adkIsText": "true"})
    assert await _stored(store, "concierge/ann/user/user:profile/0") == (
        b"",
        {"Content-Type": "video/mp4", "adkFileUri": "gs://b/o", "adkFileMimeType": "video/mp4"},
    )


async def test_what_adk_wrote_is_read(artifact_service: ObjectStoreArtifactService, store: MemoryStore) -> None:
    """Attributes as google-adk 2.13 sets them; some stores send their names in lower case."""
    image = {"Content-Type": "image/png", "adkDisplayName": "B", "k": "1"}
    text = {"Content-Type": "text/plain"}
    await obstore.put_async(store, f"{_HOME}/a/0", b"png", attributes=image)
    await obstore.put_async(store, f"{_HOME}/b/0", b"T", attributes={**text, "adkistext": "true"})
    await obstore.put_async(store, f"{_HOME}/c/0", b"", attributes={"adkFileUri": "gs://b/o", "adkFileMimeType": "a/b"})
    loaded = [await artifact_service.load_artifact(**_WHERE, filename=name) for name in "abc"]
    assert loaded == [
        Part(inline_data=Blob(data=b"png", mime_type="image/png", display_name="B")),
        Part(text="T"),
        Part(file_data=FileData(file_uri="gs://b/o", mime_type="a/b")),
    ]
    known = await artifact_service.get_artifact_version(**_WHERE, filename="a")
    assert known is not None
    assert (known.mime_type, known.custom_metadata) == ("image/png", {"k": "1"})


async def test_objects_of_earlier_releases_are_read(
    artifact_service: ObjectStoreArtifactService, store: MemoryStore
) -> None:
    """A line of JSON, then the payload; the first object's line is longer than what is read at first."""
    for name, metadata in (("a", "x" * 5000), ("b", "")):
        head = b'{"part":{},"payload":"text","payloadBytes":3,"createTime":5.5,"customMetadata":{"k":"%s"}}\n'
        await obstore.put_async(store, f"{_HOME}/{name}/0", head % metadata.encode() + b"old")
        assert await artifact_service.load_artifact(**_WHERE, filename=name) == Part(text="old")
        content = await artifact_service.download_artifact(**_WHERE, filename=name)
        assert content is not None
        assert (content.size, b"".join([chunk async for chunk in content.chunks])) == (3, b"old")
        assert content.version.custom_metadata == {"k": metadata}
    await obstore.put_async(store, f"{_HOME}/c/0", b'{"part":{}} of another program')
    other = await artifact_service.load_artifact(**_WHERE, filename="c")
    assert other is not None
    assert other.inline_data is not None
    assert other.inline_data.data == b'{"part":{}} of another program'


async def test_an_unfinished_upload_is_not_seen(
    artifact_service: ObjectStoreArtifactService, store: MemoryStore
) -> None:
    seen: list[object] = []

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield b"x" * 6_000_000
        seen.append(await artifact_service.list_versions(**_WHERE, filename="a"))
        seen.append(await artifact_service.list_artifact_keys(**_WHERE))
        seen.append(await artifact_service.load_artifact(**_WHERE, filename="a", version=0))
        seen.append(await artifact_service.save_artifact(**_WHERE, filename="a", artifact=Part(text="meanwhile")))

    version = await artifact_service.upload_artifact(**_WHERE, filename="a", chunks=chunks(), mime_type="video/mp4")
    assert (version, seen) == (0, [[], [], None, 1])
    content = await artifact_service.download_artifact(**_WHERE, filename="a", version=0)
    assert content is not None
    assert (content.size, content.version.mime_type) == (18_000_000, "video/mp4")
    assert sum([len(chunk) async for chunk in content.chunks]) == 18_000_000


async def test_an_upload_that_breaks_off_leaves_nothing(
    artifact_service: ObjectStoreArtifactService, store: MemoryStore
) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"1234"
        raise ConnectionError

    with pytest.raises((ConnectionError, StorageError)):
        await artifact_service.upload_artifact(**_WHERE, filename="a", chunks=chunks(), mime_type="a/b")
    assert await _paths(store) == []


async def test_deleting_removes_long_descriptions_too(
    artifact_service: ObjectStoreArtifactService, store: MemoryStore
) -> None:
    await artifact_service.save_artifact(
        **_WHERE, filename="a", artifact=Part(text="x"), custom_metadata={"long": "x" * 5000}
    )
    assert len(await _paths(store)) == 2
    await artifact_service.delete_artifact(**_WHERE, filename="a")
    assert await _paths(store) == []


async def test_a_store_that_fails_is_a_storage_error() -> None:
    nowhere = S3Store(
        "bucket", endpoint="http://127.0.0.1:9", region="us-east-1", skip_signature=True, retry_config={"max_retries": 0},
        client_options={"allow_http": True},
    )  # fmt: skip
    with pytest.raises(StorageError) as caught:
        await ObjectStoreArtifactService(nowhere).save_artifact(**_WHERE, filename="a", artifact=Part(text="x"))
    assert caught.value.operation == "Saving an artifact"
    assert "\n" not in caught.value.reason


async def test_memory_has_no_signed_urls(artifact_service: ObjectStoreArtifactService) -> None:
    with pytest.raises(NotOffered):
        await artifact_service.signed_url(**_WHERE, filename="a")


async def test_a_key_too_long_for_the_store_is_the_caller_s_mistake() -> None:
    service = ObjectStoreArtifactService(S3Store("bucket", prefix="p" * 100, region="us-east-1", skip_signature=True))
    with pytest.raises(InvalidRequest, match="too long"):
        await service.save_artifact(**_WHERE, filename="n" * 950, artifact=Part(text="x"))


async def test_large_artifacts_are_written_at_once() -> None:
    store = MemoryStore()
    service = ObjectStoreArtifactService(store)
    part = Part.from_bytes(data=bytes(range(256)) * 80_000, mime_type="application/octet-stream")
    assert [await service.save_artifact(**_WHERE, filename="a", artifact=part) for _ in range(2)] == [0, 1]
    assert await service.load_artifact(**_WHERE, filename="a") == part
    assert obstore.head(store, "concierge/ann/s-7/a/1")["size"] > 20_000_000


async def _stored(store: MemoryStore, path: str) -> tuple[bytes, dict[str, str]]:
    """The payload, and the attributes but our own."""
    found = await obstore.get_async(store, path)
    attributes = {str(name): value for name, value in found.attributes.items() if name != "greenroom"}
    return bytes(await found.bytes_async()), attributes


async def _paths(store: MemoryStore) -> list[str]:
    return [one["path"] for objects in obstore.list(store) for one in objects]
