"""Builds of the package from a copy of the source."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tests.requirements import skip_or_fail

ROOT = Path(__file__).parents[2]
DEV_UI = "src/greenroom/server/dev_ui"

COMMIT_TIME = "1700000000"
"""Seconds since 1970, in place of a commit's time."""


class Packages(NamedTuple):
    wheel: Path
    source: Path


def find_uv() -> str:
    """Path of uv, of this machine or of the checkout; skips the test, or fails it, without one."""
    uv = shutil.which("uv", path=os.pathsep.join([os.environ["PATH"], str(ROOT / ".uv" / "bin")]))
    return uv or skip_or_fail("There is no uv; `make setup` installs it")


def require_dev_ui() -> None:
    """Skips the test, or fails it, without the built dev UI."""
    if not (ROOT / DEV_UI / "index.html").is_file():
        skip_or_fail("The dev UI is not built; `make ui` builds it")


def tracked_files() -> list[str]:
    """Files of the source that git tracks, or would add."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def dev_ui_files() -> list[str]:
    return [str(path.relative_to(ROOT)) for path in (ROOT / DEV_UI).rglob("*") if path.is_file()]


def copy_source(folder: Path, names: Iterable[str]) -> Path:
    for name in names:
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, target)
    return folder


def run_build(source: Path, output: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Builds in an environment whose PATH has no program, so also no node and no git."""
    empty = output.parent / "no-programs"
    empty.mkdir(exist_ok=True)
    return subprocess.run(
        [find_uv(), "build", "--python", python(), "--out-dir", output, *options, source],
        env={**os.environ, "PATH": str(empty), "SOURCE_DATE_EPOCH": COMMIT_TIME},
        capture_output=True,
        text=True,
        check=False,
    )


def python() -> str:
    """The interpreter that the environment of the tests was made from."""
    return str(Path(sys.executable).resolve())


def packages_in(folder: Path) -> Packages:
    [wheel] = folder.glob("greenroom-*.whl")
    [source] = folder.glob("greenroom-*.tar.gz")
    return Packages(wheel, source)
