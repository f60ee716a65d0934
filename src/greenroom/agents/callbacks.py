"""Callbacks of an agent: one or a list, sync or async; the first that answers wins."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

Callback: TypeAlias = Callable[..., Any]
Callbacks: TypeAlias = Callback | Sequence[Callback] | None
"""Called with keyword arguments; returns an answer, None, or an awaitable of either."""


def as_list(callbacks: Callbacks) -> Sequence[Callback]:
    if callbacks is None:
        return ()
    return (callbacks,) if callable(callbacks) else callbacks


async def first_answer(callbacks: Callbacks, **arguments: Any) -> Any:
    """The first answer that isn't None; the callbacks behind it are not called."""
    for callback in as_list(callbacks):
        answer = callback(**arguments)
        if inspect.isawaitable(answer):
            answer = await answer
        if answer is not None:
            return answer
    return None
