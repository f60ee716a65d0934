"""Values that were changed or moved are refused with a clear error, and wrong keys before a server starts."""

from __future__ import annotations

import asyncio
import base64
import sqlite3
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import httpx
import obstore
import pytest
from obstore.store import MemoryStore

from greenroom.agents.llm_agent import LlmAgent
from greenroom.artifacts.encrypted import EncryptedArtifactService
from greenroom.artifacts.files import FileArtifactService
from greenroom.artifacts.object_store import ObjectStoreArtifactService
from greenroom.encryption.local_keys import LocalKeys, add_key, keys_of_file
from greenroom.encryption.streams import HEADER_BYTES, PIECE_BYTES
from greenroom.errors import DecryptionFailed, NotOffered
from greenroom.memory.sqlite import SqliteMemoryService
from greenroom.records.content import Part
from greenroom.server.application import create_app
from greenroom.server.settings import EncryptionSettings, ServerSettings
from greenroom.sessions.sqlite import SqliteSessionService
from greenroom.testing.scripted_model import ScriptedModel
from tests.processes import END_WITH_PARENT

_SESSION = "/apps/desk/users/ann/sessions"
_ARTIFACT: dict[str, Any] = {"app_name": "a", "user_id": "u", "session_id": "s"}


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "greenroom.db"


async def test_a_flipped_bit_is_refused_by_500(database: Path, key_file: str) -> None:
    async with _served(database, key_file) as client:
        assert (await _run(client, "s-1")).status_code == 200
        _change(database, "UPDATE events SET data = ? WHERE seq = 1", _flipped(_value(database, "s-1", 1)))
        _change(database, "UPDATE user_state SET value = ?", _flipped(_read(database, "SELECT value FROM user_state")))
    async with _served(database, key_file) as client:
        reply = await client.get(f"{_SESSION}/s-1")
        assert reply.status_code == 500
        assert reply.json()["type"].endswith("decryption-failed")
        assert "can't be decrypted" in reply.json()["detail"]
        assert "Traceback" not in reply.text
        assert (await client.get(_SESSION)).status_code == 500
        assert (await client.get("/health")).status_code == 200


async def test_values_that_changed_places_are_refused(database: Path, key_file: str) -> None:
    async with _served(database, key_file) as client:
        for session in ("s-1", "s-2"):
            assert (await _run(client, session)).status_code == 200
        first, second = _value(database, "s-1", 1), _value(database, "s-2", 1)
        for session, value in (("s-1", second), ("s-2", first)):
            _change(database, f"UPDATE events SET data = ? WHERE seq = 1 AND session = {_number(session)}", value)
    async with _served(database, key_file) as client:
        for session in ("s-1", "s-2"):
            assert (await client.get(f"{_SESSION}/{session}")).status_code == 500


@pytest.mark.parametrize("place", ["header", "first piece", "last piece", "cut", "exchanged"])
async def test_changed_artifacts_are_refused(place: str, tmp_path: Path, keys: LocalKeys) -> None:
    service = EncryptedArtifactService(FileArtifactService(tmp_path / "artifacts"), keys)
    name: dict[str, Any] = {**_ARTIFACT, "filename": "n"}
    for version in range(2):
        part = Part.from_bytes(data=bytes([version]) * (3 * PIECE_BYTES), mime_type="x/y")
        await service.save_artifact(**name, artifact=part)
    _damage(tmp_path / "artifacts", place)
    with pytest.raises((DecryptionFailed, Exception), match=r"can't be decrypted|is not whole"):
        await service.load_artifact(**name, version=0)
    content = None
    with pytest.raises((DecryptionFailed, Exception), match=r"can't be decrypted|is not whole"):
        content = await service.download_artifact(**name, version=0)
        assert content is not None
        async for _ in content.chunks:
            pass


async def test_nothing_is_readable_in_an_object_store(keys: LocalKeys) -> None:
    store = MemoryStore()
    service = EncryptedArtifactService(ObjectStoreArtifactService(store), keys)
    name: dict[str, Any] = {**_ARTIFACT, "filename": "n"}
    await service.save_artifact(**name, artifact=Part(text="zebrafish"), custom_metadata={"about": "zebrafish"})
    objects = [meta["path"] async for some in obstore.list(store) for meta in some]
    assert len(objects) == 3  # the artifact, and two data keys
    for path in objects:
        found = await obstore.get_async(store, path)
        assert b"zebrafish" not in bytes(await found.bytes_async())
        assert "zebrafish" not in str(found.attributes)
    assert await service.load_artifact(**name) == Part(text="zebrafish")
    with pytest.raises(NotOffered):
        await service.signed_url(**name)


@pytest.mark.slow
@pytest.mark.parametrize("given", ["none", "another", "missing"])
async def test_a_server_does_not_start_without_its_keys(given: str, tmp_path: Path, key_file: str) -> None:
    data = tmp_path / ".greenroom"
    data.mkdir()
    service = SqliteSessionService(data / "greenroom.db", keys=keys_of_file(key_file))
    await service.create_session(app_name="a", user_id="u")
    await service.close()
    before = _contents(data)
    other = tmp_path / "other.toml"
    if given == "another":
        add_key(str(other))
    options = [] if given == "none" else ["--encryption-keys", other.as_uri()]
    process = await asyncio.create_subprocess_exec(
        *END_WITH_PARENT, sys.executable, "-m", "greenroom", "serve", str(tmp_path), "--port", "0", *options,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    async with asyncio.timeout(60):
        output, _ = await process.communicate()
    text = output.decode()
    reason = {"none": "set encryption.keys", "another": "not the one that encrypted", "missing": "can't be read"}
    assert process.returncode != 0
    assert reason[given] in text, text
    assert "Traceback" not in text, text
    assert _contents(data) == before


@asynccontextmanager
async def _served(database: Path, key_file: str) -> AsyncGenerator[httpx.AsyncClient]:
    keys = keys_of_file(key_file)
    model = ScriptedModel(lambda _: "It is noted.")
    app = create_app(
        agents=[LlmAgent(name="desk", model=model)],
        session_service=SqliteSessionService(database, keys=keys),
        memory_service=SqliteMemoryService(database, keys=keys),
        settings=ServerSettings(encryption=EncryptionSettings(keys=f"file://{key_file}"), auto_create_session=True),
    )
    async with app.lifespan():
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            yield client


async def _run(client: httpx.AsyncClient, session: str) -> httpx.Response:
    return await client.post(
        "/run",
        json={
            "appName": "desk",
            "userId": "ann",
            "sessionId": session,
            "newMessage": {"role": "user", "parts": [{"text": f"hello from {session}"}]},
            "stateDelta": {"user:name": "zebrafish"},
        },
    )


def _number(session: str) -> str:
    return f"(SELECT number FROM sessions WHERE id = '{session}')"


def _value(database: Path, session: str, seq: int) -> str:
    return _read(database, f"SELECT data FROM events WHERE seq = {seq} AND session = {_number(session)}")


def _read(database: Path, query: str) -> str:
    with closing(sqlite3.connect(database)) as connection:
        return connection.execute(query).fetchone()[0]


def _change(database: Path, statement: str, value: str) -> None:
    with closing(sqlite3.connect(database)) as connection, connection:
        assert connection.execute(statement, (value,)).rowcount > 0


def _flipped(text: str) -> str:
    """Changes one bit in the middle of an encrypted value."""
    header, _, encoded = text.rpartition(":")
    data = bytearray(base64.b64decode(encoded))
    data[len(data) // 2] ^= 1
    return f"{header}:{base64.b64encode(data).decode()}"


def _damage(folder: Path, place: str) -> None:
    first, second = sorted(folder.rglob("versions/*/n"))[-2:]
    data = bytearray(first.read_bytes())
    if place == "exchanged":
        data = bytearray(second.read_bytes())
    elif place == "cut":
        del data[-(PIECE_BYTES + 16) :]
    else:
        data[{"header": 3, "first piece": HEADER_BYTES + 5, "last piece": -1}[place]] ^= 1
    first.write_bytes(data)


def _contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("greenroom.db") if path.is_file()}
