"""Texts of files as a model reads and edits them."""

from __future__ import annotations

import re

from greenroom.errors import ToolError
from greenroom.records.base import JsonObject


def numbered_lines(content: bytes, start_line: int | None, end_line: int | None) -> JsonObject:
    """Lines of a file, each after its number, which stands in a column of six characters, and a tab.

    start_line, end_line: the first and the last line, from 1; None for those of the file. Raises
    ToolError for lines that the file hasn't. Source of the form: ADK.
    """
    lines = content.splitlines(keepends=True)
    first = max(start_line or 1, 1)
    last = min(end_line or len(lines), len(lines))
    if first > last and (lines or first > 1):
        wanted = f"Lines {first} to {end_line or 'the end'} don't exist"
        raise ToolError(f"{wanted}: the file has {len(lines)} lines.")

    numbered = enumerate(lines[first - 1 : last], first)
    text = "".join(f"{number:6d}\t{line.decode(errors='replace')}" for number, line in numbered)
    if last - first + 1 == len(lines):
        return {"content": text}

    return {"content": text, "total_lines": len(lines)}


def replace_once(content: bytes, old_text: str, new_text: str, path: str) -> bytes:
    """Replaces a text that occurs exactly once. Its line ends match those of Windows, too.

    Raises ToolError.
    """
    if not old_text:
        raise ToolError("The text to replace must not be empty; write the file to create it.")

    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise ToolError(f"{path} is not a text in UTF-8.") from error

    lines = old_text.replace("\r\n", "\n").split("\n")
    matches = list(re.finditer("\r?\n".join(map(re.escape, lines)), text))
    if len(matches) != 1:
        count = f"{len(matches)} times" if matches else "nowhere"
        raise ToolError(f"The text to replace occurs {count} in {path}; it must occur exactly once.")

    start, end = matches[0].span()
    return (text[:start] + new_text + text[end:]).encode()
