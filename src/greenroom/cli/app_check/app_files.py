"""The files of the apps in a folder: those that loading an app imports, and its YAML files."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from greenroom.apps.find_apps import ROOT_FILE, is_app, is_name
from greenroom.apps.langgraph_json import LANGGRAPH_FILE, find_graph
from greenroom.cli.app_check.finding import Finding
from greenroom.cli.app_check.source import Import, PythonFile
from greenroom.errors import AgentConfigError

_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
_SKIPPED = frozenset({"node_modules", "site-packages", "__pycache__"})
_ENTRY_FILES = ("__init__.py", "agent.py", "agent/__init__.py")


class AppFiles:
    """The files to check. `sources` are the Python files that could be parsed, by path; `configs` are YAML files of
    agents, `apps` the folders of apps.
    """

    def __init__(self, path: Path) -> None:
        """Reads a folder of apps, an app's folder, or one file."""
        self.folder = path if path.is_dir() else path.parent
        self.sources: dict[Path, PythonFile] = {}
        self.findings: list[Finding] = []
        self.configs: list[Path] = []

        files = _files_of(path)
        python = [file for file in files if file.suffix == ".py"]
        self.file_count = len(python)
        apps = [folder for folder in _folders_of(files) if is_app(folder)] if path.is_dir() else []
        self.apps = apps
        self._check_app_names(apps)

        entries = [folder / name for folder in apps for name in _ENTRY_FILES if (folder / name).is_file()]
        entries += [file for folder in apps for file in self._graph_files(folder)]
        self._read_with_imports(entries if entries else python)
        if path.suffix in (".yaml", ".yml"):
            self.configs = [path]
        elif path.is_dir():
            self.configs = [file for file in files if file.suffix in (".yaml", ".yml") and _is_of_app(file, apps)]
        self.file_count += len(self.configs)
        self._others = [file for file in python if file not in self.sources]

    def _graph_files(self, folder: Path) -> Iterator[Path]:
        """The module that the folder's `langgraph.json` names, if there is one."""
        file = folder / LANGGRAPH_FILE
        if not file.is_file():
            return
        try:
            module = folder.joinpath(*find_graph(folder).module.split("."))
        except AgentConfigError as error:
            self.findings.append(Finding(file, 1, error.detail))
            return
        found = _module_file(module)
        if found is not None:
            yield found

    def read_others(self) -> Iterator[PythonFile]:
        """The Python files that no app imports, such as tests and scripts, as far as they can be parsed."""
        for file in self._others:
            try:
                yield PythonFile(file)
            except (SyntaxError, ValueError):
                continue

    def source_of(self, importer: Path, one: Import) -> PythonFile | None:
        """The module that a name is imported from, if it is the app's own."""
        found = [file for file in self._local_files(importer, one._replace(name="")) if file in self.sources]
        return self.sources[found[-1]] if found else None

    def names_imported_from(self, file: Path) -> set[str]:
        """Returns the names that other files of the app import from this file."""
        return self._imported_names.get(file, set())

    @cached_property
    def _imported_names(self) -> dict[Path, set[str]]:
        names: dict[Path, set[str]] = {}
        for importer, source in self.sources.items():
            for one in source.imports:
                for file in self._local_files(importer, one._replace(name="")) if one.name else ():
                    names.setdefault(file, set()).add(one.name)
        return names

    def is_local(self, importer: Path, statement: Import) -> bool:
        return statement.module.startswith(".") or bool(list(self._local_files(importer, statement)))

    def _local_files(self, importer: Path, statement: Import) -> Iterator[Path]:
        """Yields the files of the import: of the packages on the path, of the module, and of the name if it is a
        module.
        """
        dots = len(statement.module) - len(statement.module.lstrip("."))
        parts = [part for part in statement.module.lstrip(".").split(".") if part]
        if dots:
            bases = [importer.parents[dots - 1]] if dots <= len(importer.parents) else []
        else:
            above = [folder for folder in importer.parents if folder.is_relative_to(self.folder)]
            bases = [*above, self.folder.parent]
        for base in bases:
            if parts and not _module_file(base / parts[0]) and not _is_package(base / parts[0]):
                continue
            for end in range(len(parts) + 1):
                file = _module_file(base.joinpath(*parts[:end]))
                if file is not None and (end > 0 or dots):
                    yield file
            if statement.name:
                file = _module_file(base.joinpath(*parts, statement.name))
                if file is not None:
                    yield file
            return

    def _read_with_imports(self, entries: list[Path]) -> None:
        waiting = list(entries)
        seen = set(entries)
        while waiting:
            file = waiting.pop()
            source = self._read(file)
            for statement in source.imports if source is not None else ():
                for imported in self._local_files(file, statement):
                    if imported not in seen and imported.is_relative_to(self.folder):
                        seen.add(imported)
                        waiting.append(imported)

    def _read(self, file: Path) -> PythonFile | None:
        try:
            self.sources[file] = PythonFile(file)
        except (SyntaxError, ValueError) as error:
            line = (error.lineno or 1) if isinstance(error, SyntaxError) else 1
            reason = error.msg if isinstance(error, SyntaxError) else str(error)
            self.findings.append(Finding(file, line, f"this is not valid Python {_PYTHON}: {reason}"))
            return None
        return self.sources[file]

    def _check_app_names(self, apps: list[Path]) -> None:
        for folder in apps:
            if not is_name(folder.name):
                file = next(
                    folder / name for name in (*_ENTRY_FILES, LANGGRAPH_FILE, ROOT_FILE) if (folder / name).is_file()
                )
                text = (
                    f"the folder {folder.name!r} can't be an app: rename it to letters, digits and '_', no digit first"
                )
                self.findings.append(Finding(file, 1, text))


def _files_of(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(_files_below(path))
    return [path] if path.is_file() else []


def _files_below(folder: Path) -> Iterator[Path]:
    for entry in folder.iterdir():
        if entry.name.startswith(".") or entry.name in _SKIPPED:
            continue
        if entry.is_dir() and not entry.is_symlink():
            if not (entry / "pyvenv.cfg").exists():
                yield from _files_below(entry)
        elif entry.suffix in (".py", ".yaml", ".yml") or entry.name == LANGGRAPH_FILE:
            yield entry


def _folders_of(files: list[Path]) -> list[Path]:
    """Returns the folders with apps, without those inside another app."""
    folders: list[Path] = []
    for folder in sorted({file.parent for file in files}):
        if is_app(folder) and not any(folder.is_relative_to(app) for app in folders):
            folders.append(folder)
    return folders


def _is_of_app(file: Path, apps: list[Path]) -> bool:
    return any(file.is_relative_to(app) and (app / ROOT_FILE).is_file() for app in apps) or not apps


def _module_file(path: Path) -> Path | None:
    for file in (path / "__init__.py", path.with_name(path.name + ".py")):
        if file.is_file():
            return file
    return None


def _is_package(path: Path) -> bool:
    """A folder with Python files, with or without `__init__.py`."""
    return path.is_dir() and any(path.rglob("*.py"))
