"""Variables of an app's `.env` file, read by python-dotenv."""

from __future__ import annotations

import os
from io import StringIO
from pathlib import Path

from dotenv import dotenv_values

_variables_of_the_process: frozenset[str] | None = None


def load_env_file(folder: Path) -> None:
    """Sets the variables of the first `.env` in the folder or above it.

    Variables that the process was started with keep their values; those of an earlier `.env` don't. References such as
    `${NAME}` are expanded: to a variable of the file, else of the process, else to nothing.
    Source: ADK's agent loader, which `ADK_DISABLE_LOAD_DOTENV` turns off in the same way.
    """
    global _variables_of_the_process
    if os.environ.get("ADK_DISABLE_LOAD_DOTENV", "").lower() in ("1", "true"):
        return

    if _variables_of_the_process is None:
        _variables_of_the_process = frozenset(os.environ)

    for candidate in (folder / ".env", *(parent / ".env" for parent in folder.parents)):
        if candidate.is_file():
            _set_variables(candidate, unless=_variables_of_the_process)
            return


def _set_variables(file: Path, *, unless: frozenset[str]) -> None:
    text = file.read_text("utf-8-sig", errors="replace")
    for name, value in dotenv_values(stream=StringIO(text)).items():
        if value is not None and name not in unless:
            os.environ[name] = value
