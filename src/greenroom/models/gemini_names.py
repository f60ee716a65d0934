"""Which models are Gemini, told from their names."""

from __future__ import annotations

import os
import re

UNCHECKED = "ADK_DISABLE_GEMINI_MODEL_ID_CHECK"
"""Environment variable that makes every name count as a Gemini's. Source: ADK."""

_GEMINI = re.compile(r"gemini-(?:(\d+)(?:[.-]|$))?.*")
_LATEST = 1_000_000


def gemini_version(model: str | None) -> int | None:
    """Of `gemini-2.5-flash`, under whatever path it goes by, 2; None for other models.

    Names without a number, as `gemini-flash-latest`, count as newest. With `ADK_DISABLE_GEMINI_MODEL_ID_CHECK` set,
    so does every name.
    """
    match = _GEMINI.fullmatch((model or "").rsplit("/", 1)[-1])
    if match is not None:
        return int(match[1]) if match[1] else _LATEST
    return _LATEST if os.environ.get(UNCHECKED, "").lower() in ("1", "true") else None
