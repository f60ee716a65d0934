"""From nodes to values of a type: every key known, every value of its kind, or an error with its
location.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import inspect
import logging
import sys
import types
from abc import ABC, abstractmethod
from collections import abc
from collections.abc import Callable, Collection, Mapping
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin, get_type_hints

import msgspec

from greenroom.agents.agent import BaseAgent
from greenroom.apps.yaml_config.document import (
    KINDS,
    ConfigFileError,
    Node,
    did_you_mean,
    entries_of,
    known_entries,
)
from greenroom.apps.yaml_config.records import ENUMS
from greenroom.errors import AgentConfigError, GreenroomError
from greenroom.models.model import BaseLlm
from greenroom.tools.functions.function_tool import FunctionTool
from greenroom.tools.tool import BaseTool
from greenroom.tools.toolset import BaseToolset
from greenroom.tools.value_types.plain_types import InvalidValue
from greenroom.tools.value_types.type_schema import type_schema


@dataclasses.dataclass(frozen=True)
class Field:
    type: Any
    is_required: bool

    @property
    def may_be_null(self) -> bool:
        return self.type in (Any, object) or type(None) in get_args(self.type)


@functools.lru_cache(maxsize=64)  # bounded, so that the classes of a reloaded app can be freed
def fields_of(record: type[Any]) -> Mapping[str, Field]:
    """Of a Struct or a dataclass, by Python name; those that its constructor doesn't take are left out."""
    hints = _hints(record, *record.__mro__)
    if issubclass(record, msgspec.Struct):
        return {field.name: Field(hints[field.name], field.required) for field in msgspec.structs.fields(record)}

    missing = dataclasses.MISSING
    return {
        field.name: Field(hints.get(field.name, Any), field.default is missing and field.default_factory is missing)
        for field in dataclasses.fields(record)
        if field.init
    }


def parameters_of(function: Callable[..., Any]) -> dict[str, Field]:
    """Those that can be given by name; under `**` whether all others can."""
    called: Any
    if isinstance(function, type):
        called = function.__init__
    else:
        called = function

    hints = _hints(called, inspect.unwrap(called))
    found: dict[str, Field] = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            found["**"] = Field(Any, is_required=False)
        elif parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            found[parameter.name] = Field(
                hints.get(parameter.name, Any),
                parameter.default is parameter.empty,
            )

    return found


def _hints(annotated: Any, *holders: Any) -> dict[str, Any]:
    """Resolves annotations to types. If only type checkers can resolve one, the others still count."""
    try:
        return get_type_hints(annotated, include_extras=True)
    except (NameError, TypeError, AttributeError):
        pass

    hints: dict[str, Any] = {}
    for holder in reversed(holders):
        names = vars(sys.modules.get(getattr(holder, "__module__", ""), object))
        for name, annotation in cast("dict[str, Any]", getattr(holder, "__annotations__", {})).items():
            stand_in = type("", (), {"__annotations__": {name: annotation}})
            try:
                hints |= get_type_hints(stand_in, dict(names), include_extras=True)
            except (NameError, TypeError, AttributeError):
                hints.pop(name, None)

    return hints


_SCALARS = (str, int, float, bool)
_LISTS = (
    list, tuple, set, frozenset,
    abc.Sequence, abc.MutableSequence, abc.Iterable, abc.Collection, abc.Set, abc.MutableSet,
)  # fmt: skip
_MAPS = (dict, abc.Mapping, abc.MutableMapping)


def fits(node: Node, tp: Any) -> bool:
    """Whether the value is of a kind that the type can be read from."""
    value = node.value

    kind = _kind(tp)
    if kind in (Any, object, Node):
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
    """Without annotations."""
    while get_origin(tp) is Annotated:
        tp = get_args(tp)[0]
    return tp


def _kind(tp: Any) -> Any:
    """`list` of `list[int]`."""
    bare = _bare(tp)
    return get_origin(bare) or bare


class Args(dict[str, Any]):
    """A map whose entries can be read as attributes too, as ADK's hooks and tool factories do."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


def call_hook(hook: Callable[..., Any], args: Mapping[str, Any], path: Path) -> Any:
    """`from_config(config, config_abs_path)`, or one without the second parameter."""
    try:
        inspect.signature(hook).bind(args, path)
    except TypeError:
        return hook(Args(args))
    return hook(Args(args), str(path))


def construct(node: Node, what: str, make: Callable[[], Any]) -> Any:
    """Calls `make`; its exceptions become errors of the node."""
    try:
        return make()
    except ConfigFileError:
        raise
    except (TypeError, ValueError, OSError, GreenroomError) as error:
        if isinstance(error, GreenroomError):
            text = error.detail
        else:
            text = f"{type(error).__name__}: {error}"
        raise node.error(f"{what} can't be made: {text}") from error


_log = logging.getLogger("greenroom.apps")


class UnsupportedType(Exception):
    """A type whose values have no form in a configuration file."""


class Reader(ABC):
    """Subclasses resolve the names and references in a file."""

    @abstractmethod
    def code(self, node: Node) -> object: ...
    @abstractmethod
    def agent(self, node: Node) -> BaseAgent: ...
    @abstractmethod
    def tool(self, node: Node) -> object: ...

    def read(self, node: Node, tp: Any) -> Any:
        """Raises ConfigFileError, or UnsupportedType."""
        tp, kind = _bare(tp), _kind(tp)
        if kind is Node:
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

    def read_record(self, node: Node, record: type[Any], *, what: str) -> Any:
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
        self, node: Node, function: Callable[..., Any], *, what: str, given: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """The arguments of a class or function, each argument read by its annotation.

        given: arguments that are there already. An argument whose type has no form in a file is
        dropped, and that is logged, as ADK does.
        """
        parameters = parameters_of(function)
        takes_any = parameters.pop("**", None) is not None
        known, unknown = known_entries(node, parameters, what=what)
        if not takes_any:
            entries_of(node, parameters, what=what)

        values: dict[str, Any] = {**(given or {}), **{key: entry.plain() for key, entry in unknown.items()}}
        for name, entry in known.items():
            try:
                values[name] = self.read(entry, parameters[name].type)
            except UnsupportedType as error:
                _log.warning(
                    "%s",
                    entry.error(f"left out: no value of type {error} can be written here").detail,
                )

        check_required(node, parameters, values, what=what)

        return values

    def _read_class(self, node: Node, tp: type[Any]) -> Any:
        if issubclass(tp, BaseAgent):
            return self.agent(node)
        if issubclass(tp, (BaseTool, BaseToolset)):
            return self.tool(node)

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
        if is_record and (not _is_code_reference(node) or "name" in fields_of(tp)):
            return self.read_record(node, tp, what=f"of {tp.__name__}")

        if issubclass(tp, BaseLlm) or _is_code_reference(node) or (isinstance(node.value, str) and "." in node.value):
            found = self.code(code_name(node))
            if not isinstance(found, tp):
                raise node.error(f"{code_name(node).text!r} is {_article(type(found).__name__)}, not a {tp.__name__}")
            return found

        return self._convert(node, tp)

    def _convert(self, node: Node, tp: Any) -> Any:
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

    def _read_one_of(self, node: Node, options: tuple[Any, ...]) -> Any:
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

    def _read_list(self, node: Node, tp: Any) -> Any:
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

    def _read_callable(self, node: Node) -> Callable[..., Any]:
        found = self.code(code_name(node))
        if isinstance(found, FunctionTool):
            return found.func
        if not callable(found):
            raise node.error(f"{code_name(node).text!r} is {_article(type(found).__name__)}, which can't be called")
        return cast("Callable[..., Any]", found)


def check_required(
    node: Node,
    fields: Mapping[str, Field],
    values: Collection[str],
    *,
    what: str,
) -> None:
    for name, field in fields.items():
        if field.is_required and name not in values:
            raise node.error(f"{name!r} is missing {what}")


def code_name(node: Node) -> Node:
    """The name in `{name: shop.tools.price}` or `shop.tools.price`."""
    return name_and_args(node, ["name"])[0]


def name_and_args(
    node: Node,
    allowed: Collection[str] = ("name", "args"),
    *,
    what: str = "of a reference to code",
    missing: str = "the dotted name of what is meant",
) -> tuple[Node, Node | None]:
    """From a name alone, or from a map with it."""
    if not isinstance(node.value, dict):
        return node, None
    known = entries_of(node, allowed, what=what)
    if "name" not in known:
        raise node.error(f"'name' is missing: {missing}")
    args = known.get("args")
    return known["name"], None if args is None or args.value is None else args


def _is_code_reference(node: Node) -> bool:
    return isinstance(node.value, dict) and set(node.value) == {"name"} and isinstance(node.value["name"].value, str)


def _read_choice(node: Node, choices: Mapping[str, Any]) -> Any:
    spellings = ("false", "off") if node.value is False else (str(node.value).lower(),)  # `OFF` is false in YAML
    for name, choice in choices.items():
        if name.lower() in spellings and not isinstance(node.value, (list, dict)):
            return choice
    raise node.error(f"{node.plain()!r} is not allowed{did_you_mean(str(node.plain()), choices)}")


def _from_base64(node: Node) -> bytes:
    text = node.text.translate({ord("-"): "+", ord("_"): "/"}).rstrip("=")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError:
        raise node.error("is not valid base64") from None


def _article(name: str) -> str:
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"
