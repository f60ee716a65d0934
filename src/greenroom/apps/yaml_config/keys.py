"""The keys of a map, in snake_case or in camelCase."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from greenroom.apps.yaml_config.document import Node
from greenroom.apps.yaml_config.errors import did_you_mean


def camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def by_either_spelling(names: Iterable[str]) -> dict[str, str]:
    """From `max_iterations` and from `maxIterations` to `max_iterations`."""
    return {spelling: name for name in names for spelling in (name, camel(name))}


def known_entries(node: Node, names: Iterable[str], *, what: str) -> tuple[dict[str, Node], dict[str, Node]]:
    """The map's entries by their names, and those that nobody knows. what: as in "of a LoopAgent"."""
    spellings = by_either_spelling(names)
    known: dict[str, Node] = {}
    unknown: dict[str, Node] = {}
    for key, entry in node.entries.items():
        name = spellings.get(key)
        if name is None:
            unknown[key] = entry
        elif name in known:
            raise entry.error(f"{name} {what} is given twice, in both spellings")
        else:
            known[name] = entry
    return known, unknown


def refuse_unknown(unknown: Mapping[str, Node], names: Iterable[str], *, what: str) -> None:
    for key, entry in unknown.items():
        raise entry.error(f"there is no such key {what}{did_you_mean(key, names)}")
