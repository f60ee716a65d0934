"""Records as users construct them: with nested dicts, camelCase names and the shorthands of ADK's constructors.

A record is built and decoded many times per turn, by msgspec in C and without checks. What users call is therefore
another class of the same name, a constructor that converts its arguments and then builds the record itself.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

from greenroom.records import wire
from greenroom.records.base import Record


class _Constructor(type(msgspec.Struct)):
    """Metaclass of the public classes: what they construct is the record they stand for."""

    def __call__(cls, *args: Any, **arguments: Any) -> Any:
        record = _RECORDS.get(cls)
        if record is None:  # a subclass of the user's own
            return super().__call__(*args, **arguments)
        if not args:
            for value in arguments.values():
                if type(value) is dict or (type(value) in (list, tuple) and dict in map(type, value)):
                    break  # maps may stand for records
            else:
                try:
                    return record(**arguments)
                except TypeError:
                    pass  # a name that isn't the record's own, or a field that a shorthand gives
        return record(**wire.from_arguments(record, record.from_shorthands(*args, **arguments)))

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _RECORDS.get(cls, ())) or super().__instancecheck__(instance)

    def __subclasscheck__(cls, subclass: type[Any]) -> bool:
        return issubclass(subclass, _RECORDS.get(cls, ())) or super().__subclasscheck__(subclass)


_MAKERS = ("model_validate", "model_validate_json", "__get_pydantic_core_schema__")
"""Class methods that decode, which must make the record and not its public class."""

_RECORDS: dict[type, type[Record]] = {}


def public(value: Any) -> Any:
    """What users get of a public name: of a record its public class, of anything else the thing itself."""
    return _public_class(value) if isinstance(value, type(Record)) else value


@cache
def _public_class(record: type[Record]) -> type:
    members: dict[str, Any] = {name: getattr(record, name) for name in _MAKERS}
    members |= {"__module__": record.__module__, "__doc__": record.__doc__, "__qualname__": record.__qualname__}
    constructor = _Constructor(record.__name__, (record,), members)
    _RECORDS[constructor] = record
    return constructor
