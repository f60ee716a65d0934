"""The bases of all records, what users may call on them, and the types of free-form JSON inside them."""

from __future__ import annotations

import base64
import copy
import inspect
import json
import re
from collections.abc import Callable, Mapping, MutableSequence
from functools import cache
from typing import Any, ClassVar, Self, TypeAlias, cast, get_args, get_type_hints

import msgspec

from greenroom.records import wire
from greenroom.records.genai_types import is_foreign_type, own

JsonValue: TypeAlias = Any
"""None, bool, int, float, str, or lists and string-keyed dicts of these."""

JsonObject: TypeAlias = dict[str, Any]

empty_map: Callable[[], dict[str, Any]] = {}.copy
"""Default of a map that is written even when it is empty: msgspec leaves out only plain `dict` defaults."""


def as_object(value: Any) -> JsonObject:
    """The value, or an empty object if it is none."""
    return cast("JsonObject", value) if isinstance(value, dict) else {}


class PydanticMethods:
    """The methods of pydantic's models that users of ADK call on its records, without pydantic.

    Source of names and defaults: pydantic's BaseModel, and `to_json_dict` of google.genai.
    """

    __slots__ = ()

    def model_dump(
        self,
        *,
        mode: str = "python",
        by_alias: bool = False,
        exclude_none: bool = False,
        exclude: set[str] | None = None,
        include: set[str] | None = None,
        **_: Any,
    ) -> JsonObject:
        """The fields as a dict. mode: "json" makes bytes base64. by_alias: names in camelCase."""
        options = (mode == "json", by_alias, exclude_none)
        return {
            key: _dump(value, options)
            for name, key, value in _entries(self, by_alias)
            if not (exclude_none and value is None)
            and (include is None or name in include)
            and (exclude is None or name not in exclude)
        }

    def model_dump_json(self, *, indent: int | None = None, **options: Any) -> str:
        return json.dumps(self.model_dump(mode="json", **options), indent=indent, ensure_ascii=False)

    def to_json_dict(self) -> JsonObject:
        return self.model_dump(mode="json", exclude_none=True)

    @classmethod
    def model_validate(cls, obj: Any, **_: Any) -> Self:
        """A record of a dict, with names in either spelling. Raises InvalidRequest, which is a ValueError."""
        obj = own(obj)
        return obj if isinstance(obj, cls) else wire.from_plain(obj, cls)

    @classmethod
    def model_validate_json(cls, json_data: str | bytes, **_: Any) -> Self:
        return wire.client_decoder(cls)(json_data.encode() if isinstance(json_data, str) else json_data)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        copied = copy.deepcopy(self) if deep else copy.copy(self)
        for name, value in (update or {}).items():
            setattr(copied, name, value)
        return copied

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """Lets a record be a field of a pydantic model."""
        from pydantic_core import core_schema  # only pydantic calls this

        return core_schema.no_info_plain_validator_function(
            cls.model_validate,
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda record, info: record.model_dump(mode=info.mode, by_alias=bool(info.by_alias)), info_arg=True
            ),
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Any, handler: Any) -> JsonObject:
        return {"type": "object", "title": cls.__name__}


def _entries(record: Any, by_alias: bool) -> list[tuple[str, str, Any]]:
    """Name, name in the dump, and value of each field."""
    if isinstance(record, OpenRecord):
        names = {key: name for name, key in record.keys_by_name.items()}
        return [(names.get(key, key), key if by_alias else names.get(key, key), value) for key, value in record.items()]
    keys = record.__struct_encode_fields__ if by_alias else record.__struct_fields__
    return [(name, key, getattr(record, name)) for name, key in zip(record.__struct_fields__, keys, strict=True)]


def _dump(value: Any, options: tuple[bool, bool, bool]) -> Any:
    as_json, by_alias, exclude_none = options
    if isinstance(value, PydanticMethods):
        return value.model_dump(mode="json" if as_json else "python", by_alias=by_alias, exclude_none=exclude_none)
    if isinstance(value, Mapping):
        return {key: _dump(inner, options) for key, inner in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, (list, tuple, set, MutableSequence)):
        return [_dump(inner, options) for inner in cast("list[Any]", value)]
    if as_json and isinstance(value, bytes):
        return base64.b64encode(value).decode()

    return value


class Record(PydanticMethods, msgspec.Struct, rename="camel", omit_defaults=True, gc=False):
    """A struct whose JSON names are camelCase and whose unset fields are left out; subclasses declare `kw_only=True`.

    Records are trees of data, so the garbage collector ignores them. A record that may refer back to itself declares
    `gc=True`.
    """

    @classmethod
    def from_shorthands(cls, /, *args: Any, **arguments: Any) -> dict[str, Any]:
        """The fields that hold the arguments of the constructor; see `public`."""
        if args:
            raise TypeError(f"{cls.__name__}() takes keyword arguments only")
        return arguments


class OpenRecord(PydanticMethods, dict[str, Any]):
    """A JSON object with named fields: keys are camelCase, attributes snake_case, and keys without a field are kept.

    A map may spell the fields either way, also in the records inside it; they become one spelling.

    For what only passes through, between a model's service and its users: nothing that the service adds is lost.
    """

    keys_by_name: ClassVar[dict[str, str]] = {}

    def __init_subclass__(cls) -> None:
        names: list[str] = [name for name in inspect.get_annotations(cls) if name in vars(cls)]
        cls.keys_by_name = {name: _camel(name) for name in names}
        for name in names:
            delattr(cls, name)  # so that `__getattr__` is asked

    def __init__(self, values: Mapping[str, Any] | None = None, /, **fields: Any) -> None:
        super().__init__()
        for name, value in (values or {}).items():
            self[self.keys_by_name.get(name, name)] = value
        for name, record in _inner_records(type(self)).items():
            key = self.keys_by_name[name]
            if key in self:
                self[key] = _opened(self[key], record)

        for name, value in fields.items():
            if self.keys_by_name and name not in self.keys_by_name and name not in self.keys_by_name.values():
                raise TypeError(f"{type(self).__name__}() has no field {name!r}")
            if value is not None:
                setattr(self, name, value)

    def __getattr__(self, name: str) -> Any:
        key = self.keys_by_name.get(name) or _camel(name)
        value: Any = self.get(key, self.get(name))
        if value is None and name not in self.keys_by_name and key not in self:
            raise AttributeError(f"{type(self).__name__} has no field {name!r}")
        if isinstance(value, (dict, list)) and (inner := _inner_records(type(self)).get(name)) is not None:
            value = self[key] = _opened(value, inner)
        return cast("Any", value)

    def __setattr__(self, name: str, value: Any) -> None:
        self[_camel(name)] = value


def _camel(name: str) -> str:
    return re.sub("_([a-z])", lambda letter: letter[1].upper(), name)


@cache
def _inner_records(cls: type[OpenRecord]) -> dict[str, type[OpenRecord]]:
    """The fields that hold open records, or lists of them."""
    records: dict[str, type[OpenRecord]] = {}
    for name, hint in get_type_hints(cls).items():
        options = [hint, *get_args(hint), *(inner for option in get_args(hint) for inner in get_args(option))]
        for option in options:
            if type(option) is type and issubclass(option, OpenRecord):
                records[name] = option
    return records


def _opened(value: Any, record: type[OpenRecord]) -> Any:
    if type(value) is list:
        return [_opened(item, record) for item in cast("list[Any]", value)]
    return record(cast("JsonObject", value)) if type(value) is dict else value


_READY: set[type] = {str, int, float, bool, bytes, type(None)}
"""Types whose values become fields as they are. Those of records are added when they are first met."""


def _is_ready(value: object) -> bool:
    """Whether an argument of a constructor neither is nor holds a map or an object that may have to become a record."""
    kind = type(value)
    if kind is not list:
        return kind is not tuple and _is_ready_type(kind)

    for item in cast("list[object]", value):
        if type(item) not in _READY and not _is_ready_type(type(item)):
            return False
    return True


def _is_ready_type(kind: type) -> bool:
    if kind is dict or is_foreign_type(kind):
        return False
    if issubclass(kind, Record):
        _READY.add(kind)
    return True


class _Constructor(type(msgspec.Struct)):
    """Metaclass of the public classes: calling one converts the arguments and builds the record itself.

    A record is built and decoded many times per turn, by msgspec in C and without checks. Users
    call another class of the same name, so that the conversion costs nothing inside the run loop.
    """

    def __call__(cls, *args: Any, **arguments: Any) -> Any:
        try:
            record = _RECORDS[cls]
        except KeyError:  # a subclass of the user's own
            return super().__call__(*args, **arguments)

        for value in arguments.values():
            if type(value) not in _READY and not _is_ready(value):
                break
        else:
            try:
                return record(*args, **arguments)
            except TypeError:
                pass  # a name that isn't the record's own, or a shorthand

        args = tuple(own(value) for value in args)
        arguments = {name: own(value) for name, value in arguments.items()}
        return record(**wire.from_arguments(record, record.from_shorthands(*args, **arguments)))

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _RECORDS.get(cls, ())) or super().__instancecheck__(instance)

    def __subclasscheck__(cls, subclass: type[Any]) -> bool:
        return issubclass(subclass, _RECORDS.get(cls, ())) or super().__subclasscheck__(subclass)


_MAKERS = ("model_validate", "model_validate_json", "__get_pydantic_core_schema__")
"""Class methods that decode, which must make the record and not its public class."""

_RECORDS: dict[type, type[Record]] = {}


def public(value: Any) -> Any:
    """The value of a public name: the public class of a record, and anything else unchanged."""
    return _public_class(value) if isinstance(value, type(Record)) else value


@cache
def _public_class(record: type[Record]) -> type:
    members: dict[str, Any] = {name: getattr(record, name) for name in _MAKERS}
    members |= {"__module__": record.__module__, "__doc__": record.__doc__, "__qualname__": record.__qualname__}
    constructor = _Constructor(record.__name__, (record,), members)
    _RECORDS[constructor] = record
    return constructor
