"""The public names of ADK 2.13, and which of them greenroom offers: the table in adk_names.toml."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import msgspec

from greenroom.errors import NotOffered
from greenroom.stand_ins import make_stand_in


class AdkName(msgspec.Struct, frozen=True):
    name: str
    package: str
    """ADK's package: `google.adk.agents`. A name can be in several: with different reasons, as with one."""
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
def adk_rows() -> tuple[AdkName, ...]:
    """Returns the rows of the table, in its order."""
    return tuple(_read_rows())


@cache
def adk_names() -> dict[str, AdkName]:
    """Returns the rows by name. Of several rows with one name, an available one wins."""
    rows: dict[str, AdkName] = {}
    for row in adk_rows():
        other = rows.get(row.name)
        if other is None or other.missing_because is not None:
            rows[row.name] = row
    return rows


@cache
def adk_modules() -> frozenset[str]:
    """The last parts of the names of ADK's modules whose names greenroom has."""
    return frozenset(_table()["modules"]["offered"].split())


def find_adk_name(module: str, name: str) -> AdkName | None:
    """The row of a name that is imported from a module of ADK."""
    rows = [row for row in adk_rows() if row.name == name]
    fitting = [row for row in rows if f"{module}.".startswith(f"{row.package}.")]
    if fitting:
        return max(fitting, key=lambda row: len(row.package))
    return adk_names().get(name)


@cache
def _table() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))


def _read_rows() -> Iterator[AdkName]:
    differs: dict[str, str] = _table()["differs"]
    for package, names in _table().items():
        if not package.startswith("google."):
            continue
        for name in names.get("offered", "").split():
            yield AdkName(name, package, "differs" if name in differs else "yes", differs.get(name, ""))
        for status in ("later", "no"):
            for words, missing in names.get(status, {}).items():
                yield from (AdkName(name, package, status, words) for name in missing.split())


@cache
def stand_in(name: str) -> type | ModuleType:
    """A class for a name of ADK that greenroom lacks, so that an agent which only mentions it loads.

    For a module of ADK whose names greenroom has: greenroom itself. Raises AttributeError for a name that ADK does not
    have either.
    """
    adk_name = adk_names().get(name)
    if adk_name is None and name in adk_modules():
        return sys.modules["greenroom"]
    is_own_package = not name.startswith("_") and find_spec(f"greenroom.{name}") is not None
    if adk_name is None or adk_name.missing_because is None or is_own_package:
        raise AttributeError(f"module 'greenroom' has no attribute {name!r}")

    reason = adk_name.missing_because
    return make_stand_in(name, reason, lambda: NotOffered(reason))
