"""A YAML file as nodes with their line and key, and the error that names them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, cast

import yaml

from greenroom.errors import AgentConfigError
from greenroom.records.base import JsonObject, JsonValue

_LISTED = 12


@dataclass(frozen=True)
class ConfigFile:
    """A configuration file, on disk or as it is being edited."""

    path: Path
    shown: str
    """The name in messages."""

    data: bytes | None = None
    """Its content, where that isn't the one on disk."""

    def error(self, problem: str, *, line: int | None = None, key: str = "") -> ConfigFileError:
        return ConfigFileError(self, problem, line=line, key=key)


class ConfigFileError(AgentConfigError):
    """A mistake in a configuration file, with its location.

    line: from 1; None for the whole file.
    key: the path to it, as in `tools[0].args.agent`.
    """

    def __init__(self, file: ConfigFile, problem: str, *, line: int | None, key: str) -> None:
        location = file.shown if line is None else f"{file.shown}:{line}"
        super().__init__(": ".join(part for part in (location, key, problem) if part))
        self.file = file.path
        self.line = line
        self.key = key
        self.problem = problem


def did_you_mean(wrong: str, valid: Iterable[str], *, otherwise: str | None = None) -> str:
    """The end of an error message: the closest valid name, else all valid names, or `otherwise`."""
    names = sorted(set(valid))

    lowered = {name.lower(): name for name in names}
    close = difflib.get_close_matches(wrong.lower(), lowered, n=1, cutoff=0.6)
    if close:
        return f"; did you mean {lowered[close[0]]!r}?"
    if otherwise is not None or not names:
        return otherwise or ""

    more = f", … ({len(names)} in all)" if len(names) > _LISTED else ""

    return f"; known: {', '.join(names[:_LISTED])}{more}"


MAX_NODES = 100_000
"""Anchors can make a short text unfold into a huge one."""

_TIMESTAMP = "tag:yaml.org,2002:timestamp"
_MAPPING = "tag:yaml.org,2002:map"
_SEQUENCE = "tag:yaml.org,2002:seq"

Scalar: TypeAlias = "str | int | float | bool | bytes | None"

KINDS: dict[type, str] = {
    str: "a text", int: "a whole number", float: "a number", bool: "true or false", list: "a list", dict: "a map",
    type(None): "nothing",
}  # fmt: skip


class ConfigNode:
    """A value in a configuration file, with its location.

    line: of the key that it is the value of, else its own. key: its path in the file.
    """

    __slots__ = ("file", "key", "line", "value")

    def __init__(
        self,
        value: Scalar | list[ConfigNode] | dict[str, ConfigNode],
        line: int,
        key: str,
        file: ConfigFile,
    ) -> None:
        self.value = value
        self.line = line
        self.key = key
        self.file = file

    def error(self, problem: str) -> ConfigFileError:
        return self.file.error(problem, line=self.line, key=self.key)

    @property
    def text(self) -> str:
        """Raises ConfigFileError when it is anything but a text with something in it."""
        if not isinstance(self.value, str):
            if isinstance(self.value, (int, float, bool)):
                hint = " (put it in quotes)"
            else:
                hint = ""
            raise self.error(f"must be a text, not {self.kind}{hint}")

        if not self.value.strip():
            raise self.error("must not be empty")

        return self.value

    @property
    def items(self) -> list[ConfigNode]:
        if not isinstance(self.value, list):
            raise self.error(f"must be a list, not {self.kind}")
        return self.value

    @property
    def entries(self) -> dict[str, ConfigNode]:
        if not isinstance(self.value, dict):
            raise self.error(f"must be a map, not {self.kind}")
        return self.value

    @property
    def kind(self) -> str:
        return KINDS.get(type(self.value), type(self.value).__name__)

    def plain(self) -> JsonValue:
        if isinstance(self.value, list):
            return [item.plain() for item in self.value]
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        return self.value

    def plain_map(self) -> JsonObject:
        return {key: node.plain() for key, node in self.entries.items()}

    def with_entries(self, entries: dict[str, ConfigNode]) -> ConfigNode:
        return ConfigNode(entries, self.line, self.key, self.file)


def read_document(file: ConfigFile) -> ConfigNode:
    """The root of a file, which is a map. Raises ConfigFileError."""
    try:
        data = file.path.read_bytes() if file.data is None else file.data
        text = data.decode("utf-8-sig")
    except FileNotFoundError:
        raise file.error("there is no such file") from None
    except OSError as error:
        raise file.error(f"can't be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise file.error("is not written in UTF-8", line=error.object.count(b"\n", 0, error.start) + 1) from None

    try:
        loader = _loader(text)
        root = loader.get_single_node()
        if root is None:
            node = None
        else:
            node = _Composer(loader, file).node(root, line=1, key="", above=())
    except yaml.MarkedYAMLError as error:
        mark: Any = error.problem_mark or error.context_mark
        detail = " ".join(str(part) for part in (error.problem, error.context) if part)
        raise file.error(f"is not valid YAML: {detail}", line=mark.line + 1 if mark is not None else None) from None
    except yaml.reader.ReaderError as error:
        problem = f"holds a character that YAML doesn't allow: U+{cast('int', error.character):04X}"
        raise file.error(problem, line=text.count("\n", 0, error.position) + 1) from None
    except RecursionError:
        raise file.error("is nested too deeply") from None

    if node is None or node.value is None:
        raise file.error("is empty")
    if not isinstance(node.value, dict):
        raise node.error(f"the file must hold a map of keys, not {node.kind}")

    return node


def _loader(text: str) -> Any:
    """A safe one. Dates stay text, and numbers may be written as JSON has them."""
    loader: Any = yaml.SafeLoader(text)
    resolvers: dict[str, list[Any]] = {
        first: [rule for rule in rules if rule[0] != _TIMESTAMP]
        for first, rules in cast("dict[str, list[Any]]", loader.yaml_implicit_resolvers).items()
    }
    exponent = ("tag:yaml.org,2002:float", re.compile(r"[-+]?[0-9]+(?:\.[0-9]*)?[eE][-+]?[0-9]+\Z"))
    for first in "-+0123456789":
        resolvers[first] = [exponent, *resolvers.get(first, [])]

    loader.yaml_implicit_resolvers = resolvers

    return loader


class _Composer:
    def __init__(self, loader: Any, file: ConfigFile) -> None:
        self._loader = loader
        self._file = file
        self._count = 0
        self._flattened: set[int] = set()

    def node(self, raw: Any, *, line: int, key: str, above: tuple[int, ...]) -> ConfigNode:
        self._count += 1
        if self._count > MAX_NODES:
            raise self._file.error(f"the file unfolds into more than {MAX_NODES} values", line=line, key=key)
        if id(raw) in above:
            raise self._file.error("an anchor that holds itself", line=line, key=key)
        if isinstance(raw, yaml.ScalarNode):
            return ConfigNode(self._loader.construct_object(raw), line, key, self._file)
        if raw.tag not in (_MAPPING, _SEQUENCE):
            raise self._file.error(f"the tag {raw.tag} is not allowed here", line=line, key=key)

        inside = (*above, id(raw))

        if isinstance(raw, yaml.MappingNode):
            return ConfigNode(dict(self._entries(raw, key, inside)), line, key, self._file)

        items = [
            self.node(item, line=item.start_mark.line + 1, key=f"{key}[{index}]", above=inside)
            for index, item in enumerate(cast("list[Any]", raw.value))
        ]

        return ConfigNode(items, line, key, self._file)

    def _entries(self, raw: Any, key: str, above: tuple[int, ...]) -> Iterator[tuple[str, ConfigNode]]:
        inside = f"{key}." if key else ""
        if id(raw) not in self._flattened:
            seen: set[str] = set()
            for name, _ in raw.value:
                if isinstance(name, yaml.ScalarNode):
                    if name.value in seen:
                        line = name.start_mark.line + 1
                        raise self._file.error("stands here twice", line=line, key=inside + name.value)
                    seen.add(name.value)

            self._loader.flatten_mapping(raw)  # resolves `<<`
            self._flattened.add(id(raw))

        for name, value in raw.value:
            line = name.start_mark.line + 1

            spelled: Any
            if isinstance(name, yaml.ScalarNode):
                spelled = self._loader.construct_object(name)
            else:
                spelled = None

            if not isinstance(spelled, str):
                if isinstance(name, yaml.ScalarNode):
                    shown = f"{name.value!r} "
                else:
                    shown = ""
                raise self._file.error(f"a key {shown}that is no text; put it in quotes", line=line, key=key)

            yield spelled, self.node(value, line=line, key=inside + spelled, above=above)
