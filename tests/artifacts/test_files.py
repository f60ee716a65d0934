"""Artifacts in a local folder keep the contract, in ADK's layout."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import unquote

import pytest

from greenroom.artifacts.files import FileArtifactService
from greenroom.artifacts.service import BaseArtifactService
from greenroom.errors import InvalidRequest, StorageError, TooLarge
from greenroom.records.base import JsonObject
from greenroom.records.content import Blob, Part
from greenroom.testing.contracts.artifact_service import *  # noqa: F403

_WHERE: JsonObject = {"app_name": "concierge", "user_id": "ann", "session_id": "s-7"}
_ADK = Path("apps/concierge/users/ann")
_SESSION = _ADK / "sessions/s-7/artifacts"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "outer" / "arti facts"


@pytest.fixture
def artifact_service(folder: Path) -> BaseArtifactService:
    return FileArtifactService(folder)


async def test_files_lie_where_adk_puts_them(artifact_service: BaseArtifactService, folder: Path) -> None:
    for filename in ("a/b.txt", "a/b.txt", "report/1", "user:profile", "versions/metadata.json"):
        await artifact_service.save_artifact(**_WHERE, filename=filename, artifact=Part(text="x"))
    assert [name for name in _files_under(folder) if not name.endswith("/metadata.json")] == [
        "apps/concierge/users/ann/artifacts/profile/versions/0/profile",
        "apps/concierge/users/ann/sessions/s-7/artifacts/%76ersions/%6Detadata.json/versions/0/%6Detadata.json",
        "apps/concierge/users/ann/sessions/s-7/artifacts/a/b.txt/versions/0/b.txt",
        "apps/concierge/users/ann/sessions/s-7/artifacts/a/b.txt/versions/1/b.txt",
        "apps/concierge/users/ann/sessions/s-7/artifacts/report/1/versions/0/1",
    ]


async def test_what_adk_wrote_is_read(artifact_service: BaseArtifactService, folder: Path) -> None:
    """metadata.json as google-adk 2.13 writes it; text has no mimeType there."""
    _write(folder / _SESSION / "a/b.png/versions/0", "b.png", b"png", mimeType="image/png", displayName="B")
    _write(folder / _SESSION / "t.txt/versions/3", "t.txt", "h\u00e9llo".encode())
    _write(folder / _ADK / "artifacts/p/versions/0", "p", b"mine")
    assert await artifact_service.list_artifact_keys(**_WHERE) == ["a/b.png", "t.txt", "user:p"]
    image = await artifact_service.load_artifact(**_WHERE, filename="a/b.png")
    assert image == Part(inline_data=Blob(data=b"png", mime_type="image/png", display_name="B"))
    assert await artifact_service.load_artifact(**_WHERE, filename="t.txt") == Part(text="h\u00e9llo")
    assert await artifact_service.load_artifact(**_WHERE, filename="user:p") == Part(text="mine")
    known = await artifact_service.get_artifact_version(**_WHERE, filename="t.txt")
    assert known is not None
    assert (known.version, known.mime_type, known.create_time) == (3, "text/plain", 1795375832.5)
    assert await artifact_service.save_artifact(**_WHERE, filename="t.txt", artifact=Part(text="new")) == 4


async def test_metadata_has_what_adk_reads(artifact_service: BaseArtifactService, folder: Path) -> None:
    image = Part(inline_data=Blob(data=b"\x89PNG\r\n", mime_type="image/png", display_name="B"))
    await artifact_service.save_artifact(**_WHERE, filename="a.png", artifact=image, custom_metadata={"k": [1]})
    home = folder / _SESSION / "a.png/versions/0"
    assert (home / "a.png").read_bytes() == b"\x89PNG\r\n"
    written = json.loads((home / "metadata.json").read_bytes())
    assert written["createTime"] > 1.7e9
    assert {key: written[key] for key in ("version", "fileName", "mimeType", "displayName", "customMetadata")} == {
        "version": 0,
        "fileName": "a.png",
        "mimeType": "image/png",
        "displayName": "B",
        "customMetadata": {"k": [1]},
    }


async def test_what_earlier_releases_stored_is_moved(artifact_service: BaseArtifactService, folder: Path) -> None:
    """They wrote `{app}/{user}/{session}/{name}/{version}`: a line of JSON, then the payload."""
    text = b'{"part":{},"payload":"text","payloadBytes":3,"createTime":5.5,"customMetadata":{"k":1}}\nold'
    image = b'{"part":{"inlineData":{"mimeType":"image/png"}},"payload":"inlineData","payloadBytes":2,"createTime":6.5}\n\n!'
    for name, content in (
        ("concierge/ann/s-7/a/b/0", text),
        ("concierge/ann/s-7/a/b/1", image),
        ("concierge/ann/user/user:profile/0", text),
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    assert await artifact_service.list_artifact_keys(**_WHERE) == ["a/b", "user:profile"]
    assert await artifact_service.load_artifact(**_WHERE, filename="a/b", version=0) == Part(text="old")
    newest = await artifact_service.load_artifact(**_WHERE, filename="a/b")
    assert newest == Part(inline_data=Blob(data=b"\n!", mime_type="image/png"))
    known = await artifact_service.get_artifact_version(**_WHERE, filename="a/b", version=0)
    assert known is not None
    assert (known.create_time, known.custom_metadata) == (5.5, {"k": 1})
    assert os.listdir(folder) == ["apps"]


async def test_nothing_is_written_outside_the_folder(artifact_service: BaseArtifactService, folder: Path) -> None:
    outside = folder.parent.parent
    for bad in ("..", "/etc/passwd", "a/../../b", "../../../b", "..\\..\\b", "%2e%2e/%2e%2e/b"):
        for field in ("app_name", "user_id", "session_id", "filename"):
            where: JsonObject = {**_WHERE, "filename": "a", field: bad}
            try:
                await artifact_service.save_artifact(**where, artifact=Part(text="x"))
            except InvalidRequest:
                pass
    assert [name for name in _files_under(outside) if not name.startswith("outer/arti facts/")] == []


async def test_canonical_uri_is_adk_s_reference(artifact_service: BaseArtifactService, folder: Path) -> None:
    """The absolute folders of the server are no business of its clients."""
    await artifact_service.save_artifact(**_WHERE, filename="größe 100%", artifact=Part(text="x"))
    known = await artifact_service.get_artifact_version(**_WHERE, filename="größe 100%")
    assert known is not None
    assert str(folder) not in unquote(known.canonical_uri)
    assert unquote(known.canonical_uri) == (
        "artifact://apps/concierge/users/ann/sessions/s-7/artifacts/größe 100%/versions/0"
    )


async def test_deleting_leaves_no_empty_folders(artifact_service: BaseArtifactService, folder: Path) -> None:
    await artifact_service.save_artifact(**_WHERE, filename="a/b/c", artifact=Part(text="x"))
    await artifact_service.delete_artifact(**_WHERE, filename="a/b/c")
    assert os.listdir(folder) == []


async def test_a_second_service_sees_what_the_first_saved(artifact_service: BaseArtifactService, folder: Path) -> None:
    await artifact_service.save_artifact(**_WHERE, filename="a", artifact=Part(text="x"))
    assert await FileArtifactService(folder).load_artifact(**_WHERE, filename="a") == Part(text="x")


async def test_unfinished_and_foreign_files_are_not_listed(artifact_service: BaseArtifactService, folder: Path) -> None:
    await artifact_service.save_artifact(**_WHERE, filename="a", artifact=Part(text="x"))
    for stray in ("a/versions/.1.pending/a", "a/versions/01/a", "a/versions/latest/a", "b/notes.txt"):
        (folder / _SESSION / stray).parent.mkdir(parents=True, exist_ok=True)
        (folder / _SESSION / stray).write_bytes(b"{")
    assert await artifact_service.list_artifact_keys(**_WHERE) == ["a"]
    assert await artifact_service.list_versions(**_WHERE, filename="a") == [0]
    assert await artifact_service.save_artifact(**_WHERE, filename="a", artifact=Part(text="y")) == 1


@pytest.mark.parametrize("damage", [b"", b"[]", b'{"version":0', b"\xff\n"])
async def test_damaged_metadata_is_a_storage_error(
    artifact_service: BaseArtifactService, folder: Path, damage: bytes
) -> None:
    await artifact_service.save_artifact(**_WHERE, filename="a", artifact=Part(text="x"))
    (folder / _SESSION / "a/versions/0/metadata.json").write_bytes(damage)
    with pytest.raises(StorageError):
        await artifact_service.load_artifact(**_WHERE, filename="a")
    with pytest.raises(StorageError):
        await artifact_service.get_artifact_version(**_WHERE, filename="a")


async def test_a_cut_off_payload_is_a_storage_error(artifact_service: BaseArtifactService, folder: Path) -> None:
    await artifact_service.save_artifact(**_WHERE, filename="a", artifact=Part(text="0123456789"))
    os.truncate(folder / _SESSION / "a/versions/0/a", 9)
    with pytest.raises(StorageError, match="not whole"):
        await artifact_service.load_artifact(**_WHERE, filename="a")


async def test_a_folder_that_fails_is_a_storage_error(tmp_path: Path) -> None:
    service = FileArtifactService(tmp_path / "artifacts")
    (tmp_path / "artifacts" / "apps").write_text("a file where a folder should be")
    with pytest.raises(StorageError) as caught:
        await service.save_artifact(**_WHERE, filename="a", artifact=Part(text="x"))
    assert caught.value.operation == "Saving an artifact"
    assert str(tmp_path) not in caught.value.reason


async def test_an_upload_that_breaks_off_leaves_nothing(artifact_service: BaseArtifactService, folder: Path) -> None:
    with pytest.raises(ConnectionError):
        await artifact_service.upload_artifact(**_WHERE, filename="a", chunks=_breaking(), mime_type="a/b")
    assert _files_under(folder) == []
    artifact_service.limit_bytes = 3
    with pytest.raises(TooLarge):
        await artifact_service.upload_artifact(**_WHERE, filename="a", chunks=_breaking(), mime_type="a/b")
    assert os.listdir(folder) == []


async def _breaking() -> AsyncIterator[bytes]:
    yield b"1234"
    raise ConnectionError


def _write(home: Path, name: str, payload: bytes, **metadata: str) -> None:
    home.mkdir(parents=True)
    (home / name).write_bytes(payload)
    (home / "metadata.json").write_text(
        json.dumps(
            {
                "version": int(home.name),
                "canonicalUri": (home / name).as_uri(),
                "customMetadata": {},
                "createTime": 1795375832.5,
                "fileName": name,
                **metadata,
            }
        )
    )


def _files_under(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
