"""Callbacks: an app's plugins are called first, then the agent's own; the first result that isn't
None wins.

An agent's callbacks are one or a list, sync or async.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

from greenroom.errors import as_exception
from greenroom.invocation.context import InvocationContext
from greenroom.records.genai_types import own

Callback: TypeAlias = Callable[..., Any]
Callbacks: TypeAlias = Callback | Sequence[Callback] | None
"""Called with keyword arguments, or with positional ones where the parameters have other names.
Returns an answer, None, or an awaitable of either.
"""

BeforeAgentCallback: TypeAlias = Callbacks
AfterAgentCallback: TypeAlias = Callbacks
BeforeModelCallback: TypeAlias = Callbacks
AfterModelCallback: TypeAlias = Callbacks
OnModelErrorCallback: TypeAlias = Callbacks
BeforeToolCallback: TypeAlias = Callbacks
AfterToolCallback: TypeAlias = Callbacks
OnToolErrorCallback: TypeAlias = Callbacks


def has_callbacks(agent: object, ctx: InvocationContext, hook: str) -> bool:
    return getattr(agent, hook) is not None or hook in ctx.plugins.listeners


async def first_answer(
    agent: object, ctx: InvocationContext, hook: str, *, for_plugins: Mapping[str, Any] | None = None, **arguments: Any
) -> Any:
    """The first answer that isn't None; later callbacks are not called.

    hook: the agent's field with its own callbacks.

    for_plugins: their arguments, where they aren't those of the agent's own callbacks.
    """
    answer = await ctx.plugins.first_result(
        hook,
        **(arguments if for_plugins is None else for_plugins),
    )
    if answer is not None:
        return own(answer)

    callbacks: Callbacks = getattr(agent, hook, None)
    for callback in (callbacks,) if callable(callbacks) else callbacks or ():
        try:
            if callback.__hash__ is None or _takes_names(callback, tuple(arguments)):
                answer = callback(**arguments)
            else:
                answer = callback(*arguments.values())
            if inspect.isawaitable(answer):
                answer = await answer
        except Exception:
            raise
        except BaseException as raised:
            raise as_exception(raised) from raised

        if answer is not None:
            return own(answer)

    return None


@lru_cache(maxsize=1024)
def _takes_names(callback: Callback, names: tuple[str, ...]) -> bool:
    """False for parameters of other names, which take the same arguments by position. Source: ADK."""
    try:
        signature = inspect.signature(callback)
        try:
            signature.bind(**dict.fromkeys(names))
        except TypeError:
            signature.bind(*names)
            return False
    except (TypeError, ValueError):  # no signature, or a wrong one: the call itself then raises
        pass

    return True
