"""From nodes to values of a type: every key known, every value of its kind, or an error with its location."""

from __future__ import annotations

import base64
import dataclasses
import functools
import inspect
import logging
import sys
import types
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, Union, cast, get_args, get_origin, get_type_hints

import msgspec

from greenroom.agents.agent import BaseAgent
from greenroom.apps.yaml_config.document import ConfigFileError, Node, did_you_mean, known_entries, refuse_unknown
from greenroom.errors import AgentConfigError, GreenroomError
from greenroom.models.model import BaseLlm
from greenroom.tools.functions.function_tool import FunctionTool
from greenroom.tools.tool import BaseTool
from greenroom.tools.toolset import BaseToolset
from greenroom.tools.value_types.plain_types import InvalidValue
from greenroom.tools.value_types.type_schema import TypeSchema


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
    called: Any = function.__init__ if isinstance(function, type) else function
    hints = _hints(called, inspect.unwrap(called))
    found: dict[str, Field] = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            found["**"] = Field(Any, is_required=False)
        elif parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            found[parameter.name] = Field(hints.get(parameter.name, Any), parameter.default is parameter.empty)
    return found


def _hints(annotated: Any, *holders: Any) -> dict[str, Any]:
    """Resolves annotations to types. Where only type checkers can resolve one, the others still count."""
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


SCALARS = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}


def is_list(tp: Any) -> bool:
    kind = get_origin(tp) or tp
    if kind in (list, tuple, set, frozenset):
        return True
    return getattr(kind, "__module__", "") == "collections.abc" and kind.__name__ in (
        "Sequence", "MutableSequence", "Iterable", "Collection", "Set", "MutableSet",
    )  # fmt: skip


def is_map(tp: Any) -> bool:
    kind = get_origin(tp) or tp
    if kind is dict:
        return True
    return getattr(kind, "__module__", "") == "collections.abc" and kind.__name__ in ("Mapping", "MutableMapping")


def is_callable(tp: Any) -> bool:
    kind = get_origin(tp) or tp
    return getattr(kind, "__module__", "") == "collections.abc" and kind.__name__ == "Callable"


def fits(node: Node, tp: Any) -> bool:
    """Whether the value is of a kind that the type can be read from."""
    while get_origin(tp) is Annotated:
        tp = get_args(tp)[0]
    value = node.value
    if tp in (Any, object, Node):
        return True
    if tp is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if tp in SCALARS:
        return isinstance(value, tp) and (tp is bool or not isinstance(value, bool))
    if is_list(tp):
        return isinstance(value, list)
    if is_map(tp):
        return isinstance(value, dict)
    if get_origin(tp) is Literal:
        return str(value).lower() in [str(choice).lower() for choice in get_args(tp)]
    if isinstance(tp, type) and issubclass(tp, msgspec.Struct):
        return isinstance(value, dict)
    return isinstance(value, (str, dict))


def described(tp: Any) -> str:
    while get_origin(tp) is Annotated:
        tp = get_args(tp)[0]
    if tp in SCALARS:
        return SCALARS[tp]
    if is_list(tp):
        return "a list"
    return "a map" if is_map(tp) or isinstance(tp, type) else "the name of something in code"


class Args(dict[str, Any]):
    """A map whose entries can be read as attributes too, as ADK's hooks and tool factories do."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


def call_hook(hook: Callable[..., Any], args: Mapping[str, Any], path: Path) -> Any:
    """`from_config(config, config_abs_path)`, or one without the second parameter."""
    positional = [
        parameter
        for parameter in inspect.signature(hook).parameters.values()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD, parameter.VAR_POSITIONAL)
    ]
    takes_path = len(positional) > 1 or any(p.kind is p.VAR_POSITIONAL for p in positional)
    return hook(Args(args), str(path)) if takes_path else hook(Args(args))


def construct(node: Node, what: str, make: Callable[[], Any]) -> Any:
    """Calls `make`; its exceptions become errors of the node."""
    try:
        return make()
    except ConfigFileError:
        raise
    except (TypeError, ValueError, OSError, GreenroomError) as error:
        text = error.detail if isinstance(error, GreenroomError) else f"{type(error).__name__}: {error}"
        raise node.error(f"{what} can't be made: {text}") from error


_log = logging.getLogger("greenroom.apps")


class Resolver(Protocol):
    """Resolves names and references in a file."""

    def code(self, node: Node) -> object: ...
    def agent(self, node: Node) -> BaseAgent: ...
    def tool(self, node: Node) -> object: ...


class UnsupportedType(Exception):
    """A type whose values have no form in a configuration file."""


class Reader:
    def __init__(self, resolver: Resolver) -> None:
        self._resolver = resolver

    def read(self, node: Node, tp: Any) -> Any:
        """Raises ConfigFileError, or UnsupportedType."""
        while get_origin(tp) is Annotated:
            tp = get_args(tp)[0]
        if tp is Node:
            return node
        if tp in (Any, object) or isinstance(tp, str):
            return node.plain()
        origin = get_origin(tp)
        if origin in (Union, types.UnionType):
            return self._read_one_of(node, get_args(tp))
        if origin is Literal:
            return _read_choice(node, {str(choice): choice for choice in get_args(tp)})
        if tp in SCALARS:
            return _read_scalar(node, tp)
        if is_list(tp):
            return self._read_list(node, tp)
        if is_map(tp):
            value = (get_args(tp) or (str, Any))[1]
            return {key: self.read(entry, value) for key, entry in node.entries.items()}
        if is_callable(tp):
            return self._read_callable(node)
        if isinstance(tp, type):
            return self._read_class(node, cast("type[Any]", tp))
        return self._convert(node, tp)

    def read_record(self, node: Node, record: type[Any], *, what: str) -> Any:
        """record: a Struct or a dataclass."""
        declared = fields_of(record)
        known, unknown = known_entries(node, declared, what=what)
        refuse_unknown(unknown, declared, what=what)
        values = {
            name: self.read(entry, declared[name].type)
            for name, entry in known.items()
            if entry.value is not None or declared[name].may_be_null
        }
        missing = [name for name, field in declared.items() if field.is_required and name not in values]
        if missing:
            raise node.error(f"{missing[0]!r} is missing {what}")
        return record(**values)

    def read_arguments(
        self, node: Node, function: Callable[..., Any], *, what: str, given: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """The arguments of a class or function, each argument read by its annotation.

        given: arguments that are there already. An argument whose type has no form in a file is dropped, and that is
        logged, as ADK does.
        """
        parameters = parameters_of(function)
        takes_any = parameters.pop("**", None) is not None
        known, unknown = known_entries(node, parameters, what=what)
        if not takes_any:
            refuse_unknown(unknown, parameters, what=what)
        values: dict[str, Any] = {**(given or {}), **{key: entry.plain() for key, entry in unknown.items()}}
        for name, entry in known.items():
            try:
                values[name] = self.read(entry, parameters[name].type)
            except UnsupportedType as error:
                _log.warning("%s", entry.error(f"left out: no value of type {error} can be written here").detail)
        missing = [name for name, field in parameters.items() if field.is_required and name not in values]
        if missing:
            raise node.error(f"{missing[0]!r} is missing {what}")
        return values

    def _read_class(self, node: Node, tp: type[Any]) -> Any:
        if issubclass(tp, BaseAgent):
            return self._resolver.agent(node)
        if issubclass(tp, (BaseTool, BaseToolset)):
            return self._resolver.tool(node)
        if issubclass(tp, Enum):
            names = {str(member.value): member for member in tp} | {member.name: member for member in tp}
            return _read_choice(node, names)
        if issubclass(tp, Path):
            return node.file.path.parent / node.text
        if issubclass(tp, bytes):
            return node.value if isinstance(node.value, bytes) else _from_base64(node)
        is_record = issubclass(tp, msgspec.Struct) or (dataclasses.is_dataclass(tp) and isinstance(node.value, dict))
        if is_record and (not _is_code_reference(node) or "name" in fields_of(tp)):
            return self.read_record(node, tp, what=f"of {tp.__name__}")
        if issubclass(tp, BaseLlm) or _is_code_reference(node) or (isinstance(node.value, str) and "." in node.value):
            found = self._resolver.code(code_name(node))
            if not isinstance(found, tp):
                raise node.error(f"{code_name(node).text!r} is {_article(type(found).__name__)}, not a {tp.__name__}")
            return found
        return self._convert(node, tp)

    def _convert(self, node: Node, tp: Any) -> Any:
        if get_origin(tp) is type or tp is type:
            return self._resolver.code(code_name(node))
        try:
            schema = TypeSchema(tp)
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
        make = {tuple: tuple[Any, ...], set: set[Any], frozenset: frozenset[Any]}.get(kind)
        return values if make is None else make(values)

    def _read_callable(self, node: Node) -> Callable[..., Any]:
        found = self._resolver.code(code_name(node))
        if isinstance(found, FunctionTool):
            return found.func
        if not callable(found):
            raise node.error(f"{code_name(node).text!r} is {_article(type(found).__name__)}, which can't be called")
        return cast("Callable[..., Any]", found)


def code_name(node: Node) -> Node:
    """The name in `{name: shop.tools.price}` or `shop.tools.price`."""
    if isinstance(node.value, dict):
        known, unknown = known_entries(node, ["name"], what="of a reference to code")
        refuse_unknown(unknown, ["name"], what="of a reference to code")
        if "name" not in known:
            raise node.error("'name' is missing: the dotted name of what is meant")
        return known["name"]
    return node


def _is_code_reference(node: Node) -> bool:
    return isinstance(node.value, dict) and set(node.value) == {"name"} and isinstance(node.value["name"].value, str)


def _read_scalar(node: Node, tp: Any) -> Any:
    value = node.value
    if tp is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, tp) or (isinstance(value, bool) and tp is not bool):
        is_unquoted = tp is str and isinstance(value, (int, float, bool))
        hint = " (put it in quotes)" if is_unquoted else ""
        raise node.error(f"must be {SCALARS[tp]}, not {node.kind}{hint}")
    return value


def _read_choice(node: Node, choices: Mapping[str, Any]) -> Any:
    value = node.value
    for name, choice in choices.items():
        if str(value).lower() == name.lower() and not isinstance(value, (list, dict)):
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
