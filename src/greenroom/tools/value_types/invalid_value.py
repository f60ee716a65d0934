"""The error of a JSON value that doesn't fit the Python type it is meant for."""

from __future__ import annotations

from greenroom.errors import InvalidRequest


class InvalidValue(InvalidRequest, ValueError):
    """`location` is the path from the value that was given to the part that doesn't fit; empty for the value itself."""

    def __init__(self, reason: str, *, location: tuple[str | int, ...] = (), kind: str = "type_error") -> None:
        where = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in location).lstrip(".")
        super().__init__(f"{where}: {reason}" if where else reason, location=location, kind=kind)
        self.reason = reason
