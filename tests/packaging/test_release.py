"""`make release`, in repositories of their own."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.packaging.build import copy_source, find_uv, tracked_files

pytestmark = pytest.mark.slow

_CHANGELOG = """# Changelog

## Unreleased

## 9.1.0 - 2026-12-01

### Added
- A release.

## 9.0.0 - 2026-11-01
"""


class Repository:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.write("src/greenroom/version.py", '"""The version."""\n\n__version__ = "9.1.0"\n')
        self.write("CHANGELOG.md", _CHANGELOG)
        self.git("init", "--quiet", "--initial-branch", "main")
        self.git("config", "user.name", "Ada")
        self.git("config", "user.email", "ada@example.com")
        self.commit()

    def write(self, name: str, text: str) -> None:
        (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_text(text)

    def git(self, *arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=self.folder, check=True, capture_output=True, text=True)
        return done.stdout

    def commit(self) -> None:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "A commit")

    def release(self, version: str) -> subprocess.CompletedProcess[str]:
        return self.run(sys.executable, "scripts/release.py", version)

    def run(self, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join([os.environ["PATH"], str(Path(find_uv()).parent)])
        return subprocess.run(
            command,
            cwd=self.folder,
            env={**os.environ, "PATH": path, **environment},
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """One that `make release` accepts, but has nothing to build."""
    return Repository(copy_source(tmp_path / "repository", ["Makefile", "scripts/release.py", ".gitignore"]))


def _on_a_branch(repository: Repository) -> None:
    repository.git("switch", "--quiet", "--create", "feature")


def _with_a_new_file(repository: Repository) -> None:
    repository.write("notes.txt", "")


def _with_a_tag(repository: Repository) -> None:
    repository.git("tag", "v9.1.0")


def _with_another_version(repository: Repository) -> None:
    repository.write("src/greenroom/version.py", '__version__ = "9.0.0"\n')
    repository.commit()


def _with_unreleased_entries(repository: Repository) -> None:
    repository.write("CHANGELOG.md", _CHANGELOG.replace("## Unreleased\n", "## Unreleased\n- Something else.\n"))
    repository.commit()


def _without_a_date(repository: Repository) -> None:
    repository.write("CHANGELOG.md", _CHANGELOG.replace(" - 2026-12-01", ""))
    repository.commit()


def _without_entries(repository: Repository) -> None:
    repository.write("CHANGELOG.md", _CHANGELOG.replace("### Added\n- A release.\n", ""))
    repository.commit()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (_on_a_branch, "Releases are made from main; this is feature"),
        (_with_a_new_file, "These files are not committed:\n?? notes.txt"),
        (_with_a_tag, "The tag v9.1.0 exists already"),
        (_with_another_version, "src/greenroom/version.py says 9.0.0, not 9.1.0"),
        (_with_unreleased_entries, "CHANGELOG.md must begin with an empty section `## Unreleased`"),
        (_without_a_date, "CHANGELOG.md must have the heading `## 9.1.0 - YYYY-MM-DD`"),
        (_without_entries, "The section of 9.1.0 in CHANGELOG.md is empty"),
        (lambda _: None, "Nothing was released: `make --directory"),
    ],
)
def test_what_is_not_ready_is_refused(
    repository: Repository, change: Callable[[Repository], None], reason: str
) -> None:
    change(repository)
    tags = repository.git("tag")
    done = repository.release("9.1.0")
    assert done.returncode != 0
    assert reason in done.stderr
    assert repository.git("tag") == tags
    assert not (repository.folder / "dist").exists()


@pytest.mark.parametrize("version", ["", "9.1", "v9.1.0", "9.01.0"])
def test_other_versions_than_of_three_numbers_are_refused(repository: Repository, version: str) -> None:
    assert "is not a version: write make release VERSION=x.y.z" in repository.release(version).stderr


@pytest.mark.skipif(
    os.environ.get("GREENROOM_PACKAGES") != "1" or "GREENROOM_DIST" in os.environ,
    reason="Only `make test-packages` makes a release, which takes minutes and runs other tests of this folder",
)
def test_a_release_is_built_checked_and_tagged(tmp_path: Path) -> None:
    repository = Repository(copy_source(tmp_path / "repository", tracked_files()))
    done = repository.run("make", "release", "VERSION=9.1.0", PYTEST_ADDOPTS="-k first_answer")
    assert done.returncode == 0, done.stdout + done.stderr

    dist = repository.folder / "dist"
    names = ["greenroom-9.1.0-py3-none-any.whl", "greenroom-9.1.0.cdx.json", "greenroom-9.1.0.tar.gz"]
    assert sorted(path.name for path in dist.iterdir()) == ["SHA256SUMS", *names]
    for line in (dist / "SHA256SUMS").read_text().splitlines():
        digest, _, name = line.partition("  ")
        assert hashlib.sha256((dist / name).read_bytes()).hexdigest() == digest

    assert repository.git("cat-file", "-t", "v9.1.0") == "tag\n"
    message = repository.git("tag", "--list", "--format=%(contents)", "v9.1.0")
    assert message.strip() == "greenroom 9.1.0\n\n### Added\n- A release."
    assert re.search(r"git push origin main v9\.1\.0\n.*uv publish", done.stdout)
    assert repository.git("status", "--porcelain") == ""
    shutil.rmtree(repository.folder)
