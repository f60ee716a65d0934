"""Reads all pages of a listing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar


class _Page(Protocol):
    @property
    def next_page_token(self) -> str | None: ...


_P = TypeVar("_P", bound=_Page)


async def pages(listing: Callable[[str | None], Awaitable[_P]]) -> list[_P]:
    """Calls `listing` with None, then with the token of each page, until a page has none."""
    read = [await listing(None)]
    while (token := read[-1].next_page_token) is not None:
        read.append(await listing(token))
    return read
