"""Classes in place of public names that can't be used here, so that code which only mentions them runs."""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Callable
from functools import cache
from typing import Any

from greenroom.errors import MissingExtra


class _StandIn(ABCMeta):
    """Metaclass of placeholder classes, which may be imported, subclassed and named in annotations, and raise an error
    when used.
    """

    def __call__(cls, *_: Any, **__: Any) -> Any:
        raise cls._error()

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)  # typing, inspect and pydantic ask for such attributes
        raise cls._error()

    # What is done with constants.
    def __iter__(cls) -> Any:
        raise cls._error()

    def __add__(cls, _: object) -> Any:
        raise cls._error()

    def __radd__(cls, _: object) -> Any:
        raise cls._error()

    def __format__(cls, _: str) -> str:
        raise cls._error()


def make_stand_in(name: str, reason: str, error: Callable[[], Exception]) -> type:
    """Creates a placeholder class. Calling it, or reading its attributes, raises the result of `error`.

    Placeholders of exceptions can be used in `except`.
    """
    bases = (Exception,) if name.endswith(("Error", "Exception")) else ()
    members = {"__doc__": reason, "__module__": "greenroom", "_error": staticmethod(error)}
    return _StandIn(name, bases, members)


@cache
def without_extra(name: str, extra: str, package: str) -> type:
    """Creates a placeholder for a public name whose extra is not installed. It raises MissingExtra when used."""
    return make_stand_in(name, MissingExtra(extra, package).detail, lambda: MissingExtra(extra, package))
