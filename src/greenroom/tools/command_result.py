"""Results of commands, as a model reads them."""

from __future__ import annotations

from greenroom.environments.process import ExecutionResult
from greenroom.records.base import JsonObject

MAX_OUTPUT_CHARACTERS = 30_000


def command_result(ran: ExecutionResult, seconds: float, max_characters: int = MAX_OUTPUT_CHARACTERS) -> JsonObject:
    """Status, output and exit code of a command; only what says something. Source of names: ADK's `Execute`.

    seconds: the time that the command had.
    """
    result: JsonObject = {"status": "error" if ran.exit_code or ran.timed_out else "ok"}
    for name, text in (("stdout", ran.stdout), ("stderr", ran.stderr)):
        if text:
            result[name] = cut(text, max_characters)

    if ran.exit_code:
        result["exit_code"] = ran.exit_code

    if ran.timed_out:
        result["error"] = f"The command was stopped after {seconds:g} seconds."

    return result


def cut(text: str, max_characters: int) -> str:
    if len(text) <= max_characters:
        return text
    return f"{text[:max_characters]}\n… (cut off; {len(text)} characters in all)"
