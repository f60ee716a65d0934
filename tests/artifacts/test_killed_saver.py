"""A saver that is killed leaves whole versions and nothing else that shows."""

from __future__ import annotations

import asyncio
import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from greenroom.artifacts.files import FileArtifactService
from greenroom.records.base import JsonObject
from tests.processes import END_WITH_PARENT

_WHERE: JsonObject = {"app_name": "concierge", "user_id": "ann", "session_id": "s-7", "filename": "a/log"}
_SAVERS = 2
_ROUNDS = 5

_SAVE_FOREVER = """
import asyncio, hashlib, os, sys
from greenroom.artifacts.files import FileArtifactService
from greenroom.records.content import Part

async def main():
    service = FileArtifactService(sys.argv[1])
    while True:
        data = os.urandom(1 << 10) * 8000
        digest = hashlib.sha256(data).hexdigest()
        version = await service.save_artifact(
            app_name="concierge", user_id="ann", session_id="s-7", filename="a/log",
            artifact=Part.from_bytes(data=data, mime_type="application/octet-stream"),
            custom_metadata={"sha256": digest},
        )
        print(version, digest, flush=True)

asyncio.run(main())
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    with TemporaryDirectory() as name:
        yield Path(name)


@pytest.mark.kill
async def test_every_acknowledged_version_is_whole_and_none_is_torn(folder: Path) -> None:
    acknowledged: dict[int, str] = {}
    async with asyncio.timeout(120):
        for _ in range(_ROUNDS):
            saved = await _save_until_killed(folder)
            assert acknowledged.keys().isdisjoint(saved)
            acknowledged.update(saved)
    assert _unfinished(folder), "no saver was killed in the middle of a write, so this run shows nothing"

    service = FileArtifactService(folder)
    versions = await service.list_versions(**_WHERE)
    assert versions == list(range(len(versions)))
    assert acknowledged.keys() <= set(versions)
    for version in versions:
        digest = await _digest(service, version)
        assert digest == acknowledged.get(version, digest)
    names = await service.list_artifact_keys(app_name="concierge", user_id="ann", session_id="s-7")
    assert names == ["a/log"]


async def _save_until_killed(folder: Path) -> dict[int, str]:
    """Versions and digests that the savers reported before they were killed, at least one of them while it wrote."""
    command = (*END_WITH_PARENT, sys.executable, "-c", _SAVE_FOREVER, str(folder))
    savers = [await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE) for _ in range(_SAVERS)]
    lines: list[bytes] = []
    for saver in savers:
        assert saver.stdout is not None
        lines.append(await saver.stdout.readline())
    left_by_earlier_rounds = _unfinished(folder)
    while _unfinished(folder) <= left_by_earlier_rounds:
        await asyncio.sleep(0)
    for saver in savers:
        saver.kill()
    for saver in savers:
        lines += (await saver.communicate())[0].splitlines(keepends=True)
    acknowledged = [line.split() for line in lines if line.endswith(b"\n")]
    assert len({version for version, _ in acknowledged}) == len(acknowledged)
    return {int(version): digest.decode() for version, digest in acknowledged}


def _unfinished(folder: Path) -> set[str]:
    """Versions are written to a folder of their own, which is renamed when they are whole."""
    return {path.name for path in folder.glob(".staging-*")}


async def _digest(service: FileArtifactService, version: int) -> str:
    """The digest of what is stored, which must be the one it was saved with."""
    part = await service.load_artifact(**_WHERE, version=version)
    known = await service.get_artifact_version(**_WHERE, version=version)
    assert part is not None
    assert part.inline_data is not None
    assert known is not None
    digest = hashlib.sha256(part.inline_data.data or b"").hexdigest()
    assert digest == known.custom_metadata["sha256"]
    return digest
