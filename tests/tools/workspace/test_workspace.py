"""Commands, code and files in a session's workspace, in a real sandbox; the files are the session's artifacts."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.records.base import JsonObject
from greenroom.records.content import FunctionCall, Part
from greenroom.records.event import Event
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.tools.workspace.commands import CodeTool, ShellTool
from greenroom.tools.workspace.toolset import WorkspaceToolset
from tests.agents.talk import STREAMED, Talk
from tests.requirements import skip_or_fail
from tests.tools.one_call import calls_in_a_run


@pytest.fixture(autouse=True)
def bubblewrap() -> None:
    if shutil.which("bwrap") is None:
        skip_or_fail("bubblewrap is not installed")


class Desk:
    """A session whose agent has a workspace. Each `call` is a run of its own."""

    def __init__(self, toolset: WorkspaceToolset) -> None:
        self.toolset = toolset
        self._turns: list[Any] = []
        model = ScriptedModel(lambda request: self._turns.pop(0))
        self.talk = Talk(LlmAgent(name="agent", model=model, tools=[toolset]))

    async def call(self, name: str, /, **args: Any) -> JsonObject:
        (response,) = await self.calls((name, args))
        return response

    async def calls(self, *calls: tuple[str, JsonObject]) -> list[JsonObject]:
        """The responses of calls in one reply of the model, which run side by side."""
        events = await self.events([FunctionCall(name=name, args=args) for name, args in calls])
        return [r.response or {} for event in events for r in event.get_function_responses()]

    async def events(self, calls: list[FunctionCall], **options: Any) -> list[Event]:
        self._turns[:] = [calls, "Done."]
        return await self.talk.say("go", **options)

    async def artifacts(self) -> list[str]:
        service = self.talk.runner.artifact_service
        assert service is not None
        return await service.list_artifact_keys(app_name="app", user_id="ada", session_id="s-1")

    async def upload(self, name: str, content: bytes) -> None:
        service = self.talk.runner.artifact_service
        assert service is not None
        part = Part.from_bytes(data=content, mime_type="text/plain")
        await service.save_artifact(app_name="app", user_id="ada", session_id="s-1", filename=name, artifact=part)


@asynccontextmanager
async def desk(**options: Any) -> AsyncGenerator[Desk]:
    toolset = WorkspaceToolset(**options)
    try:
        yield Desk(toolset)
    finally:
        await toolset.close()


async def test_commands_and_code_share_files_which_are_artifacts() -> None:
    async with desk() as one:
        assert await one.call("run_shell", command="echo hello > a.txt; echo out; echo err >&2") == {
            "status": "ok", "stdout": "out\n", "stderr": "err\n", "files": ["a.txt"],
        }  # fmt: skip
        assert (await one.call("run_python", code="x = 7; print(open('a.txt').read())"))["stdout"] == "hello\n\n"
        assert (await one.call("run_python", code="print(x)"))["stdout"] == "7\n"
        assert (await one.call("run_shell", command="exit 3")) == {"status": "error", "exit_code": 3}
        assert await one.artifacts() == ["a.txt"]


async def test_files_are_read_written_edited_listed_and_searched() -> None:
    async with desk() as one:
        assert await one.call("write_file", path="src/a.py", content="one = 1\ntwo = 2\n") == {
            "status": "ok", "files": ["src/a.py"],
        }  # fmt: skip
        assert (await one.call("read_file", path="src/a.py", start_line=2))["content"] == "     2\ttwo = 2\n"
        assert (await one.call("edit_file", path="src/a.py", old_text="two = 2", new_text="two = 3"))["status"] == "ok"
        assert (await one.call("run_shell", command="cat src/a.py"))["stdout"] == "one = 1\ntwo = 3\n"
        assert (await one.call("list_files"))["files"] == [{"path": "src/a.py", "size": 16}]
        assert (await one.call("list_files", pattern="*.csv"))["files"] == []
        assert (await one.call("search_files", regex=r"= [3]", pattern="*.py"))["matches"] == "src/a.py:2:two = 3\n"


@pytest.mark.parametrize(
    ("name", "args", "reason"),
    [
        ("read_file", {"path": "none"}, "There is no file 'none'"),
        ("read_file", {"path": "../../etc/shadow"}, ""),
        ("read_file", {"path": "/etc/shadow"}, ""),
        ("write_file", {"path": "../a", "content": ""}, ""),
        ("edit_file", {"path": "f", "old_text": "a", "new_text": "b"}, "There is no file 'f'"),
        ("search_files", {"regex": "("}, "missing )"),
        ("search_files", {"regex": "(a+)+$", "pattern": "*"}, ""),
    ],
)
async def test_what_fails_is_reported_and_the_workspace_goes_on(name: str, args: JsonObject, reason: str) -> None:
    async with desk() as one:
        await one.call("run_python", code="x = 1")
        response = await one.call(name, **args)
        if reason:
            assert response["status"] == "error"
            assert reason in response["error"]
        assert "root:" not in str(response)
        assert (await one.call("run_python", code="print(x)"))["stdout"] == "1\n"


async def test_uploads_and_new_versions_appear_and_deleted_files_stay_away() -> None:
    async with desk() as one:
        await one.call("run_shell", command="true")
        await one.upload("data.csv", b"1")
        assert (await one.call("run_shell", command="cat data.csv"))["stdout"] == "1"
        await one.upload("data.csv", b"22")
        assert (await one.call("run_shell", command="cat data.csv; rm data.csv"))["stdout"] == "22"
        assert (await one.call("list_files"))["files"] == []

    async with desk() as other:
        other.talk = one.talk
        assert await one.artifacts() == ["data.csv"]


async def test_another_server_finds_the_files_and_is_told_that_variables_are_gone() -> None:
    async with desk() as one:
        await one.call("run_python", code="x = 1; open('kept.txt', 'w').write('kept'); open('gone', 'w').close()")
        await one.call("run_shell", command="rm gone")

    # The toolset is closed, as by a restart of the server: its sandboxes have ended.
    response = await one.call("run_python", code="print(open('kept.txt').read(), 'x' in globals())")
    assert response["stdout"] == "kept False\n"
    assert "variables of earlier code are gone" in response["note"]
    assert [file["path"] for file in (await one.call("list_files"))["files"]] == ["kept.txt"]
    assert "note" not in await one.call("run_python", code="1")


async def test_a_rewind_takes_back_files() -> None:
    async with desk() as one:
        await one.call("run_shell", command="echo 1 > f")
        events = await one.events([FunctionCall(name="run_shell", args={"command": "echo 2 > f; echo new > g"})])
        await one.talk.runner.rewind_async(
            user_id="ada", session_id="s-1", rewind_before_invocation_id=events[0].invocation_id
        )
        assert (await one.call("run_shell", command="cat f; ls"))["stdout"] == "1\nf\n"


async def test_output_is_sent_while_a_command_runs() -> None:
    async with desk() as one:
        command = "for i in 1 2 3; do echo $i; sleep 0.2; done"
        events = await one.events(
            [FunctionCall(id="c-1", name="run_shell", args={"command": command})], run_config=STREAMED
        )
    pieces = [event.custom_metadata["toolOutput"] for event in events if event.partial and event.custom_metadata]
    assert "".join(piece["stdout"] for piece in pieces)[:2] == "1\n"
    assert len(pieces) >= 2
    assert {piece["functionCallId"] for piece in pieces} == {"c-1"}


async def test_calls_of_one_reply_do_not_disturb_each_other() -> None:
    async with desk() as one:
        both = await one.calls(
            ("run_shell", {"command": "echo a >> f; sleep 0.3; cat f"}),
            ("run_shell", {"command": "echo a >> f; sleep 0.3; cat f"}),
        )
        assert sorted(response["stdout"] for response in both) == ["a\n", "a\na\n"]


async def test_sessions_have_workspaces_of_their_own() -> None:
    async with desk() as one:
        await one.call("run_shell", command="echo secret > f")
        one.talk.session_id = "s-2"
        assert "stdout" not in await one.call("run_shell", command="ls")


async def test_a_command_that_takes_too_long_is_stopped_and_its_files_are_kept() -> None:
    async with desk(timeout_seconds=0.5) as one:
        response = await one.call("run_shell", command="echo 1 > f; sleep 60")
        assert response == {
            "status": "error", "error": "The command was stopped after 0.5 seconds.",
            "exit_code": response["exit_code"], "files": ["f"],
        }  # fmt: skip


async def test_a_sandbox_that_ends_during_a_command_loses_no_saved_file() -> None:
    async with desk() as one:
        await one.call("run_shell", command="echo 1 > f")
        running = asyncio.create_task(one.call("run_shell", command="rm f; sleep 60"))
        await asyncio.sleep(0.5)
        (kept,) = one.toolset._workspaces._pool._kept.values()
        await kept.sandbox.close()
        assert (await running)["status"] == "error"
        assert (await one.call("run_shell", command="cat f"))["stdout"] == "1\n"


async def test_commands_cannot_write_artifacts_of_the_users_other_sessions() -> None:
    async with desk() as one:
        assert await one.call("run_shell", command="echo 1 > user:profile.txt; echo 2 > fine.txt") == {
            "status": "ok", "files": ["fine.txt"], "not_kept": ["user:profile.txt"],
        }  # fmt: skip
        assert (await one.call("write_file", path="user:a", content="1"))["not_kept"] == ["user:a"]
        assert await one.artifacts() == ["fine.txt"]


async def test_a_cancelled_command_leaves_nothing_behind() -> None:
    async with desk() as one:
        await one.call("run_shell", command="echo 1 > f")
        running = asyncio.create_task(one.call("run_shell", command="echo 2 > f; sleep 60"))
        await asyncio.sleep(0.5)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert (await one.call("run_shell", command="cat f"))["stdout"] == "1\n"


async def test_a_person_approves_commands_as_the_policy_says() -> None:
    async with desk(require_confirmation=lambda args: "rm" in args.get("command", "")) as one:
        assert (await one.call("run_python", code="print(1)"))["stdout"] == "1\n"
        assert (await one.call("run_shell", command="echo 1"))["stdout"] == "1\n"
        assert "needs approval" in (await one.call("run_shell", command="rm f"))["error"]


@pytest.mark.parametrize("tool", [ShellTool(), CodeTool()])
async def test_a_single_tool_has_workspaces_of_its_own(tool: ShellTool | CodeTool) -> None:
    arguments = {"run_shell": {"command": "echo 1"}, "run_python": {"code": "print(1)"}}[tool.name]
    assert (await calls_in_a_run(tool, (tool.name, arguments))).response["stdout"] == "1\n"
