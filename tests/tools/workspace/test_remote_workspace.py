"""Workspaces in sandboxes of E2B's: its own SDK, against a small server with its interface."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from greenroom.environments.e2b import E2BEnvironment
from greenroom.records.content import FunctionCall
from tests.agents.talk import STREAMED
from tests.environments.e2b_server import KEY, E2BServer
from tests.requirements import require_bubblewrap
from tests.tools.workspace.test_workspace import Desk, desk


@pytest.fixture
async def e2b(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AsyncIterator[E2BServer]:
    require_bubblewrap()
    async with E2BServer().serving() as server:
        server.private_folder = tmp_path / "work"
        monkeypatch.setenv("E2B_API_URL", server.url)
        monkeypatch.setenv("E2B_SANDBOX_URL", server.url)
        monkeypatch.setenv("E2B_API_KEY", KEY)
        yield server
        assert server.sandboxes == {}


@pytest.fixture
async def one(e2b: E2BServer, tmp_path: Path) -> AsyncIterator[Desk]:
    async with desk(sandbox=E2BEnvironment(working_dir=tmp_path / "work")) as one:
        yield one


async def test_commands_and_code_share_files_which_are_artifacts(one: Desk, e2b: E2BServer) -> None:
    await one.upload("data.csv", b"1,2")
    assert await one.call("run_shell", command="cat data.csv > a.txt; echo out; echo err >&2") == {
        "status": "ok", "stdout": "out\n", "stderr": "err\n", "files": ["a.txt"],
    }  # fmt: skip
    assert (await one.call("run_python", code="x = 7; print(open('a.txt').read())"))["stdout"] == "1,2\n"
    assert (await one.call("run_python", code="print(x)"))["stdout"] == "7\n"
    assert (await one.call("write_file", path="b.txt", content="b"))["files"] == ["b.txt"]
    assert await one.call("run_shell", command="cat b.txt; rm b.txt") == {"status": "ok", "stdout": "b"}
    assert [file["path"] for file in (await one.call("list_files"))["files"]] == ["a.txt", "data.csv"]
    assert (await one.call("search_files", regex="1,"))["matches"] == "a.txt:1:1,2\ndata.csv:1:1,2\n"
    assert await one.artifacts() == ["a.txt", "b.txt", "data.csv"]
    assert len(e2b.created) == 1


async def test_a_new_sandbox_has_the_files_of_one_that_was_stopped(one: Desk, e2b: E2BServer) -> None:
    await one.call("run_python", code="x = 1; open('a.txt', 'w').write('saved')")
    await e2b.end_all()
    assert "E2B has ended" in (await one.call("run_python", code="print(x)"))["error"]
    after = await one.call("run_python", code="print('x' in globals(), open('a.txt').read())")
    assert (after["stdout"], after["note"]) == (
        "False saved\n",
        "The variables of earlier code are gone; the files are still there.",
    )


async def test_output_is_sent_while_a_command_runs(one: Desk) -> None:
    calls = [FunctionCall(name="run_shell", args={"command": "echo first; sleep 1.5; echo last"})]
    events = await one.events(calls, run_config=STREAMED)
    pieces = [event.custom_metadata["toolOutput"] for event in events if event.partial and event.custom_metadata]
    assert [piece["stdout"] for piece in pieces] == ["first\n", "last\n"]
