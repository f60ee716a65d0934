"""Checks of the files that go into executors elsewhere and come out of them, and names of their sessions."""

from __future__ import annotations

import hashlib
import mimetypes
from collections.abc import Sequence

from greenroom.code_executors.executor import CodeExecutionInput
from greenroom.environments.files import MAX_BYTES_IN_ALL, MAX_FILE_BYTES, MAX_FILES, File, is_safe_name
from greenroom.errors import ToolError
from greenroom.invocation.context import InvocationContext
from greenroom.records import wire

_BINARY = "application/octet-stream"
_SHOWN_CHARACTERS = 200


def check_input_names(code_input: CodeExecutionInput) -> None:
    """Raises ToolError for a file whose name may lead out of the folder of the code."""
    for file in code_input.input_files:
        if not is_safe_name(file.name):
            raise ToolError(f"The input file {file.name!r} leads out of its folder")


class OutputFiles:
    """Collects the files that code wrote, within the limits of `environments.files`.

    kept: new and changed ones with safe names. left_out: the names of the others, as Python shows them.
    """

    def __init__(self, input_files: Sequence[File], *, max_bytes: int = MAX_BYTES_IN_ALL) -> None:
        self.kept: list[File] = []
        self.left_out: list[str] = []
        self._before = {file.name: file.content for file in input_files}
        self._left = max_bytes

    def add(self, name: str, content: bytes, mime_type: str | None = None) -> None:
        if self._before.get(name) == content:
            return
        is_small = len(content) <= min(MAX_FILE_BYTES, self._left)
        if not is_small or not is_safe_name(name) or len(self.kept) == MAX_FILES:
            self.left_out.append(ascii(name)[:_SHOWN_CHARACTERS])
            return
        self._left -= len(content)
        kind = mime_type or mimetypes.guess_type(name)[0] or _BINARY
        self.kept.append(File(name=name, content=content, mime_type=kind))


def session_digest(invocation_context: InvocationContext, execution_id: str) -> str:
    """A name for what is shared under an execution id, which sessions of other users and apps may have, too."""
    owner = [invocation_context.app_name, invocation_context.user_id, execution_id]
    return hashlib.sha256(wire.encode(owner)).hexdigest()[:32]
