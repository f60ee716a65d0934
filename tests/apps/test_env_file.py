from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from greenroom.apps.load_directory import parse

_LOADER = """
import os, sys
from pathlib import Path
from greenroom.apps.load_directory import load_env_file

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


def test_lines_of_all_kinds() -> None:
    text = (
        "# a comment\n"
        "PLAIN=abc\n"
        "  export EXPORTED = with spaces  # and a comment\n"
        "HASH=a#b\n"
        "EMPTY=\n"
        "SINGLE='as $it \\n is # here'\n"
        'DOUBLE="a \\"quote\\", a\\nline # here"  # out\n'
        'LINES="one\ntwo"\r\n'
        "WINDOWS=crlf\r\n"
        "UNCLOSED='abc\n"
        "URL=postgres://u:p@h/db?a=b\n"
        "no assignment\n"
        "1ST=not a name\n"
        "TWICE=1\n"
        "TWICE=2"
    )
    assert parse(text) == {
        "PLAIN": "abc",
        "EXPORTED": "with spaces",
        "HASH": "a#b",
        "EMPTY": "",
        "SINGLE": "as $it \\n is # here",
        "DOUBLE": 'a "quote", a\nline # here',
        "LINES": "one\ntwo",
        "WINDOWS": "crlf",
        "UNCLOSED": "'abc",
        "URL": "postgres://u:p@h/db?a=b",
        "TWICE": "2",
    }
