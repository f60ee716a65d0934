"""Types that are pydantic's or contain pydantic types; imported only when needed."""

from __future__ import annotations

from typing import Any

import msgspec
from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError

from greenroom.errors import AgentConfigError
from greenroom.records.base import JsonValue
from greenroom.tools.value_types.plain_types import InvalidValue, TypeSchema


class PydanticType(TypeSchema):
    """A type that pydantic knows. Raises AgentConfigError for types that pydantic can't model, or for which it lacks a
    package.
    """

    def __init__(self, tp: Any) -> None:
        try:
            self._adapter: TypeAdapter[Any] = TypeAdapter(tp)
            super().__init__(self._adapter.json_schema())
        except (PydanticUserError, PydanticUndefinedAnnotation) as error:
            raise AgentConfigError(error.message) from None
        except ImportError as error:  # some types, such as EmailStr, need a package of their own, which it names
            raise AgentConfigError(str(error)) from error

    def _convert(self, value: JsonValue) -> object:
        try:
            data = msgspec.json.encode(value)
        except (TypeError, ValueError, NotImplementedError):
            data = None  # a callback put something in that isn't JSON

        try:
            # as JSON, because strict models take strings for dates, and lists for sets, from JSON alone
            if data is None:
                return self._adapter.validate_python(value)
            return self._adapter.validate_json(data)
        except ValidationError as error:
            raise _invalid(error) from None

    def to_json(self, value: object) -> JsonValue:
        return self._adapter.dump_python(value, mode="json", by_alias=True)


def _invalid(error: ValidationError) -> InvalidValue:
    """The first fault in full; the others in its text."""
    first, *others = error.errors(include_url=False, include_context=False, include_input=False)
    reason = first["msg"]
    for other in others[:4]:
        reason += f"; {'.'.join(str(step) for step in other['loc'])}: {other['msg']}"

    return InvalidValue(
        reason,
        location=first["loc"],
        kind="missing" if first["type"] == "missing" else "type_error",
    )
