"""All tools of a session's workspace."""

from __future__ import annotations

import json
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Annotated

from greenroom.environments.sandbox import Sandbox
from greenroom.errors import ToolError
from greenroom.invocation.user_context import ReadonlyContext, ToolContext
from greenroom.records.approval_policy import ApprovalPolicy
from greenroom.records.base import JsonObject
from greenroom.records.model_exchange import LlmRequest
from greenroom.tools.command_result import MAX_OUTPUT_CHARACTERS, cut
from greenroom.tools.confirmation import ConfirmationPredicate
from greenroom.tools.functions.reporting_tool import ReportingTool
from greenroom.tools.text_files import numbered_lines, replace_once
from greenroom.tools.tool import BaseTool
from greenroom.tools.toolset import BaseToolset, ToolPredicate
from greenroom.tools.workspace.commands import COMMAND_SECONDS, CodeTool, ShellTool
from greenroom.tools.workspace.workspace import Workspaces

MAX_LISTED_FILES = 500
SEARCH_SECONDS = 20.0

FilePath = Annotated[str, "Path of the file in the workspace."]


class WorkspaceToolset(BaseToolset):
    """Commands, Python and files in a sandbox of the session's own: `run_shell`, `run_python`, `read_file`,
    `write_file`, `edit_file`, `list_files` and `search_files`.

    The files are the session's artifacts: what a user uploads is there, and what is written there can be downloaded.
    So they outlive the sandbox, the server and a move to another server.

    sandbox: with the limits and the network that commands get; None for `default_sandbox()`. Without
        a shell, as WebAssembly is, there is no `run_shell`.
    require_confirmation: whether a person must approve each command and each piece of code; or a
        function of the map of a call's arguments, `command` or `code`, that says so.
    timeout_seconds: of one command.
    """

    def __init__(
        self,
        sandbox: Sandbox | None = None,
        *,
        timeout_seconds: float = COMMAND_SECONDS,
        require_confirmation: bool | ApprovalPolicy | ConfirmationPredicate = False,
        tool_filter: Sequence[str] | ToolPredicate | None = None,
        tool_name_prefix: str | None = None,
    ) -> None:
        super().__init__(tool_filter=tool_filter, tool_name_prefix=tool_name_prefix)
        self._workspaces = Workspaces(sandbox)
        shell = ShellTool(self._workspaces, timeout_seconds=timeout_seconds, require_confirmation=require_confirmation)
        code = CodeTool(self._workspaces, timeout_seconds=timeout_seconds, require_confirmation=require_confirmation)
        self._tools: list[BaseTool] = [
            code,
            ReportingTool(self.read_file, on_interrupt="retry"),
            ReportingTool(self.write_file, on_interrupt="retry"),
            ReportingTool(self.edit_file, on_interrupt="report"),
            ReportingTool(self.list_files, on_interrupt="retry"),
            ReportingTool(self.search_files, on_interrupt="retry"),
        ]
        if sandbox is None or sandbox.has_shell:
            self._tools.insert(0, shell)

    async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> list[BaseTool]:
        return list(self._tools)

    async def process_llm_request(
        self,
        *,
        tool_context: ToolContext,
        llm_request: LlmRequest,
    ) -> None:
        llm_request.append_instructions([_INSTRUCTION])

    async def close(self) -> None:
        """Stops the sandboxes."""
        await self._workspaces.close()

    async def read_file(
        self,
        path: FilePath,
        tool_context: ToolContext,
        start_line: Annotated[int | None, "First line, from 1."] = None,
        end_line: Annotated[int | None, "Last line, included."] = None,
    ) -> JsonObject:
        """Reads a file of the workspace, with line numbers, which are not part of it."""
        async with self._workspaces.open(tool_context) as workspace:
            content = await workspace.sandbox.read_file(path)
        lines = numbered_lines(content, start_line, end_line)
        return {"status": "ok", **lines, "content": cut(lines["content"], MAX_OUTPUT_CHARACTERS)}

    async def write_file(
        self,
        path: FilePath,
        content: Annotated[str, "The whole content."],
        tool_context: ToolContext,
    ) -> JsonObject:
        """Creates a file in the workspace, or replaces its content."""
        async with self._workspaces.open(tool_context) as workspace:
            await workspace.write(path, content.encode())
            return {"status": "ok", **workspace.notes()}

    async def edit_file(
        self,
        path: FilePath,
        old_text: Annotated[str, "The text to replace, which must occur exactly once."],
        new_text: Annotated[str, "The text to put in its place."],
        tool_context: ToolContext,
    ) -> JsonObject:
        """Replaces a text in a file of the workspace."""
        async with self._workspaces.open(tool_context) as workspace:
            content = replace_once(await workspace.sandbox.read_file(path), old_text, new_text, path)
            await workspace.write(path, content)
            return {"status": "ok", **workspace.notes()}

    async def list_files(
        self,
        tool_context: ToolContext,
        pattern: Annotated[str, "Such as *.csv; * also matches slashes."] = "*",
    ) -> JsonObject:
        """Lists files of the workspace, with their sizes in bytes."""
        async with self._workspaces.open(tool_context) as workspace:
            files = [file for file in await workspace.sandbox.list_files() if fnmatchcase(file.name, pattern)]
        listed = [{"path": file.name, "size": file.size} for file in files[:MAX_LISTED_FILES]]
        if len(files) > len(listed):
            return {"status": "ok", "files": listed, "total_files": len(files)}
        return {"status": "ok", "files": listed}

    async def search_files(
        self,
        regex: Annotated[str, "A regular expression of Python, for one line."],
        tool_context: ToolContext,
        pattern: Annotated[str, "Searches only files whose path matches, such as *.py."] = "*",
    ) -> JsonObject:
        """Searches the lines of the workspace's text files."""
        # It runs in the sandbox, since an expression can take forever.
        code = _SEARCH.format(arguments=json.dumps({"regex": regex, "pattern": pattern}))
        async with self._workspaces.open(tool_context) as workspace:
            ran = await workspace.sandbox.run_python(code, timeout=SEARCH_SECONDS)
        if ran.timed_out:
            raise ToolError(f"The search was stopped after {SEARCH_SECONDS:g} seconds.")
        if ran.exit_code:
            raise ToolError(cut(ran.stderr.strip().rpartition("\n")[2] or "The search failed.", 1_000))
        return {"status": "ok", "matches": cut(ran.stdout, MAX_OUTPUT_CHARACTERS)}


_INSTRUCTION = (
    "You have a workspace: a folder with the files of this conversation, in a sandbox. Files that you write there are "
    "kept, and the user can download them. Paths are relative to it. Read a file before you edit it, and look at "
    "results before you report them."
)

_SEARCH = """\
import fnmatch, json, os, re
arguments = json.loads({arguments!r})
expression = re.compile(arguments["regex"])
for folder, folders, names in os.walk("."):
    folders.sort()
    for name in sorted(names):
        path = os.path.relpath(os.path.join(folder, name))
        if os.path.isfile(path) and not os.path.islink(path) and fnmatch.fnmatchcase(path, arguments["pattern"]):
            with open(path, encoding="utf-8", errors="replace") as file:
                for number, line in enumerate(file, 1):
                    if expression.search(line):
                        print(path, number, line.rstrip("\\n")[:500], sep=":")
"""
