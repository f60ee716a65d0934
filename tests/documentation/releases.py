"""Wheels of the checkout, and of a release that would come after it: a higher version, and one more migration."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.packaging.build import ROOT, copy_source, dev_ui_files, find_uv, require_dev_ui, tracked_files

_PACKAGE = Path("src", "greenroom")


def build_release(folder: Path) -> None:
    """Writes the wheel of the checkout."""
    require_dev_ui()
    _build(ROOT, folder)


def build_next_release(folder: Path, scratch: Path) -> None:
    """Writes the wheel of the next minor version, whose migration adds a table."""
    names = [name for name in tracked_files() if name.startswith("src/") or "/" not in name]
    copy_source(scratch, [*names, *dev_ui_files()])

    version = scratch / _PACKAGE / "version.py"
    text, count = re.subn(
        r'"(\d+)\.(\d+)\.\d+"', lambda found: f'"{found[1]}.{int(found[2]) + 1}.0"', version.read_text()
    )
    assert count == 1
    version.write_text(text)

    for database in ("postgres", "sqlite"):
        migrations = scratch / _PACKAGE / database / "migrations"
        number = max(int(path.name[:4]) for path in migrations.glob("*.sql")) + 1
        (migrations / f"{number:04}_next_release.sql").write_text("CREATE TABLE next_release (id integer);\n")
    _build(scratch, folder)


def _build(source: Path, folder: Path) -> None:
    subprocess.run([find_uv(), "build", "--quiet", "--wheel", "--out-dir", folder, source], check=True)
