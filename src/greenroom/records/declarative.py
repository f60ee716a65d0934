"""Classes that declare their fields as annotations, the way users of ADK write agents and models.

They are dataclasses. Declarations of pydantic's models are understood too (`Field`, `PrivateAttr`,
`model_config`, `model_post_init`, mutable defaults, private names), and pydantic itself is not imported.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Self, dataclass_transform


@dataclass_transform(kw_only_default=True, field_specifiers=(dataclasses.field,))
class Declarative:
    """Every class below it is a dataclass with keyword-only fields, and is constructed by this class's `__init__`."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        annotations = inspect.get_annotations(cls)
        annotations |= {
            name: Any for name, value in vars(cls).items() if _is_pydantics(value) and name not in annotations
        }

        for name, annotation in annotations.items():
            if "ClassVar" in str(annotation):
                continue
            value = _as_field(vars(cls).get(name, dataclasses.MISSING))
            if name.startswith("_"):
                value = _private(value)
            if value is not dataclasses.MISSING:
                setattr(cls, name, value)

        cls.__annotations__ = annotations
        dataclasses.dataclass(kw_only=True, init=False, eq=False, repr=False)(cls)

    def __init__(self, **values: Any) -> None:
        """Takes the fields of the class and of its base classes, so that a subclass's `__init__` can pass them on."""
        writes_own_init = type(self).__init__ is not Declarative.__init__
        missing: list[str] = []
        self.model_fields_set = self.model_fields_set | values.keys()

        for declared in dataclasses.fields(self):  # pyright: ignore[reportArgumentType]
            if declared.init and declared.name in values:
                self._set_field(declared.name, values.pop(declared.name))
            elif declared.name in vars(self):
                continue  # set by the subclass's own `__init__` already
            elif declared.default is not dataclasses.MISSING:
                self._set_field(declared.name, declared.default)
            elif declared.default_factory is not dataclasses.MISSING:
                self._set_field(declared.name, declared.default_factory())
            elif declared.init and (declared.name in self._always_required or not writes_own_init):
                missing.append(declared.name)

        if missing:
            raise TypeError(f"{type(self).__name__}() needs: {', '.join(missing)}")
        if values and getattr(type(self), "model_config", {}).get("extra") != "allow":
            raise TypeError(f"{type(self).__name__}() has no field {', '.join(values)}")

        vars(self).update(values)
        self.__post_init__()
        self.model_post_init(None)

    def _set_field(self, name: str, value: Any) -> None:
        try:
            setattr(self, name, value)
        except AttributeError:
            if not isinstance(getattr(type(self), name, None), property):
                raise
            vars(self)[name] = value  # as in pydantic, where a subclass may have a property in place of a field

    _always_required = frozenset[str]()
    model_fields_set = frozenset[str]()
    """Names of the fields that the constructor was given."""

    def __post_init__(self) -> None:
        """Checks the fields, and derives others."""

    def model_post_init(self, context: Any, /) -> None:
        """Called when all fields are set; users' classes override it."""

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        copied = copy.deepcopy(self) if deep else copy.copy(self)
        vars(copied).update(update or {})
        return copied


def _is_pydantics(value: object) -> bool:
    kind = type(value)
    return kind.__module__ == "pydantic.fields" and kind.__name__ in ("FieldInfo", "ModelPrivateAttr")


def _as_field(value: Any) -> Any:
    """A dataclass field in place of pydantic's, or of a mutable default."""
    if _is_pydantics(value):
        if value.default_factory is not None:
            return dataclasses.field(default_factory=value.default_factory)
        is_required = value.default is ... or type(value.default).__name__ == "PydanticUndefinedType"
        return dataclasses.field() if is_required else _as_field(value.default)
    if isinstance(value, (list, dict, set)):
        return dataclasses.field(default_factory=_copier(value))  # pyright: ignore[reportUnknownArgumentType]
    return value


def _copier(value: Any) -> Callable[[], Any]:
    return lambda: copy.deepcopy(value)


def _private(value: Any) -> Any:
    """A field that no constructor takes."""
    if isinstance(value, dataclasses.Field):
        return dataclasses.field(default=value.default, default_factory=value.default_factory, init=False)  # type: ignore
    if value is dataclasses.MISSING:
        return dataclasses.field(init=False)
    return dataclasses.field(default=value, init=False)
