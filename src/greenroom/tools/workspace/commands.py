"""Tools that run shell commands and Python in a session's workspace."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

from greenroom.environments.sandbox import Sandbox
from greenroom.invocation.user_context import ToolContext
from greenroom.records.approval_policy import ApprovalPolicy
from greenroom.records.base import JsonObject
from greenroom.tools.command_result import command_result
from greenroom.tools.confirmation import ConfirmationPredicate
from greenroom.tools.functions.reporting_tool import ReportingTool
from greenroom.tools.output_events import output_events
from greenroom.tools.tool import OnInterrupt
from greenroom.tools.workspace.workspace import Workspaces

COMMAND_SECONDS = 60.0

_VARIABLES_ARE_LOST = "The variables of earlier code are gone; the files are still there."


class _WorkspaceTool(ReportingTool):
    """A function that needs workspaces. It has its own, unless it shares those of other tools."""

    def __init__(
        self,
        func: Callable[..., Awaitable[JsonObject]],
        workspaces: Workspaces | Sandbox | None,
        *,
        name: str,
        timeout_seconds: float,
        require_confirmation: bool | ApprovalPolicy | ConfirmationPredicate,
        on_interrupt: OnInterrupt,
    ) -> None:
        super().__init__(func, name=name, require_confirmation=require_confirmation, on_interrupt=on_interrupt)
        self.workspaces = workspaces if isinstance(workspaces, Workspaces) else Workspaces(workspaces)
        self._timeout_seconds = timeout_seconds

    async def close(self) -> None:
        """Stops the sandboxes."""
        await self.workspaces.close()


class ShellTool(_WorkspaceTool):
    """`run_shell`: a shell command in the session's workspace, in a sandbox.

    What it prints is sent while it runs, as partial events with `toolOutput` in their metadata, and
    the files that it writes are saved as artifacts.

    sandbox: with the limits and the network that commands get; None for `default_sandbox()`. Or the
        `Workspaces` that several tools share.
    require_confirmation: whether a person must approve each command; or a function of `command`,
        that says so.
    on_interrupt: for a command that a crash cut off.
    """

    def __init__(
        self,
        sandbox: Sandbox | Workspaces | None = None,
        *,
        name: str = "run_shell",
        timeout_seconds: float = COMMAND_SECONDS,
        require_confirmation: bool | ApprovalPolicy | ConfirmationPredicate = False,
        on_interrupt: OnInterrupt = "report",
    ) -> None:
        super().__init__(
            self._run,
            sandbox,
            name=name,
            timeout_seconds=timeout_seconds,
            require_confirmation=require_confirmation,
            on_interrupt=on_interrupt,
        )

    async def _run(self, command: Annotated[str, "The shell command."], tool_context: ToolContext) -> JsonObject:
        """Runs a shell command in the workspace, and returns what it prints. Files that it writes there are kept."""
        async with self.workspaces.open(tool_context) as workspace, output_events(self.name, tool_context) as on_output:
            ran = await workspace.sandbox.execute(command, timeout=self._timeout_seconds, on_output=on_output)
            await workspace.save_changes()
            return {**command_result(ran, self._timeout_seconds), **workspace.notes()}


class CodeTool(_WorkspaceTool):
    """`run_python`: Python in the session's workspace, in a sandbox. Variables are kept from one call to the next, as
    long as the server keeps the sandbox.

    Arguments as those of `ShellTool`; a function as `require_confirmation` gets `code`.
    """

    def __init__(
        self,
        sandbox: Sandbox | Workspaces | None = None,
        *,
        name: str = "run_python",
        timeout_seconds: float = COMMAND_SECONDS,
        require_confirmation: bool | ApprovalPolicy | ConfirmationPredicate = False,
        on_interrupt: OnInterrupt = "report",
    ) -> None:
        super().__init__(
            self._run,
            sandbox,
            name=name,
            timeout_seconds=timeout_seconds,
            require_confirmation=require_confirmation,
            on_interrupt=on_interrupt,
        )

    async def _run(self, code: Annotated[str, "The Python code."], tool_context: ToolContext) -> JsonObject:
        """Runs Python code in the workspace, and returns what it prints; print what you want to know. Variables of
        earlier code are there. Files that it writes are kept.
        """
        async with self.workspaces.open(tool_context) as workspace, output_events(self.name, tool_context) as on_output:
            has_lost_variables = workspace.has_lost_variables()
            ran = await workspace.sandbox.run_python(
                code, timeout=self._timeout_seconds, keeps_variables=True, on_output=on_output
            )
            await workspace.save_changes()
            result = {**command_result(ran, self._timeout_seconds), **workspace.notes()}
            if has_lost_variables:
                result["note"] = _VARIABLES_ARE_LOST
            return result
