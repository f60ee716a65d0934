"""Encrypts the artifacts of any store.

The store keeps a version's encrypted content as binary data, and what describes it (the MIME type, the custom metadata,
the other fields of its part), encrypted as well, in the custom metadata. Names stay readable, as app, user and session
do: they are the keys in the store. The data keys, which are wrapped, are artifacts of an app of their own.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import AsyncIterable, AsyncIterator, Sequence

import msgspec

from greenroom.artifacts.layout import (
    Description,
    artifact_path,
    describe_upload,
    put_together,
    take_apart,
)
from greenroom.artifacts.service import ArtifactContent, BaseArtifactService
from greenroom.encryption.key_provider import KeyProvider, WrappedKey
from greenroom.encryption.key_ring import INDEX_KEY, KeyRing, KeyStore, StoredKey, StoredKeys
from greenroom.encryption.streams import (
    HEADER_BYTES,
    SALT_BYTES,
    content_key,
    decrypt_chunks,
    decrypt_content,
    encrypt_chunks,
    encrypt_content,
    key_id_of,
    new_header,
    plain_size,
)
from greenroom.errors import DecryptionFailed, KeyRefused, NotOffered
from greenroom.records import wire
from greenroom.records.base import JsonObject, Record
from greenroom.records.content import Part
from greenroom.records.listings import ArtifactVersion

KEYS_APP = "greenroom-encryption"
"""The app, user and session of the artifacts that hold the data keys."""

_DESCRIPTION = "greenroomEncrypted"
_BINARY = "application/octet-stream"
_REFRESH_SECONDS = 300.0

_KEYS: JsonObject = {"app_name": KEYS_APP, "user_id": KEYS_APP, "session_id": KEYS_APP}


class EncryptedArtifactService(BaseArtifactService):
    """Wraps a store, which it closes.

    There are no signed URLs: who downloads from the store itself has no keys.
    """

    def __init__(self, store: BaseArtifactService, keys: KeyProvider) -> None:
        self._store = store
        self.ring = KeyRing(ArtifactKeyStore(store), keys, refresh_seconds=_REFRESH_SECONDS)

    @property
    def is_encrypted(self) -> bool:
        return True

    async def load_keys(self) -> None:
        """Reads the keys of the store, or makes the first ones. Raises KeyRefused, StorageError."""
        await self.ring.load()

    async def save_artifact(
        self,
        *,
        app_name: str,
        user_id: str,
        session_id: str,
        filename: str,
        artifact: Part,
        custom_metadata: JsonObject | None = None,
    ) -> int:
        key = _key(app_name, user_id, session_id, filename)
        description, payload = take_apart(artifact, custom_metadata, limit_bytes=self.limit_bytes)
        header, own_key = await self._new_key(filename, key)
        # In a thread: a large artifact takes a while.
        encrypted = await asyncio.to_thread(encrypt_content, own_key, payload)
        return await self._store.save_artifact(
            **key,
            artifact=Part.from_bytes(data=header + encrypted, mime_type=_BINARY),
            custom_metadata=await self._encrypted(description, header, key),
        )

    async def upload_artifact(
        self,
        *,
        app_name: str,
        user_id: str,
        session_id: str,
        filename: str,
        chunks: AsyncIterable[bytes],
        mime_type: str,
        custom_metadata: JsonObject | None = None,
    ) -> int:
        key = _key(app_name, user_id, session_id, filename)
        header, own_key = await self._new_key(filename, key)

        async def encrypted() -> AsyncIterator[bytes]:
            yield header
            async for piece in encrypt_chunks(own_key, self._limited(chunks)):
                yield piece

        return await self._store.upload_artifact(
            **key,
            chunks=encrypted(),
            mime_type=_BINARY,
            custom_metadata=await self._encrypted(describe_upload(mime_type, custom_metadata), header, key),
        )

    async def load_artifact(
        self, *, app_name: str, user_id: str, session_id: str, filename: str, version: int | None = None
    ) -> Part | None:
        key = _key(app_name, user_id, session_id, filename)
        found = await self._store.get_artifact_version(**key, version=version)
        if found is None:
            return None
        described = await self._described(found, key)
        part = await self._store.load_artifact(**key, version=found.version)
        if described is None or part is None:
            return part

        content = b"" if part.inline_data is None else part.inline_data.data or b""
        own_key = await self._key_of(content[:HEADER_BYTES], described, key)
        payload = await asyncio.to_thread(decrypt_content, own_key, content[HEADER_BYTES:], _place(key))
        return put_together(described.description, payload)

    async def download_artifact(
        self, *, app_name: str, user_id: str, session_id: str, filename: str, version: int | None = None
    ) -> ArtifactContent | None:
        key = _key(app_name, user_id, session_id, filename)
        content = await self._store.download_artifact(**key, version=version)
        if content is None:
            return None
        described = await self._described(content.version, key)
        if described is None:
            return content

        async def decrypted() -> AsyncIterator[bytes]:
            header, rest = await _split(content.chunks)
            own_key = await self._key_of(header, described, key)
            async for piece in decrypt_chunks(own_key, rest, _place(key)):
                yield piece

        version_found = _version(content.version, described)
        return ArtifactContent(version_found, plain_size(content.size), decrypted())

    async def get_artifact_version(
        self, *, app_name: str, user_id: str, session_id: str, filename: str, version: int | None = None
    ) -> ArtifactVersion | None:
        key = _key(app_name, user_id, session_id, filename)
        found = await self._store.get_artifact_version(**key, version=version)
        described = None if found is None else await self._described(found, key)
        return found if found is None or described is None else _version(found, described)

    async def list_artifact_keys(self, *, app_name: str, user_id: str, session_id: str) -> list[str]:
        return await self._store.list_artifact_keys(app_name=app_name, user_id=user_id, session_id=session_id)

    async def list_versions(self, *, app_name: str, user_id: str, session_id: str, filename: str) -> list[int]:
        return await self._store.list_versions(**_key(app_name, user_id, session_id, filename))

    async def delete_artifact(self, *, app_name: str, user_id: str, session_id: str, filename: str) -> None:
        await self._store.delete_artifact(**_key(app_name, user_id, session_id, filename))

    async def delete_user(self, *, app_name: str, user_id: str) -> None:
        await self._store.delete_user(app_name=app_name, user_id=user_id)

    async def signed_url(
        self,
        *,
        app_name: str,
        user_id: str,
        session_id: str,
        filename: str,
        version: int | None = None,
        expires_seconds: float = 3600,
    ) -> str | None:
        raise NotOffered("Encrypted artifacts have no signed URLs: the store could only hand out encrypted data")

    async def close(self) -> None:
        await self._store.close()

    async def _new_key(self, filename: str, key: dict[str, str]) -> tuple[bytes, bytes]:
        """The header of a new content, and its key. Raises InvalidRequest for names and ids that aren't valid."""
        artifact_path(key["app_name"], key["user_id"], key["session_id"], filename)
        key_id, data_key = await self.ring.current_data_key()
        header = new_header(key_id)
        return header, content_key(data_key, header, _place(key))

    async def _encrypted(self, description: Description, header: bytes, key: dict[str, str]) -> JsonObject:
        """The custom metadata that describes a content with this header."""
        described = _Described(description=description, salt=header[-SALT_BYTES:].hex())
        own_header, own_key = await self._new_key(key["filename"], key)
        sealed = own_header + encrypt_content(own_key, wire.encode(described))
        return {_DESCRIPTION: base64.b64encode(sealed).decode()}

    async def _described(self, version: ArtifactVersion, key: dict[str, str]) -> _Described | None:
        """None for a version that was stored before encryption was turned on. Raises DecryptionFailed."""
        text = version.custom_metadata.get(_DESCRIPTION)
        if text is None and await self.ring.accepts_plaintext():
            return None
        try:
            sealed = base64.b64decode(text, validate=True) if isinstance(text, str) else b""
            own_key = await self._key_of(sealed[:HEADER_BYTES], None, key)
            return _read_described(decrypt_content(own_key, sealed[HEADER_BYTES:], _place(key)))
        except (binascii.Error, msgspec.DecodeError):
            raise DecryptionFailed(*_place(key)) from None

    async def _key_of(self, header: bytes, described: _Described | None, key: dict[str, str]) -> bytes:
        """The key of a content, which must be the one that is described."""
        key_id = key_id_of(header)
        data_key = None if key_id is None else await self.ring.data_key(key_id)
        if data_key is None or (described is not None and described.salt != header[-SALT_BYTES:].hex()):
            raise DecryptionFailed(*_place(key))
        return content_key(data_key, header, _place(key))


class _Described(Record, kw_only=True):
    """The encrypted part of a version's custom metadata."""

    description: Description

    salt: str
    """That of the content, so that it can't be exchanged for another version's."""


_read_described = wire.decoder(_Described)


def _key(app_name: str, user_id: str, session_id: str, filename: str) -> dict[str, str]:
    return {"app_name": app_name, "user_id": user_id, "session_id": session_id, "filename": filename}


def _place(key: dict[str, str]) -> tuple[str, ...]:
    scope, filename = artifact_path(key["app_name"], key["user_id"], key["session_id"], key["filename"])
    return "artifacts", scope.app_name, scope.user_id, scope.session_id or "", filename


def _version(version: ArtifactVersion, described: _Described) -> ArtifactVersion:
    return described.description.as_version(version.version, version.canonical_uri)


async def _split(chunks: AsyncIterator[bytes]) -> tuple[bytes, AsyncIterator[bytes]]:
    """The header, and the chunks after it."""
    start = b""
    async for chunk in chunks:
        start += chunk
        if len(start) >= HEADER_BYTES:
            break

    async def rest() -> AsyncIterator[bytes]:
        yield start[HEADER_BYTES:]
        async for chunk in chunks:
            yield chunk

    return start[:HEADER_BYTES], rest()


class _KeyRecord(Record, kw_only=True):
    """A wrapped data key, as the content of an artifact."""

    key_id: str
    wrapped: str
    created_at: float
    allows_plaintext: bool = False
    is_rewrapped: bool = False


_read_key = wire.decoder(_KeyRecord)


class ArtifactKeyStore(KeyStore):
    """The data keys of a store of artifacts.

    Of the versions of a key's artifact, the newest counts that has wrapped the key again, else the first: others are of
    servers that wanted to make the same key, and were not the first.
    """

    def __init__(self, store: BaseArtifactService) -> None:
        self.name = "the artifacts"
        self._store = store

    async def read(self) -> StoredKeys:
        keys: list[StoredKey] = []
        allows_plaintext = False
        for name in await self._store.list_artifact_keys(**_KEYS):
            record = await self._read_one(name)
            if record is None:
                continue
            wrapped = WrappedKey(record.key_id, base64.b64decode(record.wrapped))
            keys.append(StoredKey(int(name), wrapped, record.created_at))
            allows_plaintext |= record.allows_plaintext
        return StoredKeys(sorted(keys), allows_plaintext)

    async def _read_one(self, name: str) -> _KeyRecord | None:
        for version in reversed(await self._store.list_versions(**_KEYS, filename=name)):
            part = await self._store.load_artifact(**_KEYS, filename=name, version=version)
            if part is None or part.text is None:
                continue
            try:
                record = _read_key(part.text.encode())
            except msgspec.DecodeError:
                raise KeyRefused(f"the artifact {name} of {KEYS_APP} holds no data key") from None
            if record.is_rewrapped or version == 0:
                return record
        return None

    async def add(self, keys: Sequence[StoredKey]) -> None:
        allows_plaintext = not await self._store.is_empty()
        for key in keys:
            await self._save(key, allows_plaintext=key.id == INDEX_KEY and allows_plaintext)

    async def reserve(self, key_id: int, values: int) -> int:
        return 0  # contents have keys of their own

    async def rewrap(self, key_id: int, before: WrappedKey, after: WrappedKey) -> bool:
        stored = await self.read()
        for key in stored.keys:
            if key.id == key_id and key.wrapped == before:
                changed = key._replace(wrapped=after)
                is_first = key_id == INDEX_KEY
                allows_plaintext = is_first and stored.allows_plaintext
                await self._save(changed, allows_plaintext=allows_plaintext, is_rewrapped=True)
                return True
        return False

    async def _save(self, key: StoredKey, *, allows_plaintext: bool, is_rewrapped: bool = False) -> None:
        record = _KeyRecord(
            key_id=key.wrapped.key_id,
            wrapped=base64.b64encode(key.wrapped.data).decode(),
            created_at=key.created_at,
            allows_plaintext=allows_plaintext,
            is_rewrapped=is_rewrapped,
        )
        part = Part(text=wire.encode(record).decode())
        await self._store.save_artifact(**_KEYS, filename=str(key.id), artifact=part)


async def has_keys(store: BaseArtifactService) -> bool:
    """True for a store whose artifacts are encrypted."""
    return bool(await store.list_artifact_keys(**_KEYS))
