"""Says which sessions this process runs, where several servers share a store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from greenroom.records.session import SessionKey


class Ownership(Protocol):
    """The sessions of a store that this process owns: it alone executes their runs and writes for them."""

    def owns(self, key: SessionKey) -> bool:
        """False for a session that another process owns, or that nobody owns for a moment."""
        ...

    def add_listener(self, call: Callable[[Callable[[SessionKey], bool]], None]) -> None:
        """Calls it, in any thread, when sessions are lost, with a function that is true for these. It must not wait."""
        ...

    def remove_listener(self, call: Callable[[Callable[[SessionKey], bool]], None]) -> None: ...
