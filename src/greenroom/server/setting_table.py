"""The settings as rows: one per field of the dataclasses, with its key, flag, variable and type."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import cached_property
from typing import Annotated, Any, Literal, cast, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta, inspect

from greenroom.server.settings import Secret

PREFIX = "GREENROOM_"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One setting. path: attribute names from the root of the settings. key: names of the tables and the key in TOML.
    type: with limits. plain_type: without limits, and `str` for secrets, for the command line.
    """

    path: tuple[str, ...]
    key: tuple[str, ...]
    type: Any
    plain_type: Any
    default: Any
    help: str
    flag: str
    default_words: str | None = None

    @property
    def variable(self) -> str:
        return PREFIX + "_".join(self.key).upper()

    @property
    def dotted(self) -> str:
        return ".".join(self.key)

    @property
    def default_in_words(self) -> str:
        if self.default_words is not None or self.default is None:
            return self.default_words or "none"
        if self.takes_list:
            return ", ".join(map(str, cast("Sequence[Any]", self.default))) or "none"
        if isinstance(self.default, bool):
            return str(self.default).lower()
        return f"{self.default:g}" if isinstance(self.default, float) else str(self.default)

    @cached_property
    def kind(self) -> str:
        """The valid values in words."""
        if get_origin(self.plain_type) is Literal:  # in the order they are written in
            return _alternatives([str(value) for value in get_args(self.plain_type)])
        return _in_words(inspect.type_info(self.type))

    @property
    def is_secret(self) -> bool:
        return "secret" in self.kind

    @property
    def takes_list(self) -> bool:
        return any(isinstance(one, _LISTS) for one in _options(inspect.type_info(self.type)))

    @property
    def takes_table(self) -> bool:
        return any(isinstance(one, inspect.DictType) for one in _options(inspect.type_info(self.type)))

    def convert(self, value: Any, *, strict: bool) -> Any:
        """strict: False to convert text to numbers and booleans. Raises msgspec.ValidationError."""
        return msgspec.convert(value, self.type, strict=strict, dec_hook=_secret)


def setting_rows(settings: type[Any], *, path: tuple[str, ...] = (), key: tuple[str, ...] = ()) -> Iterator[Setting]:
    """The rows of a settings class and the classes in it, in the order of their fields."""
    types, plain_types = get_type_hints(settings, include_extras=True), get_type_hints(settings)
    for each in fields(settings):
        kind = types[each.name]
        description, extra = _meta(kind)
        inner = plain_types[each.name]
        here = (*key, each.name)
        if is_dataclass(inner):
            assert isinstance(inner, type)
            yield from setting_rows(inner, path=(*path, each.name), key=key if extra.get("inline") else here)
            continue
        yield Setting(
            path=(*path, each.name),
            key=here,
            type=kind,
            plain_type=str if inner is Secret or Secret in get_args(inner) else inner,
            default=default_of(each),
            help=description,
            flag=extra.get("flag") or "--" + "-".join(here).replace("_", "-"),
            default_words=extra.get("default"),
        )


def _meta(kind: Any) -> tuple[str, dict[str, Any]]:
    """Description and extra, merged over all `Meta` of a type: a type with limits has its own."""
    description, extra = "", dict[str, Any]()
    for one in get_args(kind)[1:] if get_origin(kind) is Annotated else ():
        if isinstance(one, Meta):
            description = one.description or description
            extra |= one.extra or {}
    return description, extra


def default_of(each: Field[Any]) -> Any:
    if each.default is not MISSING:
        return each.default
    assert each.default_factory is not MISSING, f"{each.name} has no default"
    return each.default_factory()


def _secret(kind: type[Any], value: Any) -> Any:
    if kind is not Secret:
        raise NotImplementedError(kind)
    if not isinstance(value, str):
        raise TypeError("A secret is a text")
    return Secret(value)


_LISTS = (inspect.ListType, inspect.VarTupleType, inspect.SetType, inspect.FrozenSetType)


def _options(kind: inspect.Type) -> tuple[inspect.Type, ...]:
    if isinstance(kind, inspect.Metadata):
        return _options(kind.type)
    return kind.types if isinstance(kind, inspect.UnionType) else (kind,)


def _in_words(kind: inspect.Type) -> str:
    kinds = [_one_in_words(one) for one in _options(kind) if not isinstance(one, inspect.NoneType)]
    return " or ".join(kinds)


def _one_in_words(kind: inspect.Type) -> str:
    if isinstance(kind, inspect.Metadata):
        return _in_words(kind)
    if isinstance(kind, inspect.BoolType):
        return "true or false"
    if isinstance(kind, inspect.IntType):
        return "a whole number" + _limits(kind)
    if isinstance(kind, inspect.FloatType):
        return "a number" + _limits(kind)
    if isinstance(kind, inspect.LiteralType):
        return _alternatives([str(value) for value in kind.values])
    if isinstance(kind, _LISTS):
        return f"a list, each {_in_words(kind.item_type)}"
    if isinstance(kind, inspect.DictType):
        return f"a table, each {_in_words(kind.value_type)}"
    if isinstance(kind, inspect.CustomType) and kind.cls is Secret:
        return "a secret text"
    return "a text"


def _alternatives(names: list[str]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}" if len(names) > 1 else names[0]


def _limits(kind: inspect.IntType | inspect.FloatType) -> str:
    if kind.ge is not None and kind.le is not None:
        return f" from {kind.ge:g} to {kind.le:g}"
    if kind.gt is not None:
        return f" above {kind.gt:g}"
    if kind.ge is not None:
        return f", at least {kind.ge:g}"
    return f", at most {kind.le:g}" if kind.le is not None else ""
