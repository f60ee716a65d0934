"""Artifacts in an object store: S3, Google Cloud Storage or Azure.

Each version is one object, with ADK's key (`{app}/{user}/{session}/{name}/{version}`), content type and metadata
(`adk…`), and the payload as it is. Our own description stands in the metadata, too, or, as S3 allows 2 KB of ASCII
there, in an object of its own that is written before. One conditional write decides which version it is: a crash
leaves a whole version or none. Objects of earlier releases, a line of JSON and then the payload, are read as well.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterable, AsyncIterator, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote
from uuid import uuid4
from weakref import WeakValueDictionary

import msgspec
import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import AzureStore, GCSStore, MemoryStore, S3Store, from_url

from greenroom.artifacts.by_path import ArtifactServiceByPath
from greenroom.artifacts.layout import (
    ArtifactPath,
    Description,
    PayloadField,
    artifact_key,
    artifact_path,
    encode_description,
    parse_version_key,
    put_together,
    read_description,
    scope_key,
    scopes_of,
    user_key,
    version_in,
)
from greenroom.artifacts.service import ArtifactContent
from greenroom.errors import InvalidRequest, NotOffered, StorageError
from greenroom.records.content import Blob, FileData, Part
from greenroom.records.listings import ArtifactVersion, ListArtifactsResponse
from greenroom.records.service_uri import without_password

if TYPE_CHECKING:
    from obstore import Attributes, GetResult, ObjectMeta
    from obstore.store import RetryConfig

ArtifactStore = S3Store | GCSStore | AzureStore | MemoryStore

_LAST_VERSION = 10**18 - 1
_MAX_KEY_BYTES = 1024
_MAX_DESCRIPTION_BYTES = 1400
_PARTS_AT_ONCE = 4
"""Of 5 MB each."""

_RETRIES: RetryConfig = {
    "max_retries": 1000,
    "retry_timeout": timedelta(minutes=3),
    "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=2), "base": 2},
}
"""A run waits for a store that is away for as long as obstore recommends, and continues soon after it is back. By its
own settings, obstore would give up after ten tries, and pause for up to 15 seconds."""

_DESCRIPTION = "greenroom"
_DESCRIPTION_KEY = "greenroomKey"
_PENDING = "application/x-greenroom-pending"
"""The content type of an empty object that holds a version's number until its upload is complete."""

_SEPARATE = ".description-"
_NOT_CUSTOM = {
    "content-type", "content-disposition", "content-encoding", "content-language", "cache-control", "storage-class",
    "adkfileuri", "adkfilemimetype", "adkistext", "adkdisplayname",
}  # fmt: skip
_DEFAULT_TYPE = "application/octet-stream"
_HEADER_TEXT = "".join(chr(code) for code in range(32, 127) if chr(code) != "%")


class ObjectStoreArtifactService(ArtifactServiceByPath):
    """Stores artifacts in an obstore store, or in the one of a URL: `s3://…`, `gs://…`, `az://…`.

    Credentials come from the environment, as obstore reads it. Operations wait for the store of a URL for up to three
    minutes when it doesn't answer. Raises InvalidRequest for a URL that can't be used.
    """

    def __init__(self, store: ArtifactStore | str) -> None:
        self._store = open_store(store) if isinstance(store, str) else store
        self._base_uri = _base_uri(self._store)
        self._locks: WeakValueDictionary[tuple[asyncio.AbstractEventLoop, str], asyncio.Lock] = WeakValueDictionary()
        prefix = "" if isinstance(self._store, MemoryStore) else str(self._store.prefix or "")
        # The rest is for the version, or the name of a description.
        self._max_key_bytes = _MAX_KEY_BYTES - len(prefix.encode()) - 50

    async def _save(self, path: ArtifactPath, description: Description, payload: bytes) -> int:
        key = self._key(path)
        with _storage_errors("Saving an artifact"):
            # In one request even when large: an upload in parts takes no precondition in every store.
            return await self._create(key, payload, await self._attributes(key, description))

    async def _upload(self, path: ArtifactPath, description: Description, chunks: AsyncIterable[bytes]) -> int:
        key = self._key(path)
        with _storage_errors("Saving an artifact"):
            attributes = await self._attributes(key, description)

            version = await self._create(key, b"", {"Content-Type": _PENDING})
            try:
                await obstore.put_async(
                    self._store,
                    f"{key}/{version}",
                    chunks,
                    attributes=attributes,
                    use_multipart=True,
                    max_concurrency=_PARTS_AT_ONCE,
                )
            except BaseException:
                await obstore.delete_async(self._store, f"{key}/{version}")
                raise
        return version

    async def _load(self, path: ArtifactPath, version: int | None) -> Part | None:
        key = self._key(path)
        with _storage_errors("Loading an artifact"):
            found = await self._open(key, version)
            return None if found is None else put_together(found.description, await found.payload())

    async def download_artifact(
        self, *, app_name: str, user_id: str, session_id: str, filename: str, version: int | None = None
    ) -> ArtifactContent | None:
        path = artifact_path(app_name, user_id, session_id, filename)
        key = self._key(path)
        with _storage_errors("Loading an artifact"):
            opened = await self._open(key, version)
        if opened is None:
            return None

        async def chunks() -> AsyncIterator[bytes]:
            with _storage_errors("Loading an artifact"):
                skip = opened.payload_start
                async for chunk in opened.result.stream():
                    yield bytes(memoryview(chunk)[skip:])
                    skip = max(skip - len(chunk), 0)

        size = opened.result.meta["size"] - opened.payload_start
        return ArtifactContent(self._version(key, opened), size, chunks())

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
        key = self._key(artifact_path(app_name, user_id, session_id, filename))
        if isinstance(self._store, MemoryStore):
            raise NotOffered("This artifact store has no signed URLs")
        with _storage_errors("Signing a URL"):
            opened = await self._open(key, version, with_payload=False)
            if opened is None:
                return None
            path = f"{key}/{opened.version}"
            expires = timedelta(seconds=expires_seconds)
            return await obstore.sign_async(self._store, "GET", path, expires)

    async def list_artifact_keys(self, *, app_name: str, user_id: str, session_id: str) -> ListArtifactsResponse:
        filenames: set[str] = set()
        with _storage_errors("Listing artifacts"):
            for scope in scopes_of(app_name, user_id, session_id):
                # One of the overloads names a type of arro3, which we don't need; the same below.
                listing = obstore.list(self._store, scope_key(scope), chunk_size=1000)  # pyright: ignore[reportUnknownMemberType]
                async for objects in listing:
                    for meta in objects:
                        path = parse_version_key(scope, meta["path"])
                        if path is None or path.filename in filenames or await self._is_pending(meta):
                            continue
                        filenames.add(path.filename)
        return ListArtifactsResponse(sorted(filenames))

    async def _list_versions(self, path: ArtifactPath) -> list[int]:
        key = self._key(path)
        with _storage_errors("Listing an artifact's versions"):
            return [version_in(one["path"]) or 0 for one in await self._objects(key) if not await self._is_pending(one)]

    async def _describe(self, path: ArtifactPath, version: int | None) -> ArtifactVersion | None:
        key = self._key(path)
        with _storage_errors("Describing an artifact"):
            found = await self._open(key, version, with_payload=False)
        return None if found is None else self._version(key, found)

    async def _delete(self, path: ArtifactPath) -> None:
        key = self._key(path)
        with _storage_errors("Deleting an artifact"):
            while objects := await self._objects(key):
                # The newest goes last: a crash half-way must not bring an older one back as the newest.
                paths = [meta["path"] for meta in objects]
                for some in (paths[:-1], paths[-1:]):
                    try:
                        await obstore.delete_async(self._store, some)
                    except FileNotFoundError:
                        break  # another client deletes, too: list the rest again
            listed = await obstore.list_with_delimiter_async(self._store, key)  # pyright: ignore[reportUnknownMemberType]
            descriptions = [meta["path"] for meta in listed["objects"] if _SEPARATE in meta["path"]]
            with contextlib.suppress(FileNotFoundError):
                await obstore.delete_async(self._store, descriptions)

    async def is_empty(self) -> bool:
        with _storage_errors("Listing artifacts"):
            listing = obstore.list(self._store, chunk_size=1)  # pyright: ignore[reportUnknownMemberType]
            async for _ in listing:
                return False
        return True

    async def delete_user(self, *, app_name: str, user_id: str) -> None:
        with _storage_errors("Deleting a user's artifacts"):
            listing = obstore.list(self._store, user_key(app_name, user_id), chunk_size=1000)  # pyright: ignore[reportUnknownMemberType]
            keys = [found["path"] async for objects in listing for found in objects]
            for key in keys:
                with contextlib.suppress(FileNotFoundError):
                    await obstore.delete_async(self._store, key)

    async def _create(self, key: str, content: bytes, attributes: Attributes) -> int:
        """Writes the next version in one request, and returns it. Writers in one process take turns, which avoids
        retries.
        """
        async with self._locks.setdefault((asyncio.get_running_loop(), key), asyncio.Lock()):
            version = max((version_in(meta["path"]) or 0 for meta in await self._objects(key)), default=-1) + 1
            while True:
                path = f"{key}/{version}"
                with contextlib.suppress(AlreadyExistsError):
                    await obstore.put_async(
                        self._store, path, content, mode="create", attributes=attributes, use_multipart=False
                    )
                    return version
                version += 1

    async def _objects(self, key: str) -> list[ObjectMeta]:
        """The versions' objects, oldest first."""
        listed = await obstore.list_with_delimiter_async(self._store, key)  # pyright: ignore[reportUnknownMemberType]
        objects = [one for one in listed["objects"] if version_in(one["path"]) is not None]
        return sorted(objects, key=lambda one: version_in(one["path"]) or 0)

    async def _is_pending(self, meta: ObjectMeta) -> bool:
        if meta["size"] > 0:
            return False
        try:
            head = await obstore.get_async(self._store, meta["path"], options={"head": True})
        except FileNotFoundError:
            return True
        return head.attributes.get("Content-Type") == _PENDING

    async def _open(self, key: str, version: int | None, *, with_payload: bool = True) -> _OpenVersion | None:
        """A version, by default the newest; None when there is none."""
        if version is None:
            for meta in reversed(await self._objects(key)):
                if not await self._is_pending(meta):
                    version = version_in(meta["path"])
                    break
        if version is None or not 0 <= version <= _LAST_VERSION:
            return None

        path = f"{key}/{version}"
        try:
            result = await obstore.get_async(self._store, path, options={"head": not with_payload})
            # Some stores send the names in lower case.
            attributes = {name.lower(): value for name, value in result.attributes.items()}
            if attributes.get("content-type") == _PENDING:
                return None
            if (name := attributes.get(_DESCRIPTION_KEY.lower())) is not None:
                separate = await obstore.get_async(self._store, f"{key}/{name}")
                attributes[_DESCRIPTION] = str(await separate.bytes_async(), "ascii")
        except FileNotFoundError:
            return None

        if (text := attributes.get(_DESCRIPTION)) is not None:
            try:
                return _OpenVersion(version, read_description(unquote(text).encode()), result, 0)
            except msgspec.DecodeError as error:
                raise StorageError("Reading an artifact", f"{path} has no valid description: {error}") from None

        old = await self._read_old(path, result.meta["size"])
        description, payload_start = old or (_adk_description(attributes, result.meta), 0)
        return _OpenVersion(version, description, result, payload_start)

    async def _read_old(self, path: str, size: int) -> tuple[Description, int] | None:
        """The description at the start of an object of the earlier layout, and where its payload starts."""
        guess = min(size, 4096)
        head = bytes(await obstore.get_range_async(self._store, path, start=0, end=guess)) if guess else b""
        if not head.startswith(b'{"part":'):
            return None
        if b"\n" not in head:
            head = bytes(await (await obstore.get_async(self._store, path)).bytes_async())
        line = head.partition(b"\n")[0]
        try:
            description = read_description(line)
        except msgspec.DecodeError:
            return None
        return (description, len(line) + 1) if description.payload_bytes == size - len(line) - 1 else None

    async def _attributes(self, key: str, description: Description) -> Attributes:
        attributes: Attributes = {"Content-Type": _header(description.mime_type) or _DEFAULT_TYPE}
        blob = description.part.inline_data
        reference = description.part.file_data
        if description.payload == "text":
            attributes["adkIsText"] = "true"
        elif description.payload == "fileData" and reference is not None:
            attributes["adkFileUri"] = _header(reference.file_uri)
            attributes["adkFileMimeType"] = _header(reference.mime_type)
        elif blob is not None:
            attributes["adkDisplayName"] = _header(blob.display_name)

        text = quote(encode_description(description), safe=_HEADER_TEXT)
        if len(text) <= _MAX_DESCRIPTION_BYTES:
            attributes[_DESCRIPTION] = text
        else:
            attributes[_DESCRIPTION_KEY] = name = f"{_SEPARATE}{uuid4().hex}"
            await obstore.put_async(self._store, f"{key}/{name}", text.encode())
        return {name: value for name, value in attributes.items() if value}

    def _key(self, path: ArtifactPath) -> str:
        key = artifact_key(path)
        if len(key.encode()) > self._max_key_bytes:
            raise InvalidRequest("The artifact's name and ids are together too long for the store", location=("path",))
        return key

    def _version(self, key: str, found: _OpenVersion) -> ArtifactVersion:
        return found.description.as_version(found.version, f"{self._base_uri}/{key}/{found.version}")


class GcsArtifactService(ObjectStoreArtifactService):
    """A bucket of Google Cloud Storage, as ADK names it. Credentials come from the environment."""

    def __init__(self, bucket_name: str) -> None:
        super().__init__(f"gs://{bucket_name}")


@dataclass(frozen=True, slots=True)
class _OpenVersion:
    """A stored version."""

    version: int
    description: Description
    result: GetResult
    payload_start: int
    """The position in the object at which the payload starts."""

    async def payload(self) -> bytes:
        return bytes(memoryview(await self.result.bytes_async())[self.payload_start :])


def open_store(url: str) -> ArtifactStore:
    """The store of a URL. Raises InvalidRequest."""
    try:
        store = from_url(url, retry_config=_RETRIES)
    except (BaseError, ValueError, OSError) as error:
        raise InvalidRequest(
            f"{without_password(url)!r} can't be used: {_first_line(error)}", location=("url",)
        ) from error
    if not isinstance(store, ArtifactStore):
        raise InvalidRequest(
            f"{without_password(url)!r} is not an object store that can be written to", location=("url",)
        )
    return store


def _adk_description(attributes: Mapping[str, str], meta: ObjectMeta) -> Description:
    """The description of an object that ADK wrote, or another program."""
    mime_type = attributes.get("content-type") or _DEFAULT_TYPE
    payload: PayloadField = "inlineData"
    if (uri := attributes.get("adkfileuri")) is not None:
        payload = "fileData"
        part = Part(file_data=FileData(file_uri=uri, mime_type=attributes.get("adkfilemimetype", mime_type)))
    elif attributes.get("adkistext") == "true":
        payload = "text"
        part = Part()
    else:
        part = Part(inline_data=Blob(mime_type=mime_type, display_name=attributes.get("adkdisplayname")))
    custom = {name: value for name, value in attributes.items() if name not in _NOT_CUSTOM}
    created = meta["last_modified"].timestamp()
    return Description(part=part, payload=payload, create_time=created, custom_metadata=custom)


def _header(text: str | None) -> str:
    """Returns the text if it can be the value of a header, else an empty text."""
    return text if text and len(text) <= 300 and text.isascii() and text.isprintable() else ""


@contextmanager
def _storage_errors(operation: str) -> Generator[None, None, None]:
    try:
        yield
    except (BaseError, OSError, NotImplementedError) as error:
        raise StorageError(operation, _first_line(error)) from error


def _first_line(error: Exception) -> str:
    """obstore puts a dump of its inner error below."""
    return str(error).partition("\n")[0]


def _base_uri(store: ArtifactStore) -> str:
    if isinstance(store, MemoryStore):
        return "memory:/"
    bucket = "bucket"
    if isinstance(store, S3Store):
        scheme = "s3"
    elif isinstance(store, GCSStore):
        scheme = "gs"
    else:
        scheme = "az"
        bucket = "container_name"
    name = store.config.get(bucket, "")
    return f"{scheme}://{name}/{store.prefix or ''}".removesuffix("/")
