"""Keys of files and variables, data keys that servers share, and stores that can't be encrypted."""

from __future__ import annotations

import asyncio
import base64
import os
import sqlite3
import stat
from array import array
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.embeddings.embeddings import BaseEmbeddings
from greenroom.encryption import key_ring
from greenroom.encryption.codec import EncryptingCodec
from greenroom.encryption.from_uri import key_provider_from_uri
from greenroom.encryption.key_provider import KeyProvider, WrappedKey
from greenroom.encryption.key_ring import KeyRing
from greenroom.encryption.local_keys import LocalKeys, add_key, keys_of_file, keys_of_variable
from greenroom.errors import ConfigurationError, DecryptionFailed, InvalidRequest, KeyRefused
from greenroom.memory.from_uri import memory_service_from_uri
from greenroom.memory.sqlite import SqliteMemoryService
from greenroom.records.content import Content, Part
from greenroom.records.listings import MemoryEntry
from greenroom.server.application import create_app
from greenroom.server.settings import EncryptionSettings, ServerSettings
from greenroom.sessions.from_uri import session_service_from_uri
from greenroom.sessions.sqlite import SqliteSessionService
from greenroom.sqlite.key_store import SqliteKeyStore

_KEY = base64.b64encode(bytes(range(32))).decode()


async def test_a_file_gets_a_new_current_key_beside_the_earlier_ones(tmp_path: Path) -> None:
    path = str(tmp_path / "keys.toml")
    first = add_key(path)
    keys = keys_of_file(path)
    wrapped = await keys.wrap(bytes(32))
    second = add_key(path)
    assert first != second == await keys.current_key_id()
    assert await keys.unwrap(wrapped) == bytes(32)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


async def test_the_first_key_of_a_variable_is_current(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEYS", f"old:{_KEY}")
    wrapped = await keys_of_variable("KEYS").wrap(bytes(32))
    monkeypatch.setenv("KEYS", f"new:{base64.b64encode(bytes(32)).decode()}, old:{_KEY}")
    assert await keys_of_variable("KEYS").current_key_id() == "new"
    assert await keys_of_variable("KEYS").unwrap(wrapped) == bytes(32)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "can't be read"),
        ("current =", "not valid TOML"),
        ('current = "a"', "needs `current`"),
        (f'current = "b"\n[keys]\na = "{_KEY}"', "needs `current`"),
        ('current = "a"\n[keys]\na = "c2hvcnQ="', "32 bytes in base64"),
        ('current = "a"\n[keys]\na = 7', "32 bytes in base64"),
    ],
)
async def test_a_file_without_valid_keys_is_refused(text: str | None, reason: str, tmp_path: Path) -> None:
    path = str(tmp_path / "keys.toml")
    if text is not None:
        _write(path, text)
    with pytest.raises(KeyRefused, match=reason) as refused:
        await keys_of_file(path).current_key_id()
    assert "c2hvcnQ" not in str(refused.value)


def test_unknown_keys_are_refused() -> None:
    for uri in ("vault://x", "file://host/path", "env://", "keys.toml"):
        with pytest.raises(InvalidRequest):
            key_provider_from_uri(uri)
    for uri in (
        "python://no.such.module:keys",
        "python://greenroom.errors:KeyRefused.__name__",
        "python://json:loads.x",
    ):
        with pytest.raises(ConfigurationError):
            key_provider_from_uri(uri)
    assert isinstance(key_provider_from_uri("python://tests.encryption.test_keys:own_keys"), _Reversed)


async def test_a_server_learns_the_data_keys_of_another(tmp_path: Path, keys: LocalKeys) -> None:
    store = SqliteKeyStore(str(tmp_path / "db"))
    ours, others = (EncryptingCodec(KeyRing(store, keys)) for _ in range(2))
    assert ours.encode(b"1", "t", 1).startswith("enc1:1:")
    assert others.decode(ours.encode(b"1", "t", 1), "t", 1) == b"1"
    assert await others.ring.add_data_key() == 2
    value = others.encode(b"2", "t", 1)
    assert value.startswith("enc1:2:")
    assert ours.decode(value, "t", 1) == b"2"
    assert ours.encode(b"3", "t", 1).startswith("enc1:2:")
    assert ours.digest("word", "t") == others.digest("word", "t") != ours.digest("word", "u")
    with pytest.raises(DecryptionFailed):
        ours.decode(value.replace("enc1:2:", "enc1:9:"), "t", 1)
    with pytest.raises(DecryptionFailed):
        ours.decode('{"plain": "text"}', "t", 1)


async def test_a_data_key_gets_a_successor_in_time(
    tmp_path: Path, keys: LocalKeys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_ring, "BLOCK", 100)
    monkeypatch.setattr(key_ring, "MAX_VALUES", 300)
    codec = EncryptingCodec(KeyRing(SqliteKeyStore(str(tmp_path / "db")), keys))
    counts: dict[str, int] = {}
    for _ in range(1000):
        key = codec.encode(b"x", "t").split(":")[1]
        counts[key] = counts.get(key, 0) + 1
        codec.ring.close()  # waits for the refresh in its thread
    assert len(counts) >= 3
    assert max(counts.values()) <= 300


async def test_vectors_of_memories_are_encrypted_in_sqlite(tmp_path: Path, keys: LocalKeys) -> None:
    memory = SqliteMemoryService(tmp_path / "db", embeddings=_Letters(), keys=keys)
    entries = [MemoryEntry(id=text, content=_content(text)) for text in ("aaab", "bbbz", "zzzz")]
    await memory.add_memories(app_name="a", user_id="u", memories=entries)
    found = (await memory.search_memory(app_name="a", user_id="u", query="azzz", limit=1)).memories
    assert [entry.id for entry in found] == ["zzzz"]
    await memory.close()
    with closing(sqlite3.connect(tmp_path / "db")) as connection:
        for row in connection.execute("SELECT signature, vector FROM memory_vectors"):
            assert all(value.startswith(b"enc1:1:") for value in row)


async def test_stores_that_can_not_be_encrypted_are_refused(keys: LocalKeys, key_file: str, tmp_path: Path) -> None:
    for uri in ("firestore://project/database", "agentengine://123"):
        with pytest.raises(KeyRefused, match="can't be encrypted"):
            session_service_from_uri(uri, keys=keys)
        with pytest.raises(KeyRefused, match="can't be encrypted"):
            memory_service_from_uri(uri, keys=keys)
    with pytest.raises(KeyRefused, match="encrypted vectors"):
        memory_service_from_uri("postgresql://host/database", embeddings=_Letters(), keys=keys)

    settings = ServerSettings(encryption=EncryptionSettings(keys=f"file://{key_file}"))
    plain = SqliteSessionService(tmp_path / "db")
    app = create_app(agents=[LlmAgent(name="desk")], session_service=plain, settings=settings)
    with pytest.raises(KeyRefused, match="SqliteSessionService has no keys"):
        async with app.lifespan():
            pass
    assert not _exists(tmp_path / "db")


class _Letters(BaseEmbeddings):
    """Counts letters: texts with the same letters are near."""

    def __init__(self) -> None:
        super().__init__("letters")

    async def embed_batch(self, texts: Sequence[str], *, is_query: bool = False) -> list[array[float]]:
        return [array("f", [text.count(letter) - 0.5 for letter in "abz"]) for text in texts]


class _Reversed(KeyProvider):
    async def current_key_id(self) -> str:
        return "1"

    async def wrap(self, data_key: bytes) -> WrappedKey:
        return WrappedKey("1", data_key[::-1])

    async def unwrap(self, wrapped: WrappedKey) -> bytes:
        await asyncio.sleep(0)
        return wrapped.data[::-1]


def own_keys() -> KeyProvider:
    return _Reversed()


def _content(text: str) -> Content:
    return Content(role="user", parts=[Part(text=text)])


def _write(path: str, text: str) -> None:
    Path(path).write_text(text)


def _exists(path: Path) -> bool:
    return path.exists()
