"""The YAML files of an app, as an editor reads and writes them: drafts first, then all at once if
the agents load.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from greenroom.apps.load_directory import DirectoryAppLoader
from greenroom.apps.loader import AppLoader
from greenroom.apps.yaml_config.document import ConfigFile, read_document
from greenroom.errors import AgentConfigError, NotOffered

SUFFIXES = (".yaml", ".yml")
MAX_FILES = 500
_DRAFTS = Path(".greenroom") / "drafts"


class AgentFiles:
    """Paths are relative to the app's folder, with slashes. Drafts are in `.greenroom/drafts` of
    the served folder.
    """

    def __init__(self, loader: AppLoader, app_name: str) -> None:
        """Raises NotOffered for apps that aren't in a served folder, and AppNotFound for names that
        no app can have.
        """
        if not isinstance(loader, DirectoryAppLoader):
            raise NotOffered("Only agents in a served folder can be edited")
        self._loader = loader
        self._app_name = app_name
        self._folder = loader.folder(app_name)
        self._drafts = loader.agents_dir / _DRAFTS / app_name

    def names(self) -> list[str]:
        """The app's YAML files, sorted; at most MAX_FILES."""
        found = (path.relative_to(self._folder) for path in _yaml_files(self._folder))
        return sorted(path.as_posix() for path, _ in zip(found, range(MAX_FILES), strict=False))

    def read(self, name: str, *, draft: bool) -> bytes | None:
        """None if there is no such file. draft: the saved draft if there is one, else the file."""
        for folder in (self._drafts, self._folder) if draft else (self._folder,):
            path = _inside(folder, name)
            if path.is_file():
                return path.read_bytes()
        return None

    def save_drafts(self, files: Mapping[str, bytes]) -> None:
        """Raises AgentConfigError for wrong names and for invalid YAML."""
        for name, data in files.items():
            read_document(ConfigFile(_inside(self._folder, name), name, data))
        _write(self._drafts, files)

    def publish(self, files: Mapping[str, bytes]) -> None:
        """Writes the drafts and these files in place of the app's, which may be a new one, if its
        agents can be built from them. Raises AgentConfigError, and then nothing is written.
        """
        drafts = {path.relative_to(self._drafts).as_posix(): path for path in _yaml_files(self._drafts)}
        edited = {name: path.read_bytes() for name, path in drafts.items()} | dict(files)
        contents = {_inside(self._folder, name): data for name, data in edited.items()}
        for path, data in contents.items():
            read_document(ConfigFile(path, path.relative_to(self._folder).as_posix(), data))

        self._loader.check_edit(self._app_name, contents)
        _write(self._folder, edited)
        self.drop_drafts()

    def drop_drafts(self) -> None:
        shutil.rmtree(self._drafts, ignore_errors=True)


def _yaml_files(folder: Path) -> Iterable[Path]:
    for directory, subfolders, names in os.walk(folder):
        subfolders[:] = [name for name in subfolders if not name.startswith((".", "__"))]
        yield from (Path(directory, name) for name in names if name.endswith(SUFFIXES) and not name.startswith("."))


def _inside(folder: Path, name: str) -> Path:
    """Raises AgentConfigError for paths that lead out of the folder, by a link too, and for hidden
    and other files.
    """
    parts = name.split("/")

    has_odd_parts = any(not part or part.startswith(".") for part in parts)
    if has_odd_parts or not name.endswith(SUFFIXES) or "\\" in name or "\0" in name or len(name) > 255:
        raise AgentConfigError(f"{name!r} is no path of a .yaml file in the app's folder")

    path = folder.joinpath(*parts)
    if not path.resolve().is_relative_to(folder.resolve()):
        raise AgentConfigError(f"{name!r} leads out of the app's folder")

    return path


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    """Writes all files to temporary ones before it replaces the first; each replacement is atomic."""
    folder.mkdir(parents=True, exist_ok=True)

    with tempfile.TemporaryDirectory(dir=folder, prefix=".new-") as new:
        for number, (name, data) in enumerate(files.items()):
            _inside(folder, name)
            Path(new, str(number)).write_bytes(data)
        for number, name in enumerate(files):
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            Path(new, str(number)).replace(path)
