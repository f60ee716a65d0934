"""The public names of ADK 2.13, and which of them greenroom offers: the table in adk_names.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from greenroom.errors import NotOffered
from greenroom.stand_ins import make_stand_in


class AdkName(msgspec.Struct, frozen=True):
    name: str
    package: str
    """ADK's package: `google.adk.agents`."""
    status: Literal["yes", "differs", "later", "no"]
    words: str = ""
    """The difference, the part of greenroom that it is planned for, or the reason for its absence."""

    @property
    def missing_because(self) -> str | None:
        """A sentence about a name that greenroom does not have; None for one that it has."""
        if self.status == "later":
            return f"ADK's {self.name} is not offered yet; it is planned with: {self.words}"
        return f"ADK's {self.name} is not offered: {self.words}" if self.status == "no" else None


@cache
def adk_names() -> dict[str, AdkName]:
    """By name. A name that ADK has in several packages stands with the last of them."""
    return {one.name: one for one in _read_table()}


def _read_table() -> Iterator[AdkName]:
    table = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
    differs: dict[str, str] = table.pop("differs")
    for package, names in table.items():
        for name in names.get("offered", "").split():
            yield AdkName(name, package, "differs" if name in differs else "yes", differs.get(name, ""))
        for status in ("later", "no"):
            for words, missing in names.get(status, {}).items():
                yield from (AdkName(name, package, status, words) for name in missing.split())


@cache
def stand_in(name: str) -> type:
    """A class for a name of ADK that greenroom lacks, so that an agent which only mentions it loads.

    Raises AttributeError for a name that ADK does not have either.
    """
    adk_name = adk_names().get(name)
    if adk_name is None or adk_name.missing_because is None:
        raise AttributeError(f"module 'greenroom' has no attribute {name!r}")
    reason = adk_name.missing_because
    return make_stand_in(name, reason, lambda: NotOffered(reason))
