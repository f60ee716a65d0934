"""A URI names the store; obstore is loaded only for those that need it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from greenroom.artifacts.from_uri import artifact_service_from_uri
from greenroom.artifacts.in_memory import InMemoryArtifactService
from greenroom.artifacts.object_store import ObjectStoreArtifactService
from greenroom.errors import InvalidRequest
from greenroom.records.base import JsonObject
from greenroom.records.content import Part

_WHERE: JsonObject = {"app_name": "concierge", "user_id": "ann", "session_id": "s-7", "filename": "a"}


def test_memory_names_the_store_of_this_process() -> None:
    assert isinstance(artifact_service_from_uri("memory://"), InMemoryArtifactService)


async def test_file_names_a_folder_which_is_made(tmp_path: Path) -> None:
    folder = tmp_path / "new one" / "ü"
    service = artifact_service_from_uri(folder.as_uri())
    await service.save_artifact(**_WHERE, artifact=Part(text="x"))
    assert (folder / "apps/concierge/users/ann/sessions/s-7/artifacts/a/versions/0/a").is_file()


@pytest.mark.parametrize(
    ("uri", "base"),
    [
        ("s3://bucket/pre/fix", "s3://bucket/pre/fix"),
        ("s3://bucket", "s3://bucket"),
        ("gs://bucket/prefix/", "gs://bucket/prefix"),
        ("az://container/prefix", "az://container/prefix"),
    ],
)
def test_clouds_are_known(uri: str, base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    service = artifact_service_from_uri(uri)
    assert isinstance(service, ObjectStoreArtifactService)
    assert service._base_uri == base


@pytest.mark.parametrize("uri", ["", "memory", "redis://x", "https://example.org", "memory://x", "/tmp/x", "s3:bucket"])
def test_others_are_refused_with_the_list_of_what_is_known(uri: str) -> None:
    with pytest.raises(InvalidRequest, match=r"memory://, file:///folder, s3://.*, gs://.*, az://"):
        artifact_service_from_uri(uri)


@pytest.mark.parametrize("uri", ["file://relative/path", "file://", "s3://", "file:///proc/nowhere/x"])
def test_what_can_not_be_used_is_refused(uri: str) -> None:
    with pytest.raises(InvalidRequest):
        artifact_service_from_uri(uri)


def test_obstore_is_loaded_only_for_an_object_store() -> None:
    code = (
        "import sys; from greenroom.artifacts.from_uri import artifact_service_from_uri as named; named('memory://');"
        "named(sys.argv[1]); assert 'obstore' not in sys.modules; named('s3://b'); assert 'obstore' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, Path.cwd().joinpath("src").as_uri()], check=True, timeout=30)
