"""Extras of the installed greenroom."""

from __future__ import annotations

import re
from importlib.metadata import distribution, requires


def installed_extras() -> dict[str, bool]:
    """Returns each extra, and whether all its packages are installed."""
    needed: dict[str, list[str]] = {}
    for requirement in requires("greenroom") or ():
        found = re.match(r"([\w.-]+)[^;]*;.*extra == ['\"]([\w-]+)['\"]", requirement)
        if found is not None:
            needed.setdefault(found[2], []).append(found[1])
    return {extra: all(map(_is_installed, packages)) for extra, packages in needed.items()}


def _is_installed(package: str) -> bool:
    try:
        distribution(package)
    except ModuleNotFoundError:
        return False
    return True
