"""Packages that all tests of this folder install or look into."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from tests.packaging.build import (
    Packages,
    copy_source,
    dev_ui_files,
    packages_in,
    require_dev_ui,
    run_build,
    tracked_files,
)
from tests.packaging.installation import write_constraints


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Packages:
    """The source distribution, and the wheel that is built from it; those in the folder GREENROOM_DIST if it is set."""
    given = os.environ.get("GREENROOM_DIST")
    if given:
        return packages_in(Path(given))

    require_dev_ui()
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # one build for all processes of the tests
    with (folder / "packages.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "packages").is_dir():
            source = copy_source(folder / "packages-source", [*tracked_files(), *dev_ui_files()])
            done = run_build(source, folder / "packages-build")
            assert done.returncode == 0, done.stderr
            (folder / "packages-build").rename(folder / "packages")
    return packages_in(folder / "packages")


@pytest.fixture(scope="session")
def constraints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The locked version of each package."""
    return write_constraints(tmp_path_factory.mktemp("lock") / "constraints.txt")
