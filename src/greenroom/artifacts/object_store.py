"""Artifacts in an object store: a local folder, S3, Google Cloud Storage or Azure.

Each version is one object, `{app}/{user}/{session}/{name}/{version}`: a line of JSON that describes it, then the
payload. One object, so that one conditional write decides at once which version it is and what is in it: a crash
leaves a whole version or none. Descriptions of their own in each store would differ (local files have none, S3 allows
2 KB of ASCII).
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

import msgspec
import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import AzureStore, GCSStore, LocalStore, MemoryStore, S3Store, from_url

from greenroom.artifacts.layout import (
    ArtifactPath,
    Description,
    artifact_key,
    artifact_path,
    parse_version_key,
    put_together,
    read_description,
    scope_key,
    scopes_of,
    take_apart,
    version_in,
)
from greenroom.artifacts.service import BaseArtifactService
from greenroom.errors import InvalidRequest, StorageError
from greenroom.records.base import JsonObject
from greenroom.records.content import Part
from greenroom.records.listings import ArtifactVersion

ArtifactStore = LocalStore | S3Store | GCSStore | AzureStore | MemoryStore

_DESCRIPTION_GUESS_BYTES = 4096
_LAST_VERSION = 10**18 - 1
_MAX_CLOUD_KEY_BYTES = 1024
_MAX_FILE_PATH_BYTES = 4000


class ObjectStoreArtifactService(BaseArtifactService):
    """store: an obstore store, or a URL: `file:///folder` (made when missing), `s3://…`, `gs://…`, `az://…`.

    Credentials come from the environment, as obstore reads it. Raises InvalidRequest for a URL that can't be used.
    """

    def __init__(self, store: ArtifactStore | str) -> None:
        self._store = open_store(store) if isinstance(store, str) else store
        self._base_uri = _base_uri(self._store)
        self._max_key_bytes = _max_key_bytes(self._store)

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
        key = self._key(artifact_path(app_name, user_id, session_id, filename))
        description, payload = take_apart(artifact, custom_metadata, limit_bytes=self.limit_bytes)
        content = b"\n".join((description, payload))
        with _storage_errors("Saving an artifact"):
            version = max(await self._versions(key), default=-1) + 1
            while True:
                try:
                    # In one request even when large: an upload in parts takes no precondition in every store.
                    await obstore.put_async(
                        self._store, f"{key}/{version}", content, mode="create", use_multipart=False
                    )
                except AlreadyExistsError:
                    version += 1
                else:
                    return version

    async def load_artifact(
        self, *, app_name: str, user_id: str, session_id: str, filename: str, version: int | None = None
    ) -> Part | None:
        key = self._key(artifact_path(app_name, user_id, session_id, filename))
        with _storage_errors("Loading an artifact"):
            number = await self._number(key, version)
            if number is None:
                return None
            try:
                found = await obstore.get_async(self._store, f"{key}/{number}")
                content = memoryview(await found.bytes_async())
            except FileNotFoundError:
                return None
        description, start = _describe(f"{key}/{number}", content)
        if len(content) - start != description.payload_bytes:
            raise StorageError("Reading an artifact", f"{key}/{number} is not whole")
        return put_together(description, bytes(content[start:]))

    async def list_artifact_keys(self, *, app_name: str, user_id: str, session_id: str) -> list[str]:
        filenames: set[str] = set()
        with _storage_errors("Listing artifacts"):
            for scope in scopes_of(app_name, user_id, session_id):
                # One of the overloads names a type of arro3, which we don't need; so too below.
                listing = obstore.list(self._store, scope_key(scope), chunk_size=1000)  # pyright: ignore[reportUnknownMemberType]
                async for objects in listing:
                    paths = (parse_version_key(scope, found["path"]) for found in objects)
                    filenames.update(path.filename for path in paths if path is not None)
        return sorted(filenames)

    async def list_versions(self, *, app_name: str, user_id: str, session_id: str, filename: str) -> list[int]:
        key = self._key(artifact_path(app_name, user_id, session_id, filename))
        with _storage_errors("Listing an artifact's versions"):
            return await self._versions(key)

    async def get_artifact_version(
        self, *, app_name: str, user_id: str, session_id: str, filename: str, version: int | None = None
    ) -> ArtifactVersion | None:
        key = self._key(artifact_path(app_name, user_id, session_id, filename))
        with _storage_errors("Describing an artifact"):
            number = await self._number(key, version)
            if number is None:
                return None
            path = f"{key}/{number}"
            try:
                start = await obstore.get_range_async(self._store, path, start=0, end=_DESCRIPTION_GUESS_BYTES)
                content = memoryview(start)
                if len(content) == _DESCRIPTION_GUESS_BYTES and b"\n" not in bytes(content):
                    content = memoryview(await (await obstore.get_async(self._store, path)).bytes_async())
            except FileNotFoundError:
                return None
        return _describe(path, content)[0].as_version(number, self._uri(path))

    async def delete_artifact(self, *, app_name: str, user_id: str, session_id: str, filename: str) -> None:
        key = self._key(artifact_path(app_name, user_id, session_id, filename))
        with _storage_errors("Deleting an artifact"):
            while versions := await self._versions(key):
                # The newest goes last: a crash half-way must not bring an older one back as the newest.
                for some in (versions[:-1], versions[-1:]):
                    try:
                        await obstore.delete_async(self._store, [f"{key}/{version}" for version in some])
                    except FileNotFoundError:
                        break  # another deletes too; look again at what is left

    async def _versions(self, key: str) -> list[int]:
        listed = await obstore.list_with_delimiter_async(self._store, key)  # pyright: ignore[reportUnknownMemberType]
        versions = (version_in(found["path"]) for found in listed["objects"])
        return sorted(version for version in versions if version is not None)

    async def _number(self, key: str, version: int | None) -> int | None:
        if version is None:
            return max(await self._versions(key), default=None)
        return version if 0 <= version <= _LAST_VERSION else None

    def _key(self, path: ArtifactPath) -> str:
        key = artifact_key(path)
        if len(key.encode()) > self._max_key_bytes:
            raise InvalidRequest("The artifact's name and ids are together too long for the store", location=("path",))
        return key

    def _uri(self, path: str) -> str:
        return f"{self._base_uri}/{quote(path) if isinstance(self._store, LocalStore) else path}"


def open_store(url: str) -> ArtifactStore:
    """The store behind a URL; a local folder is made when it is missing. Raises InvalidRequest."""
    try:
        parts = urlsplit(url)
        if parts.scheme == "file":
            if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
                raise InvalidRequest(f"A folder is written file:///its/absolute/path, not {url!r}", location=("url",))
            return LocalStore(Path(unquote(parts.path)), automatic_cleanup=True, mkdir=True)
        store = from_url(url)
    except (BaseError, ValueError, OSError) as error:
        raise InvalidRequest(f"{url!r} can't be used: {_first_line(error)}", location=("url",)) from error
    if not isinstance(store, ArtifactStore):
        raise InvalidRequest(f"{url!r} is not a store that can be written to", location=("url",))
    return store


def _describe(path: str, content: memoryview) -> tuple[Description, int]:
    """The description at the start of an object, and where the payload starts."""
    head = bytes(content[:_DESCRIPTION_GUESS_BYTES])
    end = head.find(b"\n")
    if end < 0:
        head = bytes(content)
        end = head.find(b"\n")
    try:
        return read_description(head[: max(end, 0)]), end + 1
    except msgspec.DecodeError as error:
        raise StorageError("Reading an artifact", f"{path} is not an artifact: {error}") from None


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
    if isinstance(store, LocalStore):
        return "artifact:/"  # not where the folder is, which is no business of clients
    if isinstance(store, MemoryStore):
        return "memory:/"
    scheme = "s3" if isinstance(store, S3Store) else "gs" if isinstance(store, GCSStore) else "az"
    name = store.config.get("container_name" if isinstance(store, AzureStore) else "bucket", "")
    return f"{scheme}://{name}/{store.prefix or ''}".removesuffix("/")


def _max_key_bytes(store: ArtifactStore) -> int:
    """What is left for `{scope}/{name}` when 20 are kept for the version."""
    if isinstance(store, MemoryStore):
        return _MAX_FILE_PATH_BYTES
    limit = _MAX_FILE_PATH_BYTES if isinstance(store, LocalStore) else _MAX_CLOUD_KEY_BYTES
    return limit - len(str(store.prefix or "").encode()) - 20
