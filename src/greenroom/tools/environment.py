"""The functions by which a model runs commands and edits files in an environment.

Source of names, arguments and results: ADK's environment toolset.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any

from greenroom.environments.environment import BaseEnvironment
from greenroom.invocation.user_context import ReadonlyContext, ToolContext
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.model_exchange import LlmRequest
from greenroom.tools.functions.function_tool import FunctionTool
from greenroom.tools.tool import BaseTool, OnInterrupt
from greenroom.tools.toolset import BaseToolset, ToolPredicate

COMMAND_SECONDS = 30.0
MAX_OUTPUT_CHARS = 30_000

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
        self._max_output_chars = max_output_chars or MAX_OUTPUT_CHARS
        self._command_seconds = command_seconds
        self._initializing = asyncio.Lock()
        self._tools: list[BaseTool] = [
            _EnvironmentTool("Execute", self._execute, on_interrupt="report"),
            _EnvironmentTool("ReadFile", self._read_file, on_interrupt="retry"),
            _EnvironmentTool("EditFile", self._edit_file, on_interrupt="report"),
            _EnvironmentTool("WriteFile", self._write_file, on_interrupt="retry"),
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
        result: JsonObject = {"status": "error" if ran.exit_code or ran.timed_out else "ok"}
        for name, text in (("stdout", ran.stdout), ("stderr", ran.stderr)):
            if text:
                result[name] = self._cut(text)

        if ran.exit_code:
            result["exit_code"] = ran.exit_code

        if ran.timed_out:
            result["error"] = f"The command was stopped after {self._command_seconds:g} seconds."

        return result

    async def _read_file(
        self,
        path: FilePath,
        start_line: Annotated[int | None, "First line, from 1."] = None,
        end_line: Annotated[int | None, "Last line, included."] = None,
    ) -> JsonObject:
        """Reads a file, with line numbers, which are not part of it."""
        lines = (await self.environment.read_file(path)).splitlines(keepends=True)
        first = max(start_line or 1, 1)
        last = min(end_line or len(lines), len(lines))
        if first > last and (lines or first > 1):
            wanted = f"Lines {first} to {end_line or 'the end'} don't exist"
            return {"error": f"{wanted}: the file has {len(lines)} lines.", "total_lines": len(lines)}

        numbered = enumerate(lines[first - 1 : last], first)
        content = "".join(f"{number:6d}\t{line.decode(errors='replace')}" for number, line in numbered)
        result: JsonObject = {"status": "ok", "content": self._cut(content)}

        if last - first + 1 == len(lines):
            return result

        return {**result, "total_lines": len(lines)}

    async def _edit_file(
        self,
        path: FilePath,
        old_string: Annotated[str, "The text to replace, which must occur exactly once."],
        new_string: Annotated[str, "The text to put in its place."],
    ) -> JsonObject:
        """Replaces a text in a file."""
        if not old_string:
            return {"error": "old_string must not be empty; use WriteFile to create a file."}

        content = (await self.environment.read_file(path)).decode()
        lines = old_string.replace("\r\n", "\n").split("\n")

        matches = list(re.finditer("\r?\n".join(map(re.escape, lines)), content))
        if len(matches) != 1:
            count = f"{len(matches)} times" if matches else "nowhere"
            return {"error": f"old_string occurs {count} in {path}; it must occur exactly once."}

        start, end = matches[0].span()
        await self.environment.write_file(
            path,
            (content[:start] + new_string + content[end:]).encode(),
        )

        return {"status": "ok", "message": f"Edited {path}"}

    async def _write_file(
        self,
        path: FilePath,
        content: Annotated[str, "The whole content."],
    ) -> JsonObject:
        """Creates a file, or replaces its content."""
        await self.environment.write_file(path, content)
        return {"status": "ok", "message": f"Wrote {path}"}

    def _cut(self, text: str) -> str:
        if len(text) <= self._max_output_chars:
            return text
        return f"{text[: self._max_output_chars]}\n… (cut off; {len(text)} characters in all)"


class _EnvironmentTool(FunctionTool):
    """Results with an `error`, and exceptions, have the status `error`."""

    def __init__(
        self,
        name: str,
        func: Callable[..., Awaitable[JsonValue]],
        *,
        on_interrupt: OnInterrupt,
    ) -> None:
        super().__init__(func, name=name, on_interrupt=on_interrupt)

    async def run_async(self, *, args: JsonObject, tool_context: ToolContext) -> JsonValue:
        try:
            result: Any = await super().run_async(args=args, tool_context=tool_context)
        except FileNotFoundError:
            result = {"error": f"There is no file {args.get('path')!r}."}
        except Exception as error:  # an environment may raise anything; the model can take another way
            result = {"error": str(error) or type(error).__name__}

        if "error" in result:
            return {"status": "error", **result}

        return result
