"""Says which sessions this process runs, where several servers share a store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias

from greenroom.records.session import SessionKey

IsOf: TypeAlias = Callable[[SessionKey], bool]
"""True for the sessions that were lost, or taken."""


class Ownership(Protocol):
    """The sessions of a store that this process owns: it alone executes their runs and writes for them."""

    def owns(self, key: SessionKey) -> bool:
        """False for a session that another process owns, or that nobody owns for a moment."""
        ...

    def add_listener(
        self,
        *,
        lost: Callable[[IsOf], None],
        taken: Callable[[IsOf], None],
        leaving: Callable[[IsOf], Awaitable[None]],
    ) -> Callable[[], None]:
        """Calls `lost` and `taken`, in any thread, when sessions are lost or taken; `taken` also at once, with the
        sessions that are owned already. They must not wait. leaving: awaited before sessions are given back, after
        which they are lost. Returns a function that removes the listener.
        """
        ...
