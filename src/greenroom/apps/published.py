"""Published versions of apps: copies of their files, kept in a store, from which they are loaded."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import io
import shutil
import tempfile
import time
import weakref
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from greenroom.apps.app import App
from greenroom.apps.env_file import load_env_file
from greenroom.apps.load_directory import DirectoryAppLoader
from greenroom.apps.loader import AppLoader
from greenroom.errors import AppLoadError, NotOffered, TooLarge
from greenroom.versions.store import VersionStore

MAX_FILES = 1000
MAX_BYTES = 10 * 1024 * 1024
"""Of the files of one version, unpacked."""

RETRY_SECONDS = 5.0
"""Time after which a version that can't be loaded is tried again."""

_DATE = (1980, 1, 1, 0, 0, 0)
"""Of all files in an archive, so that equal files make equal archives. The earliest that zip knows."""


class Snapshot(NamedTuple):
    """The files of an app at one moment."""

    version: str
    """A hash of their paths and contents."""
    files: Mapping[str, bytes]
    """By their paths in the folder of all apps."""


class PublishedApps:
    """Makes versions of the apps of a loader, and loads those that were published.

    A loaded version keeps its files in a temporary folder, which only this user can read, until `close` or the end of
    the process: its code may import late.
    """

    def __init__(self, apps: AppLoader, store: VersionStore, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._apps = apps
        self._store = store
        self._clock = clock
        self._loaded: dict[tuple[str, str], App] = {}
        self._failed: dict[tuple[str, str], tuple[AppLoadError, float]] = {}
        """The reasons why versions could not be loaded, with the monotonic times of the next tries."""
        self._loading = asyncio.Lock()
        self._folder: Path | None = None
        self._delete_folder: weakref.finalize[..., Any] | None = None

    async def snapshot(self, app_name: str) -> Snapshot:
        """The present files of an app. Raises AppNotFound, AppLoadError, NotOffered, TooLarge."""
        await self._apps.load_async(app_name)  # so that its imports are known
        files = await asyncio.to_thread(self._read, app_name)
        return Snapshot(hash_of(files), files)

    async def load(self, app_name: str, version: str) -> App | None:
        """A version of an app; None if it isn't in the store. Raises AppLoadError."""
        app = self._loaded.get((app_name, version))
        if app is not None:
            return app
        failure = self._failed.get((app_name, version))
        if failure is not None and self._clock() < failure[1]:
            raise AppLoadError(app_name, failure[0].reason)
        archive = await self._store.read_archive(app_name, version)
        if archive is None:
            return None
        files = await asyncio.to_thread(unpack, archive)
        return await self.load_files(app_name, Snapshot(version, files))

    async def load_files(self, app_name: str, snapshot: Snapshot) -> App:
        """The app in these files. Raises AppLoadError."""
        async with self._loading:
            app = self._loaded.get((app_name, snapshot.version))
            if app is None:
                folder = await asyncio.to_thread(self._write, app_name, snapshot)
                try:
                    app = await DirectoryAppLoader(folder).load_async(app_name)
                except AppLoadError as error:
                    await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
                    failed = AppLoadError(app_name, f"version {snapshot.version}: {error.reason}")
                    self._failed[app_name, snapshot.version] = failed, self._clock() + RETRY_SECONDS
                    raise failed from None
                self._failed.pop((app_name, snapshot.version), None)
                app = dataclasses.replace(app, version=snapshot.version)
                self._loaded[app_name, snapshot.version] = app
            return app

    def close(self) -> None:
        """Deletes the files of loaded versions."""
        if self._delete_folder is not None:
            self._delete_folder()

    def _read(self, app_name: str) -> dict[str, bytes]:
        paths = self._apps.source_files(app_name)
        if len(paths) > MAX_FILES:
            raise NotOffered(f"App {app_name!r} can't be published: it has {len(paths)} files, more than {MAX_FILES}")

        files: dict[str, bytes] = {}
        size = 0
        for name, path in paths.items():
            try:
                size += path.stat().st_size
                if size <= MAX_BYTES:
                    files[name] = path.read_bytes()
            except FileNotFoundError:  # deleted meanwhile
                continue
            if size > MAX_BYTES:
                raise TooLarge(f"The folder of app {app_name!r}, up to its file {name},", limit_bytes=MAX_BYTES)
        return files

    def _write(self, app_name: str, snapshot: Snapshot) -> Path:
        """Writes the files to a new folder, after the variables of the app's `.env` were set."""
        source = self._apps.folder(app_name)
        if source is not None:
            load_env_file(source)

        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="greenroom-versions-"))
            self._delete_folder = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)

        folder = Path(tempfile.mkdtemp(dir=self._folder))
        # Ends the search for one above the app: anybody may write into the folder for temporary files.
        (folder / ".env").touch()
        for name, content in snapshot.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return folder


def hash_of(files: Mapping[str, bytes]) -> str:
    """The version of an app with these files."""
    digest = hashlib.sha256()
    for name, content in sorted(files.items()):
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:16]


def pack(files: Mapping[str, bytes]) -> bytes:
    """A zip archive of the files."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(name, _DATE), content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def unpack(archive: bytes) -> dict[str, bytes]:
    """The files of an archive that `pack` has made."""
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        return {name: opened.read(name) for name in opened.namelist()}
