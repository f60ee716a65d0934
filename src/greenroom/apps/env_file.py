"""The `.env` file of an app."""

from __future__ import annotations

import os
import re
from pathlib import Path

_LINE = re.compile(
    r"""^[ \t]*(?:export[ \t]+)?(?P<key>[A-Za-z_][\w.]*)[ \t]*=[ \t]*
        (?:'(?P<literal>[^']*)'|"(?P<quoted>(?:\\.|[^"\\])*)"|(?P<bare>[^\r\n]*?))
        (?:[ \t]+\#[^\r\n]*)?[ \t]*\r?$""",
    re.MULTILINE | re.VERBOSE | re.DOTALL,
)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}

_variables_of_the_process: frozenset[str] | None = None


def load_env_file(folder: Path) -> None:
    """Set the variables of the first `.env` in the folder or above it.

    Variables that the process was started with keep their values; those of an earlier `.env` don't.
    Source: ADK's agent loader, which `ADK_DISABLE_LOAD_DOTENV` turns off in the same way.
    """
    global _variables_of_the_process
    if os.environ.get("ADK_DISABLE_LOAD_DOTENV", "").lower() in ("1", "true"):
        return
    if _variables_of_the_process is None:
        _variables_of_the_process = frozenset(os.environ)
    for candidate in (folder / ".env", *(parent / ".env" for parent in folder.parents)):
        if candidate.is_file():
            for key, value in parse(candidate.read_text("utf-8-sig", errors="replace")).items():
                if key not in _variables_of_the_process:
                    os.environ[key] = value
            return


def parse(text: str) -> dict[str, str]:
    """`KEY=value` lines: `export`, comments, 'literal' and "escaped\\n" values, which may span lines."""
    variables: dict[str, str] = {}
    for line in _LINE.finditer(text):
        value = line["literal"] if line["literal"] is not None else line["bare"]
        if value is None:
            value = re.sub(r"\\(.)", lambda escape: _ESCAPES.get(escape[1], escape[1]), line["quoted"], flags=re.DOTALL)
        variables[line["key"]] = value
    return variables
