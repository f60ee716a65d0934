"""The source of an earlier commit, and its agents of these tests, from the repository's history."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tempfile
import zipfile
from pathlib import Path
from typing import NamedTuple

from tests.replicas.servers import REPOSITORY
from tests.requirements import skip_or_fail

_AGENTS = "tests/replicas/agents"


class Source(NamedTuple):
    """The files of a commit."""

    python_path: str
    agents: Path
    """Those of today may need what the commit lacks."""


def source_of(commit: str, cache: Path) -> Source:
    """Returns the files of a commit.

    cache: a folder that is kept. Skips the test where the commit is not in the history.
    """
    folder = cache / commit
    if not folder.exists():
        archive = _archive(commit)
        with tempfile.TemporaryDirectory(dir=cache, ignore_cleanup_errors=True) as unpacked:
            with zipfile.ZipFile(io.BytesIO(archive)) as files:
                files.extractall(unpacked)
            try:
                os.rename(unpacked, folder)  # whole, or not at all
            except OSError:
                assert folder.exists(), "another process was faster"
    return Source(str(folder / "src"), folder / _AGENTS)


def _archive(commit: str) -> bytes:
    git = shutil.which("git")
    if git is None:
        skip_or_fail("git is not installed")
    command = [git, "-C", str(REPOSITORY), "archive", "--format=zip", commit, "src/greenroom", _AGENTS]
    made = subprocess.run(command, capture_output=True, check=False)
    if made.returncode:
        skip_or_fail(f"commit {commit} is not in this clone's history (a shallow clone?): {made.stderr.decode()}")
    return made.stdout
