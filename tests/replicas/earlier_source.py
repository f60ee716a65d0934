"""The source of an earlier commit, from the repository's history."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tempfile
import zipfile
from pathlib import Path

from tests.replicas.servers import REPOSITORY
from tests.requirements import skip_or_fail


def source_of(commit: str, cache: Path) -> Path:
    """The folder of the commit's packages, for PYTHONPATH.

    cache: a folder that is kept. Skips the test where the commit is not in the history.
    """
    folder = cache / commit
    if not folder.exists():
        archive = _archive(commit)
        with tempfile.TemporaryDirectory(dir=cache) as unpacked:
            with zipfile.ZipFile(io.BytesIO(archive)) as files:
                files.extractall(unpacked)
            try:
                os.rename(Path(unpacked) / "src", folder)  # whole, or not at all
            except OSError:
                assert folder.exists(), "another process was faster"
    return folder


def _archive(commit: str) -> bytes:
    git = shutil.which("git")
    if git is None:
        skip_or_fail("git is not installed")
    command = [git, "-C", str(REPOSITORY), "archive", "--format=zip", commit, "src/greenroom"]
    made = subprocess.run(command, capture_output=True, check=False)
    if made.returncode:
        skip_or_fail(f"commit {commit} is not in this clone's history (a shallow clone?): {made.stderr.decode()}")
    return made.stdout
