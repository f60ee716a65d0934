"""A line of the report."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Finding(NamedTuple):
    file: Path
    line: int
    text: str
    is_missing: bool = True
    """False if the app can run nevertheless: names that behave differently, or that it only mentions."""
    requirement: str = ""
    """The argument of `pip install` that provides the missing package."""
