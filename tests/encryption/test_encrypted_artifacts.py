"""Encrypted artifacts keep the contract, in a folder and in an object store."""

from __future__ import annotations

from pathlib import Path

import pytest
from obstore.store import MemoryStore

from greenroom.artifacts.encrypted import EncryptedArtifactService
from greenroom.artifacts.files import FileArtifactService
from greenroom.artifacts.object_store import ObjectStoreArtifactService
from greenroom.artifacts.service import BaseArtifactService
from greenroom.encryption.local_keys import LocalKeys
from greenroom.testing.contracts.artifact_service import *  # noqa: F403


@pytest.fixture(params=["folder", "object store"])
def artifact_service(request: pytest.FixtureRequest, tmp_path: Path, keys: LocalKeys) -> EncryptedArtifactService:
    if request.param == "folder":
        store: BaseArtifactService = FileArtifactService(tmp_path / "artifacts")
    else:
        store = ObjectStoreArtifactService(MemoryStore())
    return EncryptedArtifactService(store, keys)
