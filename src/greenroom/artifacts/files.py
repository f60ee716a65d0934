"""Artifacts in a local folder, laid out as ADK's FileArtifactService lays them out.

    apps/{app}/users/{user}/sessions/{session}/artifacts/{name}/versions/{version}/{last part of the name}
    apps/{app}/users/{user}/artifacts/{name without user:}/versions/{version}/{last part of the name}

A file `metadata.json` beside each payload describes it. A version is written to a folder of its own at the root and
then renamed, so a crash leaves a whole version or none.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import shutil
import tempfile
import threading
from collections.abc import AsyncIterable, AsyncIterator, Callable, Generator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote

import msgspec

from greenroom.artifacts.by_path import ArtifactServiceByPath
from greenroom.artifacts.layout import (
    ArtifactPath,
    Description,
    PayloadField,
    Scope,
    artifact_path,
    encode_segment,
    parse_version_key,
    put_together,
    read_description,
    scope_key,
    scopes_of,
    uri_path,
    user_key,
    version_in,
)
from greenroom.artifacts.service import USER_NAMESPACE, ArtifactContent
from greenroom.errors import InvalidRequest, StorageError
from greenroom.records import wire
from greenroom.records.content import Blob, Part
from greenroom.records.listings import ArtifactVersion, ListArtifactsResponse

T = TypeVar("T")

_METADATA = "metadata.json"
_VERSIONS = "versions"
_RESERVED = re.compile(r"versions|metadata\.json", re.IGNORECASE)
_MAX_PATH_BYTES = 4000
_CHUNK_BYTES = 1 << 20


class _Metadata(ArtifactVersion, kw_only=True):
    """ADK's fields, then fields that only this server writes. The `mime_type` of text is None."""

    file_name: str = ""
    display_name: str | None = None

    part: Part | None = None
    payload: PayloadField | None = None
    payload_bytes: int | None = None

    def description(self) -> Description:
        part = self.part
        if part is None:
            blob = Blob(mime_type=self.mime_type or "", display_name=self.display_name)
            part = Part() if self.mime_type is None else Part(inline_data=blob)
        return Description(
            part=part,
            payload=self.payload or ("text" if self.mime_type is None else "inlineData"),
            payload_bytes=self.payload_bytes,
            create_time=self.create_time,
            custom_metadata=self.custom_metadata,
        )


_read_metadata = wire.decoder(_Metadata)


class FileArtifactService(ArtifactServiceByPath):
    """Stores artifacts as files below `root_dir`, which is created if it is missing. Raises InvalidRequest if it can't
    be used.

    Artifacts that earlier releases stored are moved to this layout when they are first read.
    """

    def __init__(self, root_dir: str | os.PathLike[str]) -> None:
        self._root = Path(root_dir).expanduser().absolute()
        self._moving = threading.Lock()
        try:
            self._root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidRequest(f"{self._root} can't be used: {error.strerror}", location=("root_dir",)) from error

    async def _save(self, path: ArtifactPath, description: Description, payload: bytes) -> int:

        def save() -> int:
            with self._staging() as staging:
                (staging / _payload_name(path)).write_bytes(payload)
                return _publish(self._folder(path), path, staging, description)

        return await _in_thread("Saving an artifact", save)

    async def _upload(self, path: ArtifactPath, description: Description, chunks: AsyncIterable[bytes]) -> int:
        operation = "Saving an artifact"
        with _storage_errors(operation):
            staging = self._new_staging()
            file = (staging / _payload_name(path)).open("wb")
        try:
            with file:
                async for chunk in chunks:
                    await _in_thread(operation, partial(file.write, chunk))
                description.payload_bytes = file.tell()
            return await _in_thread(operation, lambda: _publish(self._folder(path), path, staging, description))
        finally:
            await asyncio.to_thread(shutil.rmtree, staging, ignore_errors=True)

    async def _load(self, path: ArtifactPath, version: int | None) -> Part | None:

        def load() -> Part | None:
            stored = self._find(path, version)
            if stored is None:
                return None
            return put_together(stored[1].description(), stored[2].read_bytes())

        return await _in_thread("Loading an artifact", load)

    async def download_artifact(
        self, *, app_name: str, user_id: str, session_id: str, filename: str, version: int | None = None
    ) -> ArtifactContent | None:
        path = artifact_path(app_name, user_id, session_id, filename)
        stored = await _in_thread("Loading an artifact", lambda: self._find(path, version))
        if stored is None:
            return None
        number, metadata, payload = stored

        async def chunks() -> AsyncIterator[bytes]:
            with _storage_errors("Loading an artifact"), payload.open("rb") as file:
                while chunk := await asyncio.to_thread(file.read, _CHUNK_BYTES):
                    yield chunk

        return ArtifactContent(self._version(path, number, metadata), payload.stat().st_size, chunks())

    async def list_artifact_keys(self, *, app_name: str, user_id: str, session_id: str) -> ListArtifactsResponse:
        scopes = scopes_of(app_name, user_id, session_id)
        names = await _in_thread(
            "Listing artifacts", lambda: sorted(name for scope in scopes for name in self._names(scope))
        )
        return ListArtifactsResponse(names)

    async def _list_versions(self, path: ArtifactPath) -> list[int]:
        return await _in_thread("Listing an artifact's versions", lambda: _numbers(self._folder(path) / _VERSIONS))

    async def _describe(self, path: ArtifactPath, version: int | None) -> ArtifactVersion | None:
        found = await _in_thread("Describing an artifact", lambda: self._find(path, version))
        return None if found is None else self._version(path, *found[:2])

    async def _delete(self, path: ArtifactPath) -> None:

        def delete() -> None:
            folder = self._folder(path)
            with self._staging() as staging:
                try:
                    (folder / _VERSIONS).rename(staging / _VERSIONS)
                except FileNotFoundError:
                    return
            self._remove_empty(folder)

        await _in_thread("Deleting an artifact", delete)

    async def is_empty(self) -> bool:
        return not await _in_thread("Listing artifacts", lambda: any(self._root.iterdir()))

    async def delete_user(self, *, app_name: str, user_id: str) -> None:
        old = user_key(app_name, user_id)  # raises for ids that would leave their folder
        folders = [self._home(Scope(app_name, user_id, None)).parent]
        if app_name != "apps":  # see `_move_old`
            folders.append(self._root / old)

        def delete() -> None:
            for folder in folders:
                with self._staging() as staging, suppress(FileNotFoundError):
                    folder.rename(staging / "user")
                self._remove_empty(folder.parent)

        await _in_thread("Deleting a user's artifacts", delete)

    def _home(self, scope: Scope) -> Path:
        home = self._root / "apps" / encode_segment(scope.app_name) / "users" / encode_segment(scope.user_id)
        if scope.session_id is not None:
            home = home / "sessions" / encode_segment(scope.session_id)
        return home / "artifacts"

    def _folder(self, path: ArtifactPath) -> Path:
        self._move_old(path.scope)
        folder = self._home(path.scope) / _name_key(path)
        if len(os.fsencode(folder)) + 2 * len(os.fsencode(folder.name)) > _MAX_PATH_BYTES:
            raise InvalidRequest("The artifact's name and ids are together too long for the store", location=("path",))
        return folder

    @contextmanager
    def _staging(self) -> Generator[Path]:
        """Creates a folder on the same file system, which is removed afterwards with its remaining content."""
        staging = self._new_staging()
        try:
            yield staging
        finally:
            shutil.rmtree(staging, ignore_errors=True)

    def _new_staging(self) -> Path:
        return Path(tempfile.mkdtemp(prefix=".staging-", dir=self._root))

    def _find(self, path: ArtifactPath, version: int | None) -> tuple[int, _Metadata, Path] | None:
        """A version's number, metadata and payload; None when there is none."""
        folder = self._folder(path)
        number = max(_numbers(folder / _VERSIONS), default=-1) if version is None else version
        if not 0 <= number < 10**18:
            return None

        home = folder / _VERSIONS / str(number)
        try:
            metadata = _read_metadata((home / _METADATA).read_bytes())
            size = (home / _payload_name(path)).stat().st_size
        except FileNotFoundError:
            if home.is_dir():
                raise
            return None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise StorageError("Reading an artifact", f"{home / _METADATA} can't be read: {error}") from None

        if metadata.payload_bytes not in (None, size):
            raise StorageError("Reading an artifact", f"{home} is not whole")
        return number, metadata, home / _payload_name(path)

    def _names(self, scope: Scope) -> Generator[str]:
        self._move_old(scope)
        home = self._home(scope)
        for folder, children, _ in os.walk(home):
            if _VERSIONS in children:
                children.remove(_VERSIONS)
                name = Path(folder).relative_to(home).as_posix()
                prefix = USER_NAMESPACE if scope.session_id is None else ""
                path = ArtifactPath(scope, prefix + unquote(name.replace("%/", "")))
                if _name_key(path) == name and _numbers(Path(folder) / _VERSIONS):
                    yield path.filename

    def _version(self, path: ArtifactPath, number: int, metadata: _Metadata) -> ArtifactVersion:
        return metadata.description().as_version(number, _uri(path, number))

    def _remove_empty(self, folder: Path) -> None:
        while folder != self._root:
            try:
                folder.rmdir()
            except OSError:
                return
            folder = folder.parent

    def _move_old(self, scope: Scope) -> None:
        """Moves `{app}/{user}/{session}/{name}/{version}`, a line of JSON and then the payload, to this layout."""
        old = self._root / scope_key(scope)
        if scope.app_name == "apps" or not old.is_dir():  # the folder `apps` is the present layout's own
            return

        with self._moving:
            for file in sorted(file for file in old.rglob("*") if file.is_file()):
                path = parse_version_key(scope, file.relative_to(self._root).as_posix())
                number = version_in(file.name)
                if path is None or number is None:
                    continue

                head, _, payload = file.read_bytes().partition(b"\n")
                try:
                    description = read_description(head)
                except msgspec.DecodeError:
                    continue

                with self._staging() as staging:
                    (staging / _payload_name(path)).write_bytes(payload)
                    _publish(self._home(scope) / _name_key(path), path, staging, description, number)
                file.unlink()
                self._remove_empty(file.parent)


def _publish(
    folder: Path, path: ArtifactPath, staging: Path, description: Description, version: int | None = None
) -> int:
    """Renames the staged folder to an artifact's next version, or to `version` unless that exists."""
    versions = folder / _VERSIONS
    number = max(_numbers(versions), default=-1) + 1 if version is None else version

    staging.chmod(0o755)
    while True:
        (staging / _METADATA).write_bytes(wire.encode(_metadata(path, number, description)))
        try:
            versions.mkdir(parents=True, exist_ok=True)
            staging.rename(versions / str(number))
        except FileNotFoundError:
            continue  # a deletion removed the empty folder
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            # The version is there: a folder with files in it is not replaced.
            if version is not None:
                return number
            number += 1
        else:
            return number


def _name_key(path: ArtifactPath) -> str:
    name = path.filename if path.scope.session_id is not None else path.filename.removeprefix(USER_NAMESPACE)
    return "/".join(encode_segment(part, reserved=_RESERVED) for part in name.split("/"))


def _payload_name(path: ArtifactPath) -> str:
    return _name_key(path).rpartition("/")[2]


def _uri(path: ArtifactPath, number: int) -> str:
    """Returns a URI without the folder, which clients must not see."""
    return f"artifact://{uri_path(path)}/versions/{number}"


def _metadata(path: ArtifactPath, number: int, description: Description) -> _Metadata:
    blob = description.part.inline_data
    return _Metadata(
        version=number,
        canonical_uri=_uri(path, number),
        custom_metadata=description.custom_metadata,
        create_time=description.create_time,
        mime_type=None if description.payload == "text" else description.mime_type,
        file_name=path.filename,
        display_name=blob and blob.display_name,
        part=description.part,
        payload=description.payload,
        payload_bytes=description.payload_bytes,
    )


def _numbers(versions: Path) -> list[int]:
    try:
        numbers = [version_in(name) for name in os.listdir(versions)]
    except FileNotFoundError:
        return []
    return sorted(number for number in numbers if number is not None)


async def _in_thread(operation: str, work: Callable[[], T]) -> T:
    with _storage_errors(operation):
        return await asyncio.to_thread(work)


@contextmanager
def _storage_errors(operation: str) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(operation, error.strerror or type(error).__name__) from error
