"""Artifacts in an object store keep the contract, on a local folder and in obstore's memory."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import unquote

import obstore
import pytest
from obstore.store import MemoryStore, S3Store

from greenroom.artifacts.object_store import ObjectStoreArtifactService
from greenroom.errors import InvalidRequest, StorageError
from greenroom.records.base import JsonObject
from greenroom.records.content import Part
from greenroom.testing.contracts.artifact_service import *  # noqa: F403

_WHERE: JsonObject = {"app_name": "concierge", "user_id": "ann", "session_id": "s-7"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "outer" / "arti facts"


@pytest.fixture(params=["folder", "memory"])
def artifact_service(request: pytest.FixtureRequest, folder: Path) -> ObjectStoreArtifactService:
    store = folder.as_uri() if request.param == "folder" else MemoryStore()
    return ObjectStoreArtifactService(store)


@pytest.fixture
def in_folder(folder: Path) -> ObjectStoreArtifactService:
    return ObjectStoreArtifactService(folder.as_uri())


async def test_files_lie_where_adk_puts_them(in_folder: ObjectStoreArtifactService, folder: Path) -> None:
    for filename in ("a/b.txt", "a/b.txt", "report/1", "user:profile"):
        await in_folder.save_artifact(**_WHERE, filename=filename, artifact=Part(text="x"))
    assert _files_under(folder) == [
        "concierge/ann/s-7/a/b.txt/0",
        "concierge/ann/s-7/a/b.txt/1",
        "concierge/ann/s-7/report/%31/0",
        "concierge/ann/user/user:profile/0",
    ]


async def test_nothing_is_written_outside_the_folder(in_folder: ObjectStoreArtifactService, folder: Path) -> None:
    outside = folder.parent.parent
    for bad in ("..", "/etc/passwd", "a/../../b", "../../../b", "..\\..\\b", "%2e%2e/%2e%2e/b"):
        for field in ("app_name", "user_id", "session_id", "filename"):
            where: JsonObject = {**_WHERE, "filename": "a", field: bad}
            try:
                await in_folder.save_artifact(**where, artifact=Part(text="x"))
            except InvalidRequest:
                pass
    assert [name for name in _files_under(outside) if not name.startswith("outer/arti facts/")] == []


async def test_file_holds_one_line_of_json_and_then_the_bytes(
    in_folder: ObjectStoreArtifactService, folder: Path
) -> None:
    image = Part.from_bytes(data=b"\x89PNG\r\n", mime_type="image/png")
    await in_folder.save_artifact(**_WHERE, filename="a.png", artifact=image)
    content = (folder / "concierge/ann/s-7/a.png/0").read_bytes()
    assert content.startswith(b'{"part":{"inlineData":{"mimeType":"image/png"}},"payload":"inlineData"')
    assert content.endswith(b"}\n\x89PNG\r\n")


async def test_canonical_uri_of_a_file_is_relative_to_the_store(
    in_folder: ObjectStoreArtifactService, folder: Path
) -> None:
    """The absolute folders of the server are no business of its clients."""
    await in_folder.save_artifact(**_WHERE, filename="größe 100%", artifact=Part(text="x"))
    known = await in_folder.get_artifact_version(**_WHERE, filename="größe 100%")
    assert known is not None
    assert str(folder) not in unquote(known.canonical_uri)
    assert unquote(known.canonical_uri).removeprefix("artifact://") in _files_under(folder)


async def test_deleting_leaves_no_empty_folders(in_folder: ObjectStoreArtifactService, folder: Path) -> None:
    await in_folder.save_artifact(**_WHERE, filename="a/b/c", artifact=Part(text="x"))
    await in_folder.delete_artifact(**_WHERE, filename="a/b/c")
    assert os.listdir(folder) == []


async def test_a_second_service_sees_what_the_first_saved(in_folder: ObjectStoreArtifactService, folder: Path) -> None:
    await in_folder.save_artifact(**_WHERE, filename="a", artifact=Part(text="x"))
    assert await ObjectStoreArtifactService(folder.as_uri()).load_artifact(**_WHERE, filename="a") == Part(text="x")


async def test_unfinished_and_foreign_files_are_not_listed(in_folder: ObjectStoreArtifactService, folder: Path) -> None:
    await in_folder.save_artifact(**_WHERE, filename="a", artifact=Part(text="x"))
    home = folder / "concierge/ann/s-7"
    for stray in ("a/1#1", "a/01", "a/latest", "b#1/0", "b/notes.txt"):
        (home / stray).parent.mkdir(exist_ok=True)
        (home / stray).write_bytes(b'{"part"')
    assert await in_folder.list_artifact_keys(**_WHERE) == ["a"]
    assert await in_folder.list_versions(**_WHERE, filename="a") == [0]
    assert await in_folder.save_artifact(**_WHERE, filename="a", artifact=Part(text="y")) == 1


@pytest.mark.parametrize("damage", [b"", b"no newline", b'{"part":{}}\n', b"\xff\n"])
async def test_a_damaged_object_is_a_storage_error(
    in_folder: ObjectStoreArtifactService, folder: Path, damage: bytes
) -> None:
    await in_folder.save_artifact(**_WHERE, filename="a", artifact=Part(text="x"))
    (folder / "concierge/ann/s-7/a/0").write_bytes(damage)
    with pytest.raises(StorageError):
        await in_folder.load_artifact(**_WHERE, filename="a")
    with pytest.raises(StorageError):
        await in_folder.get_artifact_version(**_WHERE, filename="a")


async def test_a_cut_off_payload_is_a_storage_error(in_folder: ObjectStoreArtifactService, folder: Path) -> None:
    await in_folder.save_artifact(**_WHERE, filename="a", artifact=Part(text="0123456789"))
    file = folder / "concierge/ann/s-7/a/0"
    os.truncate(file, file.stat().st_size - 1)
    with pytest.raises(StorageError, match="not whole"):
        await in_folder.load_artifact(**_WHERE, filename="a")


async def test_a_store_that_fails_is_a_storage_error(tmp_path: Path) -> None:
    service = ObjectStoreArtifactService((tmp_path / "artifacts").as_uri())
    (tmp_path / "artifacts" / "concierge").write_text("a file where a folder should be")
    with pytest.raises(StorageError) as caught:
        await service.save_artifact(**_WHERE, filename="a", artifact=Part(text="x"))
    assert caught.value.operation == "Saving an artifact"
    assert "\n" not in caught.value.reason


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


def _files_under(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
