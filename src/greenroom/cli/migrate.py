"""`greenroom migrate`: moves apps from ADK to greenroom."""

from __future__ import annotations

import difflib
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

from cyclopts import Parameter

from greenroom.cli.check import show_findings
from greenroom.cli.terminal import note, print_line
from greenroom.errors import InvalidRequest

_SKIPPED = shutil.ignore_patterns(".git", ".venv", "venv", "node_modules", "__pycache__")
_REQUIREMENT_FILES = ("requirements*.txt", "pyproject.toml")
_ADK = re.compile(r"\bgoogle-adk(\[[^\]]*\])?(\s*[<>=!~][^\"';#\n]*[^\"';#\s])?")


class _Change(NamedTuple):
    """A file that changes, with its old and new content."""

    path: Path
    old: bytes
    new: bytes


def migrate(
    directory: Annotated[Path, Parameter(name="PATH")],
    /,
    *,
    write: bool = False,
    to: Path | None = None,
) -> None:
    """Move apps written for ADK over to greenroom: shows a diff of their files, and writes it with `--write`.

    Rewrites imports of ADK and of google.genai.types in the Python files of a folder, and `google-adk` in
    requirements.txt and pyproject.toml. Comments and layout stay. Then reports, like `greenroom check`, what has to be
    done by hand. Exits with 1 if anything is missing.

        greenroom migrate path/to/agents

        greenroom migrate path/to/agents --to path/to/copy

    Parameters
    ----------
    directory
        A folder of apps, the folder of one app, or one file. Hidden folders and `node_modules` are skipped.
    write
        Write the changes. Without it, and without `--to`, nothing is written.
    to
        A new folder, into which everything is copied, and where the changes are written.
    """
    if to is not None:
        if write:
            raise InvalidRequest("--write changes the folder itself, --to a copy of it: give one of them")
        if to.exists():
            raise InvalidRequest(f"{to} exists already")
        if not directory.is_dir():
            raise InvalidRequest("--to copies a folder")

    changes = list(_changes(directory))
    for change in changes:
        _show(change)

    if write:
        _write(changes, directory, directory)
        missing = _report(directory, directory)
    elif to is not None:
        shutil.copytree(directory, to, ignore=_SKIPPED)
        _write(changes, directory, to)
        missing = _report(to, to)
    else:
        missing = _show_findings_after(changes, directory)

    if missing:
        sys.exit(1)


def _write(changes: list[_Change], directory: Path, to: Path) -> None:
    for change in changes:
        (to / change.path.relative_to(directory)).write_bytes(change.new)
    note(f"{len(changes)} files changed", "green")


def _show_findings_after(changes: list[_Change], directory: Path) -> int:
    """Shows the findings that there will be when the changes are written."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "copy")
        if directory.is_dir():
            shutil.copytree(directory, copy, ignore=_SKIPPED)
        else:
            copy.mkdir()
            copy /= directory.name
            shutil.copy(directory, copy)
        for change in changes:
            (copy / change.path.relative_to(directory)).write_bytes(change.new)
        missing = _report(copy, directory)
    if changes:
        note(f"{len(changes)} files would change; write them with --write, or into a copy with --to")
    return missing


def _report(directory: Path, shown_as: Path) -> int:
    """Shows what has to be done by hand, and returns how many things are missing."""
    from greenroom.cli.app_check.app_files import AppFiles
    from greenroom.cli.app_check.names import ADK

    stays = 0
    for source in AppFiles(directory).sources.values():
        for one in source.imports:
            if f"{one.module}.".startswith(f"{ADK}.") and not one.is_optional:
                path = shown_as / source.path.relative_to(directory)
                name = f" import {one.name}" if one.name else ""
                print_line(f"{path}:{one.line}: greenroom has nothing in place of {one.module}{name}")
                stays += 1
    return stays + show_findings(directory, shown_as=shown_as)


def _changes(directory: Path) -> Iterator[_Change]:
    from greenroom.cli.app_check.app_files import AppFiles
    from greenroom.cli.app_check.rewrite import rewritten

    files = AppFiles(directory)
    for source in [*files.sources.values(), *files.read_others()]:
        old = source.path.read_bytes()
        new = rewritten(source)
        if new != old:
            yield _Change(source.path, old, new)

    for pattern in _REQUIREMENT_FILES if directory.is_dir() else ():
        for path in sorted(directory.glob(pattern)):
            text = path.read_text(encoding="utf-8")
            new_text = _ADK.sub("greenroom", text)
            if new_text != text:
                yield _Change(path, text.encode(), new_text.encode())


def _show(change: _Change) -> None:
    old = change.old.decode(errors="replace").splitlines()
    new = change.new.decode(errors="replace").splitlines()
    name = str(change.path)
    for line in difflib.unified_diff(old, new, name, name, lineterm=""):
        print_line(line)
