"""Apps from build outputs: folders, wheels and zip archives with packages in them.

Source of the properties and of where is looked: ADK's loader of compiled agents.
"""

from __future__ import annotations

import asyncio
import logging
import lzma
import shutil
import stat
import tempfile
import weakref
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

from greenroom.apps.app import App
from greenroom.apps.env_file import load_env_file
from greenroom.apps.load_directory import DirectoryAppLoader
from greenroom.apps.loader import AppLoader
from greenroom.errors import AgentConfigError, AppLoadError, AppNotFound
from greenroom.records import wire
from greenroom.records.base import Record

_log = logging.getLogger("greenroom.apps")

BUILD_OUTPUT_DIRS = ("dist", "build/lib", "build")

_ARCHIVES = (".whl", ".zip")
_UNREADABLE = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError, OSError)
_PROPERTIES = "adk.agents."


class AgentLoadingProperties(Record, kw_only=True):
    """The `buildOutputDirs` and `sourceDir` of a configuration, under ADK's names."""

    build_output_dirs: list[str] | None = None
    source_dir: str = "."
    confine_to_source_dir: bool = False


class _AppSource(NamedTuple):
    """A folder or an archive."""

    path: Path
    loader: DirectoryAppLoader | None
    """Of the apps in it, or None with the reason why it can't be read."""

    reason: str = ""


class BuiltOutputLoader(AppLoader):
    """Loads apps from build outputs. Searches once, when it is made; unpacks archives into a
    temporary folder that only this user can read. `close`, or the end of the process, deletes
    the folder.

    build_output_dirs: folders with packages, wheels and zip archives, or single archives; each is searched in
    `source_dir` and in its direct subfolders. confine_to_source_dir: refuse outputs that lead out of `source_dir`. An
    app has the name of its package; a later one replaces an earlier one of the same name, with a warning in the log.
    The earlier one is loaded for runs that the app pins to their version.
    Each folder and each archive has its own modules. Dependencies of packages must be installed, or in the same folder
    or archive. max_unpacked_bytes: limit of an archive's content. Raises AgentConfigError when `source_dir` is missing.
    """

    def __init__(
        self,
        *,
        build_output_dirs: Iterable[str | Path] = BUILD_OUTPUT_DIRS,
        source_dir: str | Path = ".",
        confine_to_source_dir: bool = False,
        max_unpacked_bytes: int = 512 * 1024 * 1024,
    ) -> None:
        self.source_dir = Path(source_dir).expanduser().resolve()
        if not self.source_dir.is_dir():
            raise AgentConfigError(f"There is no folder {str(source_dir)!r} to find built apps in")

        self.build_output_dirs = [Path(given).expanduser() for given in build_output_dirs]
        self._confine = confine_to_source_dir
        self._max_unpacked_bytes = max_unpacked_bytes
        self._unpacked: Path | None = None
        self._remove_unpacked: weakref.finalize[..., Any] | None = None
        self._closed = False
        self._sources: dict[str, _AppSource] = {}
        self._earlier: dict[str, list[_AppSource]] = {}
        """The replaced outputs of an app, the newest last."""

        for source in self._find():
            for name in source.loader.list_apps() if source.loader is not None else [_stem(source.path)]:
                earlier = self._sources.get(name)
                if earlier is not None:
                    _log.warning(
                        "the app %r of %s replaces that of %s",
                        name,
                        source.path,
                        earlier.path,
                    )
                    self._earlier.setdefault(name, []).append(earlier)

                self._sources[name] = source

    @classmethod
    def from_properties(cls, properties: AgentLoadingProperties | Mapping[str, Any]) -> Self:
        """Reads `buildOutputDirs` and `sourceDir`, or from `adk.agents.build-output-dirs` and
        `adk.agents.source-dir`.

        Raises InvalidRequest for values of another type.
        """
        if not isinstance(properties, AgentLoadingProperties):
            plain = {
                key.removeprefix(_PROPERTIES).replace("-", "_"): value.split(",") if _is_list(key, value) else value
                for key, value in properties.items()
            }
            properties = wire.from_plain(plain, AgentLoadingProperties)

        return cls(
            build_output_dirs=properties.build_output_dirs or BUILD_OUTPUT_DIRS,
            source_dir=properties.source_dir,
            confine_to_source_dir=properties.confine_to_source_dir,
        )

    def list_apps(self) -> list[str]:
        return sorted(self._sources)

    async def has_app(self, app_name: str) -> bool:
        return app_name in self._sources

    def load(self, app_name: str) -> App:
        """Runs the app's own code the first time. Raises AppLoadError for an archive that can't be
        read, too.
        """
        source = self._sources.get(app_name)
        if source is None:
            raise AppNotFound(app_name, self.list_apps())
        return self._load_from(source, app_name)

    def _load_from(self, source: _AppSource, app_name: str) -> App:
        """Raises AppLoadError."""
        if source.loader is None:
            raise AppLoadError(app_name, source.reason)
        if self._closed:
            raise AppLoadError(app_name, "the loader of built apps was closed")

        if not source.path.is_dir():
            load_env_file(source.path.parent)

        return source.loader.load(app_name)

    async def load_version(self, app_name: str, version: str) -> App | None:
        """The app of a replaced output. Raises no error for outputs that can't be loaded."""
        for source in reversed(self._earlier.get(app_name, [])):
            try:
                app = await asyncio.to_thread(self._load_from, source, app_name)
            except AppLoadError as error:
                _log.warning("the app %r of %s can't be loaded: %s", app_name, source.path, error.detail)
                continue
            if app.version == version:
                return app
        return None

    def close(self) -> None:
        """Deletes the unpacked archives. Modules that were not imported before can't be imported
        any more.
        """
        self._closed = True
        if self._remove_unpacked is not None:
            self._remove_unpacked()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _find(self) -> Iterator[_AppSource]:
        seen: set[Path] = set()
        for path in self._output_paths():
            resolved = path.resolve()
            if resolved in seen:
                continue

            seen.add(resolved)

            if self._confine and not resolved.is_relative_to(self.source_dir):
                raise AgentConfigError(f"The build output {str(path)!r} is not in the source folder {self.source_dir}")

            if path.is_dir():
                yield _AppSource(path, DirectoryAppLoader(path, levels=1))
                archives = sorted(file for file in path.iterdir() if file.suffix in _ARCHIVES and file.is_file())
            else:
                archives = [path]

            for archive in archives:
                yield self._open(archive)

    def _output_paths(self) -> Iterator[Path]:
        """Returns the existing folders and archives, those of the source folder first."""
        tops = {output.parts[0] for output in self.build_output_dirs if output.parts}
        inner = [path for path in sorted(self.source_dir.iterdir()) if path.is_dir() and not path.is_symlink()]

        bases = [self.source_dir, *(path for path in inner if not path.name.startswith(".") and path.name not in tops)]
        for base in bases:
            for output in self.build_output_dirs:
                path = base / output
                if path.is_dir() or (path.suffix in _ARCHIVES and path.is_file()):
                    yield path

    def _open(self, archive: Path) -> _AppSource:
        folder = self._new_folder() / _stem(archive)
        try:
            folder.mkdir()
            _unpack(archive, folder, max_bytes=self._max_unpacked_bytes)
            return _AppSource(archive, DirectoryAppLoader(folder, levels=1))
        except (*_UNREADABLE, _BadArchive, AgentConfigError) as error:
            shutil.rmtree(folder, ignore_errors=True)

            if isinstance(error, AgentConfigError):
                detail = error.detail
            else:
                detail = str(error)

            reason = f"the archive {archive.name} can't be used: {detail or type(error).__name__}"
            _log.error("%s (%s)", reason, archive)

            return _AppSource(archive, None, reason)

    def _new_folder(self) -> Path:
        if self._unpacked is None:
            self._unpacked = Path(tempfile.mkdtemp(prefix="greenroom-built-"))
            # Ends the search for one above the app: anybody may write into the folder for temporary files.
            (self._unpacked / ".env").touch()
            self._remove_unpacked = weakref.finalize(
                self,
                shutil.rmtree,
                self._unpacked,
                ignore_errors=True,
            )

        return Path(tempfile.mkdtemp(dir=self._unpacked))


class _BadArchive(Exception):
    pass


def _unpack(archive: Path, folder: Path, *, max_bytes: int) -> None:
    """Unpacks all files, or none if one leads out of the folder. Raises _BadArchive and the errors of zipfile."""
    with zipfile.ZipFile(archive) as opened:
        members = opened.infolist()
        if sum(member.file_size for member in members) > max_bytes:
            raise _BadArchive(f"it holds more than {max_bytes} bytes")

        for member in members:
            parts = member.filename.replace("\\", "/").split("/")
            if member.filename.startswith(("/", "\\")) or ".." in parts or ":" in parts[0]:
                raise _BadArchive(f"its file {member.filename!r} leads out of it")

            kind = stat.S_IFMT(member.external_attr >> 16)
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise _BadArchive(f"its file {member.filename!r} is a link or a device")
            if member.flag_bits & 0x1:
                raise _BadArchive(f"its file {member.filename!r} is encrypted")

        for member in members:
            opened.extract(member, folder)


def _stem(archive: Path) -> str:
    """Returns the app's name if the archive itself is an app: the name before a wheel's version."""
    return archive.stem.partition("-")[0]


def _is_list(key: str, value: object) -> bool:
    return isinstance(value, str) and key.replace("-", "_").endswith(("build_output_dirs", "buildOutputDirs"))
