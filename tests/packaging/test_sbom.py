"""The bill of materials of the wheel."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from greenroom.version import __version__
from tests.packaging.build import COMMIT_TIME, ROOT, Packages, find_uv
from tests.packaging.installation import Installation, run

pytestmark = pytest.mark.slow


def test_the_bill_of_materials_lists_what_the_wheel_installs(
    packages: Packages, constraints: Path, tmp_path: Path
) -> None:
    written: Any = json.loads(_write(packages.wheel, tmp_path / "first.json"))
    assert _write(packages.wheel, tmp_path / "second.json") == (tmp_path / "first.json").read_text()

    subject = written["metadata"]["component"]
    assert subject["purl"] == f"pkg:pypi/greenroom@{__version__}"
    assert subject["hashes"] == [{"alg": "SHA-256", "content": hashlib.sha256(packages.wheel.read_bytes()).hexdigest()}]

    installed = Installation(tmp_path, sys.executable)
    installed.install(str(packages.wheel), constraints)
    listed: Any = json.loads(run([find_uv(), "pip", "list", "--format=json", f"--python={installed.python}"]))
    required = {
        (each["name"], each["version"])
        for each in written["components"]
        if each["scope"] == "required" and not _is_for_windows(each)
    }
    assert required | {("greenroom", __version__)} == {(each["name"], each["version"]) for each in listed}
    assert {each["name"] for each in written["components"] if each["scope"] == "optional"} >= {"openai", "asyncpg"}
    assert all(_has_hash(each) for each in written["components"])


def _write(wheel: Path, file: Path) -> str:
    command = [find_uv(), "run", "--isolated", "--frozen", "--only-group", "release", "python", "scripts/sbom.py"]
    path = os.pathsep.join([os.environ["PATH"], str(Path(find_uv()).parent)])
    run([*command, str(wheel), str(file)], cwd=ROOT, env={**os.environ, "PATH": path, "SOURCE_DATE_EPOCH": COMMIT_TIME})
    return file.read_text()


def _is_for_windows(component: Any) -> bool:
    return any("== 'win32'" in each["value"] for each in component.get("properties", ()))


def _has_hash(component: Any) -> bool:
    return any(reference.get("hashes") for reference in component["externalReferences"])
