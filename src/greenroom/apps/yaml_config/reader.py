"""Converts YAML nodes to values of a type: every key known, every value of the right type, or an error with its
location.
"""

from __future__ import annotations

import base64
import dataclasses
import logging
import types
from abc import ABC, abstractmethod
from collections import abc
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin

import msgspec

from greenroom.agents.agent import BaseAgent
from greenroom.apps.yaml_config.document import KINDS, ConfigFileError, ConfigNode, did_you_mean
from greenroom.apps.yaml_config.fields import check_required, fields_of, parameters_of
from greenroom.apps.yaml_config.keys import code_name, entries_of, is_code_reference, known_entries
from greenroom.apps.yaml_config.records import ENUMS
from greenroom.environments.environment import BaseEnvironment
from greenroom.errors import AgentConfigError
from greenroom.models.model import BaseLlm
from greenroom.tools.functions.function_tool import FunctionTool
from greenroom.tools.tool import BaseTool
from greenroom.tools.toolset import BaseToolset
from greenroom.tools.value_types.plain_types import InvalidValue
from greenroom.tools.value_types.type_schema import type_schema

_log = logging.getLogger("greenroom.apps")

T = TypeVar("T")

_SCALARS = (str, int, float, bool)
_LISTS = (
    list, tuple, set, frozenset,
    abc.Sequence, abc.MutableSequence, abc.Iterable, abc.Collection, abc.Set, abc.MutableSet,
)  # fmt: skip
_MAPS = (dict, abc.Mapping, abc.MutableMapping)


def fits(node: ConfigNode, tp: Any) -> bool:
    """Whether the value is of a kind that the type can be read from."""
    value = node.value

    kind = _kind(tp)
    if kind in (Any, object, ConfigNode):
        return True
    if kind in _SCALARS:
        return type(value) is kind or (kind is float and type(value) is int)
    if kind in _LISTS:
        return isinstance(value, list)
    if kind is Literal:
        return str(value).lower() in [str(choice).lower() for choice in get_args(_bare(tp))]
    if kind in _MAPS or (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        return isinstance(value, dict)

    return isinstance(value, (str, dict))


def described(tp: Any) -> str:
    kind = _kind(tp)
    if kind in _SCALARS:
        return KINDS[kind]
    if kind in _LISTS:
        return "a list"
    if kind in _MAPS or isinstance(kind, type):
        return "a map"

    return "the name of something in code"


def _bare(tp: Any) -> Any:
    """The type without `Annotated`."""
    while get_origin(tp) is Annotated:
        tp = get_args(tp)[0]
    return tp


def _kind(tp: Any) -> Any:
    """`list` of `list[int]`."""
    bare = _bare(tp)
    return get_origin(bare) or bare


class UnsupportedType(Exception):
    """A type whose values have no form in a configuration file."""


class ConfigReader(ABC):
    """Subclasses resolve the names and references in a file."""

    @abstractmethod
    def code(self, node: ConfigNode) -> object: ...
    @abstractmethod
    def agent(self, node: ConfigNode) -> BaseAgent: ...
    @abstractmethod
    def tool(self, node: ConfigNode) -> object: ...
    @abstractmethod
    def instance(self, node: ConfigNode, kind: type[T], *, trusts_args: bool = False) -> T:
        """An object by name, or made by a class or function of that name.

        trusts_args: also takes arguments in files that are not trusted.
        """

    def read(self, node: ConfigNode, tp: Any) -> Any:
        """Raises ConfigFileError, or UnsupportedType."""
        tp = _bare(tp)
        kind = _kind(tp)
        if kind is ConfigNode:
            return node
        if kind in (Any, object) or isinstance(kind, str):
            return node.plain()
        if kind in (Union, types.UnionType):
            return self._read_one_of(node, get_args(tp))
        if kind is Literal:
            return _read_choice(node, {str(choice): choice for choice in get_args(tp)})

        if kind in _SCALARS:
            if not fits(node, kind):
                is_unquoted = kind is str and isinstance(node.value, (int, float))
                raise node.error(
                    f"must be {KINDS[kind]}, not {node.kind}{' (put it in quotes)' if is_unquoted else ''}"
                )

            if kind is float:
                return float(cast("float", node.value))

            return node.value

        if kind in _LISTS:
            return self._read_list(node, tp)

        if kind in _MAPS:
            value = (get_args(tp) or (str, Any))[1]
            return {key: self.read(entry, value) for key, entry in node.entries.items()}

        if kind is Callable:
            return self._read_callable(node)
        if isinstance(tp, type):
            return self._read_class(node, cast("type[Any]", tp))

        return self._convert(node, tp)

    def read_record(self, node: ConfigNode, record: type[Any], *, what: str) -> Any:
        """Reads a map as a record, whose fields are its keys.

        record: a Struct or a dataclass.
        """
        declared = fields_of(record)
        values = {
            name: self.read(entry, ENUMS.get((record, name), declared[name].type))
            for name, entry in entries_of(node, declared, what=what).items()
            if entry.value is not None or declared[name].may_be_null
        }
        check_required(node, declared, values, what=what)
        return record(**values)

    def read_arguments(
        self, node: ConfigNode, function: Callable[..., Any], *, what: str, given: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Reads the arguments of a class or function by their annotations.

        given: arguments from elsewhere. An argument whose type has no form in a file is dropped and logged, as in ADK.
        """
        parameters = parameters_of(function)
        takes_any = parameters.pop("**", None) is not None
        entries, unknown = known_entries(node, parameters, what=what)
        if not takes_any:
            entries_of(node, parameters, what=what)

        values: dict[str, Any] = {**(given or {}), **{key: entry.plain() for key, entry in unknown.items()}}
        for name, entry in entries.items():
            try:
                values[name] = self.read(entry, parameters[name].type)
            except UnsupportedType as error:
                _log.warning(
                    "%s",
                    entry.error(f"left out: no value of type {error} can be written here").detail,
                )

        check_required(node, parameters, values, what=what)

        return values

    def _read_class(self, node: ConfigNode, tp: type[Any]) -> Any:
        if issubclass(tp, BaseAgent):
            return self.agent(node)
        if issubclass(tp, (BaseTool, BaseToolset)):
            return self.tool(node)
        if issubclass(tp, BaseEnvironment):
            return self.instance(node, tp)

        if issubclass(tp, Enum):
            names = {str(member.value): member for member in tp} | {member.name: member for member in tp}
            return _read_choice(node, names)

        if issubclass(tp, Path):
            return node.file.path.parent / node.text

        if issubclass(tp, bytes):
            if isinstance(node.value, bytes):
                return node.value
            return _from_base64(node)

        is_record = issubclass(tp, msgspec.Struct) or (dataclasses.is_dataclass(tp) and isinstance(node.value, dict))
        if is_record and (not is_code_reference(node) or "name" in fields_of(tp)):
            return self.read_record(node, tp, what=f"of {tp.__name__}")

        if issubclass(tp, BaseLlm) or is_code_reference(node) or (isinstance(node.value, str) and "." in node.value):
            value = self.code(code_name(node))
            if not isinstance(value, tp):
                raise node.error(f"{code_name(node).text!r} is {_article(type(value).__name__)}, not a {tp.__name__}")
            return value

        return self._convert(node, tp)

    def _convert(self, node: ConfigNode, tp: Any) -> Any:
        if get_origin(tp) is type or tp is type:
            return self.code(code_name(node))

        try:
            schema = type_schema(tp)
        except AgentConfigError as error:
            raise UnsupportedType(str(tp)) from error

        try:
            return schema.convert(node.plain())
        except InvalidValue as error:
            raise node.error(error.detail) from None

    def _read_one_of(self, node: ConfigNode, options: tuple[Any, ...]) -> Any:
        if node.value is None and type(None) in options:
            return None

        options = tuple(option for option in options if option is not type(None))
        if Path in options:  # before a text, so that it is a path from this file on
            options = (Path, *(option for option in options if option is not Path))

        fitting = [option for option in options if fits(node, option)]
        if not fitting:
            if len(options) == 1:
                return self.read(node, options[0])
            raise node.error(f"must be {' or '.join(dict.fromkeys(described(o) for o in options))}, not {node.kind}")

        first: ConfigFileError | UnsupportedType | None = None
        for option in fitting:
            try:
                return self.read(node, option)
            except (ConfigFileError, UnsupportedType) as error:
                first = first or error

        assert first is not None
        raise first

    def _read_list(self, node: ConfigNode, tp: Any) -> Any:
        arguments = [argument for argument in get_args(tp) if argument is not Ellipsis]
        kind: Any = get_origin(tp) or tp
        if kind is tuple and len(arguments) > 1:
            if len(node.items) != len(arguments):
                raise node.error(f"must have {len(arguments)} items, not {len(node.items)}")
            return tuple(self.read(item, argument) for item, argument in zip(node.items, arguments, strict=True))

        values = [self.read(item, arguments[0] if arguments else Any) for item in node.items]

        if kind in (tuple, set, frozenset):
            return cast("Any", kind(values))

        return values

    def _read_callable(self, node: ConfigNode) -> Callable[..., Any]:
        function = self.code(code_name(node))
        if isinstance(function, FunctionTool):
            return function.func
        if not callable(function):
            raise node.error(f"{code_name(node).text!r} is {_article(type(function).__name__)}, which can't be called")
        return cast("Callable[..., Any]", function)


def _read_choice(node: ConfigNode, choices: Mapping[str, Any]) -> Any:
    spellings = ("false", "off") if node.value is False else (str(node.value).lower(),)  # `OFF` is false in YAML
    for name, choice in choices.items():
        if name.lower() in spellings and not isinstance(node.value, (list, dict)):
            return choice
    raise node.error(f"{node.plain()!r} is not allowed{did_you_mean(str(node.plain()), choices)}")


def _from_base64(node: ConfigNode) -> bytes:
    text = node.text.translate({ord("-"): "+", ord("_"): "/"}).rstrip("=")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError:
        raise node.error("is not valid base64") from None


def _article(name: str) -> str:
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"
