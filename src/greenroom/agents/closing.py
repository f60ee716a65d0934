"""Streams of events that end when their reader does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from typing import Generic, TypeVar

T = TypeVar("T")


class closing(Generic[T]):  # noqa: N801 - reads like contextlib's
    """Closes a stream when the block is left, so that what it holds is let go now and not whenever it is collected."""

    __slots__ = ("_stream",)

    def __init__(self, stream: AsyncIterator[T]) -> None:
        self._stream = stream

    async def __aenter__(self) -> AsyncIterator[T]:
        return self._stream

    def __aexit__(self, *_: object) -> Awaitable[None]:
        close = getattr(self._stream, "aclose", None)
        return close() if close is not None else _nothing()


async def _nothing() -> None:
    pass
