from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from greenroom.apps import env_file
from greenroom.apps.env_file import load_env_file

_LOADER = """
import os, sys
from pathlib import Path
from greenroom.apps.env_file import load_env_file

for folder in sys.argv[1:]:
    load_env_file(Path(folder))
    print(os.environ.get("OWN"), os.environ.get("GIVEN"))
"""


def test_a_later_app_s_file_counts_before_an_earlier_one_s_and_the_process_before_both(tmp_path: Path) -> None:
    for app in ("one", "two"):
        (tmp_path / app).mkdir()
        (tmp_path / app / ".env").write_text(f"OWN={app}\nGIVEN={app}")
    (tmp_path / "two" / "below").mkdir()
    folders = [str(tmp_path / "one"), str(tmp_path / "two" / "below"), str(tmp_path / "one")]
    environment = {**os.environ, "GIVEN": "by the process"}
    command = [sys.executable, "-c", _LOADER, *folders]
    loaded = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert loaded.stdout.splitlines() == [f"{app} by the process" for app in ("one", "two", "one")]


def variables(
    tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch, names: Sequence[str]
) -> dict[str, str | None]:
    """Those names after the file was loaded."""
    (tmp_path / ".env").write_text(text)
    for name in names:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setattr(env_file, "_variables_of_the_process", frozenset(os.environ))
    load_env_file(tmp_path)
    return {name: os.environ.get(name) for name in names}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("URL=postgresql://${DB_USER}@db\nDB_USER=later", "postgresql://of-the-process@db"),
        ("DB_USER=of-the-file\nURL=${DB_USER}", "of-the-file"),
        ("URL=${MISSING_NAME}", ""),
        ("URL=${MISSING_NAME:-sqlite}", "sqlite"),
        ("URL='${DB_USER}'", "of-the-process"),
        ("URL=$DB_USER", "$DB_USER"),
        ("export URL = with spaces  # and a comment", "with spaces"),
        ("URL=a#b", "a#b"),
        ('URL="a \\"quote\\", a\\nline # here"  # out', 'a "quote", a\nline # here'),
        ('URL="one\ntwo"\r\n', "one\ntwo"),
        ("\ufeffURL=after a byte order mark", "after a byte order mark"),
        ("URL=1\nURL=2", "2"),
        ("URL", None),
    ],
)
def test_values_are_read_as_python_dotenv_reads_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, expected: str | None
) -> None:
    monkeypatch.setenv("DB_USER", "of-the-process")
    assert variables(tmp_path, text, monkeypatch, ["URL"]) == {"URL": expected}
