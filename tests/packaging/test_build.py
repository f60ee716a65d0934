"""Contents of the wheel and the source distribution, and builds that repeat."""

from __future__ import annotations

import os
import subprocess
import tarfile
import tomllib
import zipfile
from collections.abc import Callable
from email.parser import Parser
from pathlib import Path

import pytest

from greenroom.version import __version__
from tests.packaging.build import (
    ROOT,
    Packages,
    copy_source,
    dev_ui_files,
    find_uv,
    packages_in,
    run_build,
    tracked_files,
)

pytestmark = pytest.mark.slow


def test_the_wheel_has_each_file_of_the_package_and_the_dev_ui(packages: Packages) -> None:
    expected = {name.removeprefix("src/") for name in [*tracked_files(), *dev_ui_files()] if name.startswith("src/")}
    with zipfile.ZipFile(packages.wheel) as wheel:
        found = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert found == expected
    assert {"greenroom/py.typed", "greenroom/adk_names.toml", "greenroom/server/dev_ui/index.html"} <= found


def test_the_source_distribution_has_each_file_of_the_source_and_the_dev_ui(packages: Packages) -> None:
    top = f"greenroom-{__version__}/"
    with tarfile.open(packages.source) as source:
        found = {member.name.removeprefix(top) for member in source.getmembers() if member.isfile()}
    assert found == {*tracked_files(), *dev_ui_files(), "PKG-INFO"}


def test_the_metadata_is_that_of_the_project(packages: Packages) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    with zipfile.ZipFile(packages.wheel) as wheel:
        text = wheel.read(f"greenroom-{__version__}.dist-info/METADATA").decode()
        assert f"greenroom-{__version__}.dist-info/licenses/LICENSE" in wheel.namelist()
    metadata = Parser().parsestr(text)

    assert metadata["Version"] == __version__
    assert metadata["Summary"] == project["description"]
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert str(metadata.get_payload()).strip() == (ROOT / "README.md").read_text().strip()
    assert set(metadata.get_all("Provides-Extra", ())) == project["optional-dependencies"].keys()
    versions = [f"Programming Language :: Python :: 3.{minor}" for minor in (11, 12, 13, 14)]
    assert {*versions, "Typing :: Typed"} <= set(metadata.get_all("Classifier", ()))


def test_the_index_accepts_the_packages(packages: Packages) -> None:
    command = [find_uv(), "run", "--isolated", "--frozen", "--only-group", "release", "twine", "check", "--strict"]
    done = subprocess.run([*command, *packages], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_another_build_has_the_same_bytes(packages: Packages, tmp_path: Path) -> None:
    """It is in another folder, with other times and permissions of files, and builds the wheel without the source
    distribution."""
    if "GREENROOM_DIST" in os.environ:
        pytest.skip("These packages were not built here; `make release` compares two builds of the whole source")

    source = copy_source(tmp_path / "another folder" / "greenroom", [*tracked_files(), *dev_ui_files()])
    for path in source.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)
        os.utime(path, (1, 1_500_000_000))
    done = run_build(source, tmp_path / "dist", "--wheel", "--sdist")
    assert done.returncode == 0, done.stderr

    for first, second in zip(packages, packages_in(tmp_path / "dist"), strict=True):
        assert second.name == first.name
        assert second.read_bytes() == first.read_bytes(), _differences(first, second)


@pytest.mark.parametrize("kind", ["--wheel", "--sdist"])
def test_a_build_without_the_dev_ui_is_refused(tmp_path: Path, kind: str) -> None:
    needed = ["LICENSE", "README.md", "hatch_build.py", "pyproject.toml", "src/greenroom/version.py"]
    done = run_build(copy_source(tmp_path / "source", needed), tmp_path / "dist", kind)
    assert done.returncode != 0
    assert "The dev UI is not built: src/greenroom/server/dev_ui/index.html is missing. `make build`" in done.stderr
    assert not list(tmp_path.glob("dist/greenroom*"))


def _differences(first: Path, second: Path) -> list[str]:
    """Names of the files in two archives that differ."""
    read: Callable[[Path], dict[str, object]] = _zip_files if first.suffix == ".whl" else _tar_files
    one, other = read(first), read(second)
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


def _zip_files(path: Path) -> dict[str, object]:
    with zipfile.ZipFile(path) as archive:
        return {each.filename: (each.CRC, each.date_time, each.external_attr) for each in archive.infolist()}


def _tar_files(path: Path) -> dict[str, object]:
    with tarfile.open(path) as archive:
        return {each.name: (each.size, each.mtime, each.mode, each.chksum) for each in archive.getmembers()}
