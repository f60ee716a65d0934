"""Keys of a configuration file: in both spellings, and the map that names something in code."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from greenroom.apps.yaml_config.document import ConfigNode, did_you_mean


def camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def by_either_spelling(names: Iterable[str]) -> dict[str, str]:
    """Maps `max_iterations` and `maxIterations` to `max_iterations`."""
    return {spelling: name for name in names for spelling in (name, camel(name))}


def known_entries(
    node: ConfigNode,
    names: Iterable[str],
    *,
    what: str,
) -> tuple[dict[str, ConfigNode], dict[str, ConfigNode]]:
    """Returns the map's entries by name, and the unknown ones. what: as in "of a LoopAgent"."""
    spellings = by_either_spelling(names)
    entries: dict[str, ConfigNode] = {}
    unknown: dict[str, ConfigNode] = {}
    for key, entry in node.entries.items():
        name = spellings.get(key)
        if name is None:
            unknown[key] = entry
        elif name in entries:
            raise entry.error(f"{name} {what} is given twice, in both spellings")
        else:
            entries[name] = entry

    return entries, unknown


def entries_of(node: ConfigNode, names: Iterable[str], *, what: str) -> dict[str, ConfigNode]:
    """Returns the map's entries by name. Raises ConfigFileError for other keys.

    what: as in "of a LoopAgent".
    """
    entries, unknown = known_entries(node, names, what=what)
    for key, entry in unknown.items():
        raise entry.error(f"there is no such key {what}{did_you_mean(key, names)}")
    return entries


def code_name(node: ConfigNode) -> ConfigNode:
    """The name in `{name: shop.tools.price}` or `shop.tools.price`."""
    return name_and_args(node, ["name"])[0]


def name_and_args(
    node: ConfigNode,
    allowed: Collection[str] = ("name", "args"),
    *,
    what: str = "of a reference to code",
    missing: str = "the dotted name of what is meant",
) -> tuple[ConfigNode, ConfigNode | None]:
    """Reads a name alone, or a map with it."""
    if not isinstance(node.value, dict):
        return node, None
    entries = entries_of(node, allowed, what=what)
    if "name" not in entries:
        raise node.error(f"'name' is missing: {missing}")
    args = entries.get("args")
    return entries["name"], None if args is None or args.value is None else args


def is_code_reference(node: ConfigNode) -> bool:
    return isinstance(node.value, dict) and set(node.value) == {"name"} and isinstance(node.value["name"].value, str)
