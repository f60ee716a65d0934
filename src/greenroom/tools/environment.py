"""The functions by which a model runs commands and edits files in an environment.

Source of names, arguments and results: ADK's environment toolset.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated

from greenroom.environments.environment import BaseEnvironment
from greenroom.invocation.user_context import ReadonlyContext, ToolContext
from greenroom.records.base import JsonObject
from greenroom.records.model_exchange import LlmRequest
from greenroom.tools.command_result import MAX_OUTPUT_CHARACTERS, command_result, cut
from greenroom.tools.functions.reporting_tool import ReportingTool
from greenroom.tools.text_files import numbered_lines, replace_once
from greenroom.tools.tool import BaseTool
from greenroom.tools.toolset import BaseToolset, ToolPredicate

COMMAND_SECONDS = 30.0

_INSTRUCTION = (
    "You can work in an environment whose working directory is {working_dir}. Run shell commands with `Execute`, read "
    "files with `ReadFile`, change them with `EditFile` and create them with `WriteFile`; paths are relative to the "
    "working directory. Read a file before you edit it."
)

FilePath = Annotated[str, "Path of the file."]


class EnvironmentToolset(BaseToolset):
    """`Execute`, `ReadFile`, `EditFile` and `WriteFile` in an environment.

    The environment is initialized when the tools are first needed, and closed with the toolset.

    max_output_chars: of one result; the rest is cut off, with a note.
    command_seconds: timeout of one command. Failures are results for the model: `{"status":
        "error", …}`.
    """

    def __init__(
        self,
        *,
        environment: BaseEnvironment,
        max_output_chars: int | None = None,
        command_seconds: float = COMMAND_SECONDS,
        tool_filter: Sequence[str] | ToolPredicate | None = None,
        tool_name_prefix: str | None = None,
    ) -> None:
        super().__init__(tool_filter=tool_filter, tool_name_prefix=tool_name_prefix)
        self.environment = environment
        self._max_output_chars = max_output_chars or MAX_OUTPUT_CHARACTERS
        self._command_seconds = command_seconds
        self._initializing = asyncio.Lock()
        self._tools: list[BaseTool] = [
            ReportingTool(self._execute, name="Execute", on_interrupt="report"),
            ReportingTool(self._read_file, name="ReadFile", on_interrupt="retry"),
            ReportingTool(self._edit_file, name="EditFile", on_interrupt="report"),
            ReportingTool(self._write_file, name="WriteFile", on_interrupt="retry"),
        ]

    async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> list[BaseTool]:
        async with self._initializing:
            if not self.environment.is_initialized:
                await self.environment.initialize()
                self.environment.is_initialized = True
        return list(self._tools)

    async def process_llm_request(
        self,
        *,
        tool_context: ToolContext,
        llm_request: LlmRequest,
    ) -> None:
        llm_request.append_instructions([_INSTRUCTION.format(working_dir=self.environment.working_dir)])

    async def close(self) -> None:
        async with self._initializing:
            if self.environment.is_initialized:
                self.environment.is_initialized = False
                await self.environment.close()

    async def _execute(self, command: Annotated[str, "The shell command."]) -> JsonObject:
        """Runs a shell command in the working directory, and returns what it prints."""
        ran = await self.environment.execute(command, timeout=self._command_seconds)
        return command_result(ran, self._command_seconds, self._max_output_chars)

    async def _read_file(
        self,
        path: FilePath,
        start_line: Annotated[int | None, "First line, from 1."] = None,
        end_line: Annotated[int | None, "Last line, included."] = None,
    ) -> JsonObject:
        """Reads a file, with line numbers, which are not part of it."""
        lines = numbered_lines(await self.environment.read_file(path), start_line, end_line)
        return {"status": "ok", **lines, "content": cut(lines["content"], self._max_output_chars)}

    async def _edit_file(
        self,
        path: FilePath,
        old_string: Annotated[str, "The text to replace, which must occur exactly once."],
        new_string: Annotated[str, "The text to put in its place."],
    ) -> JsonObject:
        """Replaces a text in a file."""
        content = replace_once(await self.environment.read_file(path), old_string, new_string, path)
        await self.environment.write_file(path, content)
        return {"status": "ok", "message": f"Edited {path}"}

    async def _write_file(
        self,
        path: FilePath,
        content: Annotated[str, "The whole content."],
    ) -> JsonObject:
        """Creates a file, or replaces its content."""
        await self.environment.write_file(path, content)
        return {"status": "ok", "message": f"Wrote {path}"}
