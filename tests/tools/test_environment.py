"""Working in an environment: commands and files of a local folder. Rows 7.4, 7.5."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.environments.environment import BaseEnvironment
from greenroom.environments.local import LocalEnvironment
from greenroom.environments.process import ExecutionResult
from greenroom.records.base import JsonObject
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.tools.environment import EnvironmentToolset
from tests.agents.talk import Talk
from tests.tools.one_call import call_once, calls_in_a_run


def toolset(folder: Path | None = None, **options: Any) -> EnvironmentToolset:
    return EnvironmentToolset(environment=LocalEnvironment(working_dir=folder), **options)


async def ask(folder: Path, name: str, /, **args: Any) -> JsonObject:
    return (await call_once(toolset(folder), name, args)).response


def is_running(process_id: int) -> bool:
    """Whether it has not ended yet; a process that nobody has waited for has ended, too."""
    status = Path(f"/proc/{process_id}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


async def test_a_command_runs_in_the_working_directory(tmp_path: Path) -> None:
    assert await ask(tmp_path / "new", "Execute", command="pwd") == {"status": "ok", "stdout": f"{tmp_path}/new\n"}


async def test_a_command_that_fails_returns_its_exit_code(tmp_path: Path) -> None:
    response = await ask(tmp_path, "Execute", command="echo no >&2; exit 3")
    assert response == {"status": "error", "stderr": "no\n", "exit_code": 3}


async def test_a_command_that_takes_too_long_is_stopped_with_all_it_started(tmp_path: Path) -> None:
    tools = toolset(tmp_path, command_seconds=0.2)
    response = (await call_once(tools, "Execute", {"command": "sleep 60 & echo $!; wait"})).response
    assert response["error"] == "The command was stopped after 0.2 seconds."
    assert not is_running(int(response["stdout"]))


async def test_a_process_that_left_the_group_does_not_hold_up_the_result(tmp_path: Path) -> None:
    environment = LocalEnvironment(working_dir=tmp_path)
    await environment.initialize()
    async with asyncio.timeout(5):
        result = await environment.execute("setsid sleep 20 & echo started")
    assert result.stdout == "started\n"


async def test_a_cancelled_command_is_killed(tmp_path: Path) -> None:
    environment = LocalEnvironment(working_dir=tmp_path)
    await environment.initialize()
    fifo = tmp_path / "pid"
    os.mkfifo(fifo)
    command = asyncio.create_task(environment.execute(f"echo $$ > {fifo}; sleep 60"))
    process_id = int(await asyncio.to_thread(fifo.read_text))
    command.cancel()
    with pytest.raises(asyncio.CancelledError):
        await command
    async with asyncio.timeout(5):
        while is_running(process_id):
            await asyncio.sleep(0)


async def test_files_are_written_read_and_edited(tmp_path: Path) -> None:
    calls = await calls_in_a_run(
        toolset(tmp_path),
        ("WriteFile", {"path": "a/b.txt", "content": "one\ntwo\nthree\n"}),
        ("EditFile", {"path": "a/b.txt", "old_string": "two\n", "new_string": "2\n"}),
        ("ReadFile", {"path": "a/b.txt"}),
        ("ReadFile", {"path": "a/b.txt", "start_line": 2, "end_line": 2}),
    )
    assert calls.responses == [
        {"status": "ok", "message": "Wrote a/b.txt"},
        {"status": "ok", "message": "Edited a/b.txt"},
        {"status": "ok", "content": "     1\tone\n     2\t2\n     3\tthree\n"},
        {"status": "ok", "content": "     2\t2\n", "total_lines": 3},
    ]


async def test_an_edit_finds_its_text_whatever_the_line_ends(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"one\r\ntwo\r\n")
    await ask(tmp_path, "EditFile", path="f", old_string="one\ntwo", new_string="1")
    assert (tmp_path / "f").read_bytes() == b"1\r\n"


@pytest.mark.parametrize(
    ("name", "args", "error"),
    [
        ("EditFile", {"path": "f", "old_string": "x", "new_string": "y"}, "occurs nowhere in f"),
        ("EditFile", {"path": "f", "old_string": "a", "new_string": "y"}, "occurs 2 times in f"),
        ("EditFile", {"path": "f", "old_string": "", "new_string": "y"}, "must not be empty"),
        ("ReadFile", {"path": "missing"}, "There is no file 'missing'"),
        ("ReadFile", {"path": "f", "start_line": 7}, "Lines 7 to the end don't exist: the file has 1 lines"),
        ("ReadFile", {"path": "../f"}, "leads out of the working directory"),
        ("WriteFile", {"path": "link/f", "content": ""}, "leads out of the working directory"),
        ("WriteFile", {"path": "f"}, "mandatory arguments are missing"),
    ],
)
async def test_what_can_not_be_done_is_reported_to_the_model(
    tmp_path: Path, name: str, args: dict[str, Any], error: str
) -> None:
    (tmp_path / "f").write_text("a a")
    (tmp_path / "link").symlink_to("/tmp")
    response = await ask(tmp_path, name, **args)
    assert response["status"] == "error"
    assert error in response["error"]
    assert (tmp_path / "f").read_text() == "a a"


async def test_an_empty_file_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    assert await ask(tmp_path, "ReadFile", path="f") == {"status": "ok", "content": ""}


async def test_long_output_is_cut(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x" * 100)
    tools = toolset(tmp_path, max_output_chars=10)
    response = (await call_once(tools, "Execute", {"command": "cat f"})).response
    assert response["stdout"] == f"{'x' * 10}\n… (cut off; 100 characters in all)"


async def test_a_temporary_folder_lives_as_long_as_the_toolset() -> None:
    tools = toolset()
    model = ScriptedModel(["hi"])
    talk = Talk(LlmAgent(name="a", model=model, tools=[tools]))
    await talk.say("hello")
    folder = tools.environment.working_dir
    assert str(folder) in model.requests[0].config.system_text()
    assert folder.name.startswith("adk_workspace_")
    await talk.runner.close()
    assert not folder.exists()


async def test_variables_are_added_to_the_servers_own() -> None:
    environment = LocalEnvironment(env_vars={"GREETING": "hi"})
    await environment.initialize()
    assert await environment.execute("echo $GREETING $HOME") == ExecutionResult(stdout=f"hi {os.environ['HOME']}\n")
    await environment.close()
    with pytest.raises(RuntimeError, match="initialize"):
        await environment.execute("true")


async def test_an_environment_of_ones_own_is_initialized_once() -> None:
    class Notes(BaseEnvironment):
        started = 0

        @property
        def working_dir(self) -> Path:
            return Path("/notes")

        async def initialize(self) -> None:
            self.started += 1
            await asyncio.sleep(0)

        async def execute(self, command: str, *, timeout: float | None = None) -> ExecutionResult:
            raise OSError("no shell here")

        async def read_file(self, path: str | Path) -> bytes:
            return b"note"

        async def write_file(self, path: str | Path, content: str | bytes) -> None:
            raise PermissionError("read-only")

    notes = Notes()
    tools = EnvironmentToolset(environment=notes, tool_name_prefix="notes")
    await asyncio.gather(tools.get_tools(), tools.get_tools())
    calls = await calls_in_a_run(tools, ("notes_Execute", {"command": "ls"}), ("notes_ReadFile", {"path": "x"}))
    assert calls.responses == [
        {"status": "error", "error": "no shell here"},
        {"status": "ok", "content": "     1\tnote"},
    ]
    assert notes.started == 1
