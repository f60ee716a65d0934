"""How much one run may do."""

from __future__ import annotations

from greenroom.errors import LlmCallsLimitExceeded


class LlmCallCounter:
    """Counts the model calls of one run, over all its agents. A limit of zero or less means none."""

    __slots__ = ("__weakref__", "count", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.count = 0

    def add(self) -> None:
        """Raises LlmCallsLimitExceeded when this call is one too many."""
        self.count += 1
        if 0 < self.limit < self.count:
            raise LlmCallsLimitExceeded(self.limit)
