"""The file assistant, with MCP's filesystem server of npm. `make node-servers` installs it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from greenroom.testing.scripted_model import ScriptedModel
from tests.agents.talk import call
from tests.examples.gallery import EXAMPLES, ROOT, check_transcript, converse, responses, served, transcript
from tests.requirements import skip_or_fail

SERVER = ROOT / "tests/node/node_modules/@modelcontextprotocol/server-filesystem/dist/index.js"
NODE = shutil.which("node")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the example's files, which the assistant looks after."""
    if NODE is None or not SERVER.exists():
        skip_or_fail("needs node and MCP's filesystem server: make node-servers")
    folder = tmp_path / "files"
    shutil.copytree(EXAMPLES / "file_assistant" / "files", folder)
    monkeypatch.setenv("FILES", str(folder))
    monkeypatch.setenv("FILE_SERVER", f"{NODE} {SERVER}")
    return folder


def gardening_model(folder: Path) -> ScriptedModel:
    notes = [str(folder / name) for name in ("garden-autumn.md", "garden-spring.md")]
    return ScriptedModel(
        [
            call("list_directory", path=str(folder)),
            call("read_multiple_files", paths=notes),
            call(
                "write_file",
                path=str(folder / "garden.md"),
                content="# Garden\n- Sow peas and spinach in March.\n- Plant tulips in October.\n",
            ),
            "The notes on the garden are now in garden.md. I left the old ones where they are.",
        ]
    )


QUESTION = "Put my notes on the garden into one file."


async def test_it_reads_by_itself_and_writes_what_a_person_approved(tmp_path: Path, folder: Path) -> None:
    async with served("file_assistant", gardening_model(folder), tmp_path) as server:
        events = await converse(server, "file_assistant", QUESTION)
        assert not (folder / "garden.md").exists()
        events = await converse(server, "file_assistant", {"approve": True})
    assert (folder / "garden.md").read_text().startswith("# Garden\n- Sow peas")
    check_transcript("file_assistant", transcript(events, {str(folder): "/files"}))


async def test_a_refused_change_is_not_made(tmp_path: Path, folder: Path) -> None:
    async with served("file_assistant", gardening_model(folder), tmp_path) as server:
        events = await converse(server, "file_assistant", QUESTION, {"approve": False})
    assert "error" in responses(events)[-1]
    assert not (folder / "garden.md").exists()


async def test_files_outside_of_the_folder_stay_closed(tmp_path: Path, folder: Path) -> None:
    model = ScriptedModel([call("read_text_file", path=str(tmp_path / "secret.txt")), "I may not read that."])
    (tmp_path / "secret.txt").write_text("42")
    async with served("file_assistant", model, tmp_path) as server:
        events = await converse(server, "file_assistant", "What is in ../secret.txt?")
    (denied,) = responses(events)
    assert denied["isError"] is True
    assert "Access denied" in denied["content"][0]["text"]
