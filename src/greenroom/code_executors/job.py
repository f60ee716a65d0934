"""Code and its files as one Python program, for executors whose only ways in and out are a program and its output."""

from __future__ import annotations

import base64
import binascii
import zlib
from functools import cache
from pathlib import Path
from uuid import uuid4

import msgspec

from greenroom.code_executors.executor import CodeExecutionInput, CodeExecutionResult, result_of
from greenroom.code_executors.remote import OutputFiles, check_input_names
from greenroom.environments.files import MAX_BYTES_IN_ALL, MAX_FILE_BYTES, MAX_FILES
from greenroom.environments.process import MAX_OUTPUT_BYTES, ExecutionResult, cut
from greenroom.records import wire

MAX_PRINTED_BYTES = 2 * MAX_BYTES_IN_ALL
"""More than a program prints: base64 adds a third."""


class _Outcome(msgspec.Struct):
    """Printed by `job_main.run`."""

    exit_code: int
    timed_out: bool
    stdout: tuple[str, int]
    """The beginning, and the size of all."""

    stderr: tuple[str, int]
    files: dict[str, bytes]
    left_out: list[str]


class Job:
    """A program that runs the code in an empty folder with its files, and prints the outcome.

    folder: where it may write. timeout_seconds: then the code is stopped, with all that it started. max_bytes: of the
    output files. Raises ToolError for an input file whose name leads out of its folder.
    """

    def __init__(
        self,
        code_input: CodeExecutionInput,
        *,
        folder: str,
        timeout_seconds: float | None,
        max_bytes: int = MAX_BYTES_IN_ALL,
    ) -> None:
        check_input_names(code_input)
        self._input = code_input
        self._timeout_seconds = timeout_seconds
        self._max_bytes = max_bytes
        self._mark = f"greenroom-{uuid4().hex}:"

        job = {
            "code": code_input.code,
            "files": {file.name: file.content for file in code_input.input_files},
            "folder": folder,
            "mark": self._mark,
            "seconds": timeout_seconds,
            "output_bytes": MAX_OUTPUT_BYTES,
            "max_files": MAX_FILES,
            "max_file_bytes": MAX_FILE_BYTES,
            "max_bytes": max_bytes,
        }
        described = base64.b64encode(zlib.compress(wire.encode(job))).decode()
        self.program = f'{_main()}\n\nrun(json.loads(zlib.decompress(base64.b64decode("{described}"))))\n'

    def result(self, printed: bytes) -> CodeExecutionResult | None:
        """Reads the outcome from all that the program printed. None: it was stopped before its end."""
        mark = self._mark.encode()
        pieces = [line[len(mark) :].strip() for line in printed.splitlines() if line.startswith(mark)]
        try:
            text = _decompressed(base64.b64decode(b"".join(pieces), validate=True))
            outcome = msgspec.json.decode(text, type=_Outcome)
        except (binascii.Error, zlib.error, msgspec.MsgspecError):
            return None

        files = OutputFiles(self._input.input_files, max_bytes=self._max_bytes)
        for name, content in outcome.files.items():
            files.add(name, content)
        stdout = _shown(*outcome.stdout)
        stderr = _shown(*outcome.stderr)
        ran = ExecutionResult(outcome.exit_code, stdout, stderr, outcome.timed_out)
        left_out = [*files.left_out, *outcome.left_out]
        return result_of(
            ran, timeout_seconds=self._timeout_seconds, output_files=files.kept, left_out=left_out[:MAX_FILES]
        )


def _shown(beginning: str, size: int) -> str:
    text = cut(beginning)
    return f"{text}… ({size} bytes in all)" if text == beginning and size > MAX_OUTPUT_BYTES else text


def _decompressed(data: bytes) -> bytes:
    """Raises zlib.error for more than a program prints: code can print in its program's place."""
    decompressor = zlib.decompressobj()
    text = decompressor.decompress(data, MAX_PRINTED_BYTES)
    if not decompressor.eof:
        raise zlib.error("incomplete")
    return text


@cache
def _main() -> str:
    return Path(__file__).with_name("job_main.py").read_text(encoding="utf-8")
