"""Optional capabilities of stores: the suites expect NotOffered if a store declares that it lacks one."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import pytest

from greenroom.errors import NotOffered

_Test: TypeAlias = Callable[..., Awaitable[None]]


def requires(capability: str, *, if_given: str | None = None) -> Callable[[_Test], _Test]:
    """Decorates a test of a capability in a store's `not_offered`: there it must end with
    NotOffered.

    if_given: the test's parameter without which it can do without the capability; `where.text`: an
    attribute of one.
    """

    def decorate(test: _Test) -> _Test:
        @functools.wraps(test)
        async def checked(**arguments: Any) -> None:
            (store,) = (value for name, value in arguments.items() if name.endswith("_service"))

            value: Any = True
            if if_given is not None:
                name, _, attribute = if_given.partition(".")
                if attribute:
                    value = getattr(arguments[name], attribute)
                else:
                    value = arguments[name]

            if capability not in store.not_offered or value is None:
                await test(**arguments)
                return

            with pytest.raises(NotOffered):
                await test(**arguments)

        return checked

    return decorate
