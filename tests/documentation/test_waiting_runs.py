"""The page about waiting runs: the server answers as it says, and its commands run."""

from __future__ import annotations

import re
import shlex
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from greenroom.sessions.sqlite import SqliteSessionService
from tests.documentation.transcript import Transcript
from tests.examples.test_approval import new_session, say, scripted_app
from tests.server.serving import serving

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "waiting-runs.md").read_text()
CONSOLE = "\n".join(re.findall(r"^```console\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))


@pytest.fixture
async def examples(tmp_path: Path) -> Path:
    """A folder with the example, and with a conversation in which it waits for an approval."""
    folder = tmp_path / "examples"
    folder.mkdir()
    (folder / "approval").symlink_to(ROOT / "examples" / "approval")
    data = folder / ".greenroom"
    async with serving(scripted_app(data)) as server:
        await new_session(server)
        await say(server, {"text": "Pay 4200 to Roof Repairs."})
        transcript = Transcript(PAGE)
        assert len(transcript.exchanges) == 2
        for exchange in transcript.exchanges:
            await transcript.check(server, exchange)
    (data / "sessions.db").rename(data / "greenroom.db")
    return folder


def test_the_commands_run(examples: Path) -> None:
    commands = re.findall(r"^\$ greenroom (.+)$", CONSOLE, re.MULTILINE)
    assert len(commands) == 5
    for command in commands:
        done = subprocess.run(
            [sys.executable, "-m", "greenroom", *shlex.split(command)],
            cwd=examples.parent,
            capture_output=True,
            text=True,
            timeout=30,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        if command.endswith("--session s-1"):
            assert f"$ greenroom {command}\n{done.stdout}" in CONSOLE


async def test_the_query_finds_the_open_call(examples: Path) -> None:
    [query] = re.findall(r'greenroom\.db "(.*?)"$', CONSOLE, re.DOTALL | re.MULTILINE)
    with sqlite3.connect(f"file:{examples}/.greenroom/greenroom.db?mode=ro", uri=True) as database:
        rows = database.execute(query).fetchall()
    database.close()
    assert [seq for seq, *_ in rows] == [1, 2, 3, 4]
    sessions = SqliteSessionService(examples / ".greenroom" / "greenroom.db")
    page = await sessions.list_events(app_name="approval", user_id="ada", session_id="s-1")
    await sessions.close()
    [open_call] = page.events[2].long_running_tool_ids or []
    assert [waits for *_, waits, _ in rows] == [None, "[]", f'["{open_call}"]', None]
