"""Workspaces: a sandbox for each session, whose files are the session's artifacts.

The artifacts are what counts; a sandbox is a copy of them in which commands run. Example: a user uploads `sales.csv`.
The first command starts a sandbox and copies that file into it; the command writes `chart.png`, which becomes version 0
of an artifact. Then the server is stopped, or another server continues with the session: the next command starts
another sandbox, and finds both files. After a rewind to before the first command, `chart.png` is not there.
"""

from __future__ import annotations

import asyncio
import mimetypes
from collections.abc import AsyncGenerator, Awaitable, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

from greenroom.artifacts.service import belongs_to_session
from greenroom.environments.files import File
from greenroom.environments.sandbox import Sandbox
from greenroom.environments.sandbox_pool import KeptSandbox, SandboxPool
from greenroom.errors import CallerError
from greenroom.invocation.user_context import ToolContext
from greenroom.records.base import JsonObject
from greenroom.records.content import Part

STATE_KEY = "_workspace"
"""Of the session's state: `removed` has the artifacts that were deleted in the workspace, each with the version that
was there, and `interpreter` the id of the sandbox that has the variables of earlier code.
"""

MAX_FILES = 500
"""Of a session, that are copied into its sandbox."""

_CALLS_AT_A_TIME = 16
_BINARY = "application/octet-stream"

T = TypeVar("T")


class Workspace:
    """The workspace of one session, while a call uses it.

    saved: names of the artifacts that the call has saved. not_kept: names of files that are too many or too large, or
    that can't be the name of an artifact.
    """

    def __init__(self, kept: KeptSandbox, tool_context: ToolContext) -> None:
        self.sandbox: Sandbox = kept.sandbox
        self.saved: list[str] = []
        self.not_kept: list[str] = []
        self._kept = kept
        self._versions = kept.versions
        self._tool_context = tool_context
        self._has_artifacts = tool_context.invocation_context.artifact_service is not None

    async def copy_in(self) -> None:
        """Brings the sandbox up to date with the artifacts."""
        if not self._has_artifacts:
            return

        current = await self._current_versions()
        changed = [name for name, version in current.items() if self._versions.get(name) != version]
        files = await self._load(changed, current)
        await self.sandbox.write_files(files)

        # A rewind leaves a version without content.
        for name in set(changed).difference(file.name for file in files):
            del current[name]
        gone = [name for name in self._versions if name not in current]
        if gone:
            await self.sandbox.remove_files(gone)

        self._versions.clear()
        self._versions.update(current)

    async def save_changes(self) -> None:
        """Saves the files that commands and code have written, and notes those that they have deleted."""
        if not self.sandbox.is_running:  # they have ended it
            return
        try:
            changed, not_kept = await self.sandbox.changed_files()
            self.not_kept += not_kept
            for file in changed:
                await self.save(file)

            if self._has_artifacts:
                present = {file.name for file in await self.sandbox.list_files()}
                self._note_removed([name for name in self._versions if name not in present])
        except Exception:
            self._kept.is_spoiled = True
            raise

    async def save(self, file: File) -> None:
        """Saves one file as an artifact."""
        if not self._has_artifacts:
            return
        if not belongs_to_session(file.name):
            self.not_kept.append(file.name)
            return
        try:
            part = Part.from_bytes(data=file.content, mime_type=file.mime_type)
            self._versions[file.name] = await self._tool_context.save_artifact(file.name, part)
        except CallerError:  # a name that artifacts can't have, or more bytes than the server takes
            self.not_kept.append(file.name)
        else:
            self.saved.append(file.name)

    async def write(self, name: str, content: bytes) -> None:
        """Writes a file, and saves it."""
        await self.sandbox.write_file(name, content)
        await self.save(File(name=name, content=content, mime_type=mimetypes.guess_type(name)[0] or _BINARY))

    def notes(self) -> JsonObject:
        """The names of files that were saved or not kept, for a tool's result."""
        notes: JsonObject = {}
        if self.saved:
            notes["files"] = self.saved
        if self.not_kept:
            notes["not_kept"] = self.not_kept
        return notes

    async def _current_versions(self) -> dict[str, int]:
        """The newest version of each artifact of the session that belongs into the workspace."""
        names = [n for n in await self._tool_context.list_artifacts() if belongs_to_session(n)]
        if len(names) > MAX_FILES:
            self.not_kept += names[MAX_FILES:]
            del names[MAX_FILES:]

        removed: dict[str, int] = self._state.get("removed", {})
        described = await _gather([self._tool_context.get_artifact_version(name) for name in names])
        return {
            name: description.version
            for name, description in zip(names, described, strict=True)
            if description is not None and description.version > removed.get(name, -1)
        }

    async def _load(self, names: list[str], versions: dict[str, int]) -> list[File]:
        parts = await _gather([self._tool_context.load_artifact(name, versions[name]) for name in names])
        files: list[File] = []
        for name, part in zip(names, parts, strict=True):
            if part is not None and part.inline_data is not None:
                files.append(File(name=name, content=part.inline_data.data or b""))
            elif part is not None and part.text is not None:
                files.append(File(name=name, content=part.text.encode()))
        return files

    def has_lost_variables(self) -> bool:
        """Whether the variables of the session's earlier code were in another sandbox. Notes that they are in this one
        from now on.
        """
        earlier = self._state.get("interpreter")
        if earlier != self._kept.id:
            self._set_state({"interpreter": self._kept.id})
        return earlier not in (None, self._kept.id)

    def _note_removed(self, names: list[str]) -> None:
        if names:
            removed = {name: self._versions.pop(name) for name in names}
            self._set_state({"removed": {**self._state.get("removed", {}), **removed}})

    @property
    def _state(self) -> JsonObject:
        return self._tool_context.state.get(STATE_KEY) or {}

    def _set_state(self, changes: JsonObject) -> None:
        self._tool_context.state[STATE_KEY] = {**self._state, **changes}


class Workspaces:
    """The workspaces of all sessions on this server.

    sandbox: made anew for each session, with the same settings; None for `default_sandbox()`.
    """

    def __init__(self, sandbox: Sandbox | None = None) -> None:
        self._pool = SandboxPool(sandbox)

    @asynccontextmanager
    async def open(self, tool_context: ToolContext) -> AsyncGenerator[Workspace]:
        """Yields the session's workspace, up to date; calls of one session wait for each other.

        Raises ToolError if the sandbox can't be started.
        """
        async with self._pool.use(tool_context.session.key) as kept:
            workspace = Workspace(kept, tool_context)
            await workspace.copy_in()
            yield workspace

    async def close(self) -> None:
        await self._pool.close()


async def _gather(calls: Sequence[Awaitable[T]]) -> list[T]:
    """The results of the calls, of which a few run at a time."""
    results: list[T] = []
    for start in range(0, len(calls), _CALLS_AT_A_TIME):
        results += await asyncio.gather(*calls[start : start + _CALLS_AT_A_TIME])
    return results
