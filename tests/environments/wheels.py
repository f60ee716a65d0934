"""Wheels made of the packages that are installed here, for installations without a network."""

from __future__ import annotations

import csv
import io
import subprocess
import zipfile
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

from tests.packaging.build import ROOT, find_uv, require_dev_ui

_LEFT_OUT = ("INSTALLER", "REQUESTED", "RECORD", "direct_url.json", "uv_cache.json")


def write_wheels(folder: Path, requirement: str) -> None:
    """Writes the wheel of greenroom, built from its source, and those of all that the requirement needs.

    requirement: of greenroom, with extras.
    """
    folder.mkdir(parents=True, exist_ok=True)
    require_dev_ui()
    subprocess.run([find_uv(), "build", "--quiet", "--wheel", "--out-dir", folder, ROOT], check=True)
    (folder / ".gitignore").unlink(missing_ok=True)

    waiting = [Requirement(requirement)]
    seen: set[tuple[str, str]] = set()
    written: set[str] = set()
    while waiting:
        wanted = waiting.pop()
        installed = distribution(wanted.name)
        if wanted.name.lower() not in written and wanted.name != "greenroom":
            written.add(wanted.name.lower())
            _write_wheel(folder, installed)
        for extra in ("", *wanted.extras):
            if (wanted.name, extra) in seen:
                continue
            seen.add((wanted.name, extra))
            needed = [Requirement(text) for text in installed.requires or ()]
            waiting += [one for one in needed if one.marker is None or one.marker.evaluate({"extra": extra})]


def _write_wheel(folder: Path, installed: Distribution) -> None:
    metadata = installed.read_text("WHEEL") or ""
    tag = next(line.removeprefix("Tag: ") for line in metadata.splitlines() if line.startswith("Tag: "))
    files = [
        file
        for file in installed.files or ()
        if file.parts[0] != ".." and "__pycache__" not in file.parts and file.name not in _LEFT_OUT
    ]
    info = next(file.parts[0] for file in files if file.parts[0].endswith(".dist-info"))
    record = io.StringIO()
    csv.writer(record).writerows([str(file), "", ""] for file in [*files, f"{info}/RECORD"])

    name = f"{info.removesuffix('.dist-info')}-{tag}.whl"
    with zipfile.ZipFile(folder / name, "w", zipfile.ZIP_STORED) as wheel:
        for file in files:
            wheel.write(Path(str(file.locate())), str(file))
        wheel.writestr(f"{info}/RECORD", record.getvalue())
