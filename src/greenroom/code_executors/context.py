"""The part of a session's state that belongs to the execution of its code.

Source of names and keys: ADK.
"""

from __future__ import annotations

import time
from collections.abc import MutableMapping, Sequence
from typing import Any, Final

import msgspec

from greenroom.environments.files import File
from greenroom.records.base import JsonObject

CONTEXT: Final = "_code_execution_context"
INPUT_FILES: Final = "_code_executor_input_files"
ERROR_COUNTS: Final = "_code_executor_error_counts"
RESULTS: Final = "_code_execution_results"

_EXECUTION_ID = "execution_session_id"
_PROCESSED_FILES = "processed_input_files"


class CodeExecutorContext:
    """Reads and changes a session's state for the executions of its code.

    session_state: of an invocation context, whose changes are seen in this run only, or of a callback or tool context,
        whose changes are stored, too.

    The execution id and the names of processed files are stored by `get_state_delta`; all else is written at once.
    """

    def __init__(self, session_state: MutableMapping[str, Any]) -> None:
        self._state = session_state
        self._context: JsonObject = dict(session_state.get(CONTEXT) or {})

    def get_state_delta(self) -> JsonObject:
        """The change of the state that stores the execution id and the names of processed files."""
        return {CONTEXT: dict(self._context)}

    def get_execution_id(self) -> str | None:
        """The id under which the code of the session shares variables and files; None before the first such code."""
        return self._context.get(_EXECUTION_ID)

    def set_execution_id(self, session_id: str) -> None:
        self._context[_EXECUTION_ID] = session_id

    def get_processed_file_names(self) -> list[str]:
        return list(self._context.get(_PROCESSED_FILES) or ())

    def add_processed_file_names(self, file_names: Sequence[str]) -> None:
        self._context[_PROCESSED_FILES] = [*self.get_processed_file_names(), *file_names]

    def get_input_files(self) -> list[File]:
        """The files that the session's code can use."""
        return msgspec.convert(self._state.get(INPUT_FILES) or [], list[File])

    def add_input_files(self, input_files: Sequence[File]) -> None:
        added = [msgspec.to_builtins(file) for file in input_files]
        self._state[INPUT_FILES] = [*(self._state.get(INPUT_FILES) or ()), *added]

    def clear_input_files(self) -> None:
        """Removes the input files and the names of processed ones."""
        self._state[INPUT_FILES] = []
        self._context.pop(_PROCESSED_FILES, None)

    def get_error_count(self, invocation_id: str) -> int:
        """The failures in a row of a run."""
        counts: JsonObject = self._state.get(ERROR_COUNTS) or {}
        return counts.get(invocation_id, 0)

    def increment_error_count(self, invocation_id: str) -> None:
        """Counts a failure. The counts of other runs are dropped."""
        self._state[ERROR_COUNTS] = {invocation_id: self.get_error_count(invocation_id) + 1}

    def reset_error_count(self, invocation_id: str) -> None:
        if self._state.get(ERROR_COUNTS):
            self._state[ERROR_COUNTS] = {}

    def update_code_execution_result(
        self, invocation_id: str, code: str, result_stdout: str, result_stderr: str
    ) -> None:
        """Adds a result to those of a run. The results of other runs are dropped."""
        entry = {
            "code": code,
            "result_stdout": result_stdout,
            "result_stderr": result_stderr,
            "timestamp": int(time.time()),
        }
        earlier: JsonObject = self._state.get(RESULTS) or {}
        self._state[RESULTS] = {invocation_id: [*earlier.get(invocation_id, []), entry]}
