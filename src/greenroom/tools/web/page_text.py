"""Extracts the visible text of HTML pages."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import NamedTuple


class Block(NamedTuple):
    """A paragraph of a page."""

    line: int
    """Its first line in the source, from 1."""

    text: str


def visible_text(page: str) -> list[Block]:
    """The blocks of a page, without markup, scripts and styles."""
    return _PageParser(page).blocks


class _PageParser(HTMLParser):
    _HIDDEN = frozenset({"script", "style", "template", "noscript", "svg"})
    _INLINE = frozenset(
        {"a", "abbr", "b", "code", "em", "i", "mark", "q", "s", "small", "span", "strong", "sub", "sup", "u"}
    )

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.blocks: list[Block] = []
        self._hidden = 0
        self._words: list[str] = []
        self._line = 1
        self.feed(text)
        self.close()
        self._end_block()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in self._HIDDEN:
            self._hidden += 1
        if tag not in self._INLINE:
            self._end_block()

    def handle_endtag(self, tag: str) -> None:
        if tag in self._HIDDEN:
            self._hidden = max(self._hidden - 1, 0)
        if tag not in self._INLINE:
            self._end_block()

    def handle_data(self, data: str) -> None:
        if self._hidden or not data:
            return
        if not self._words and data.strip():
            leading = data[: len(data) - len(data.lstrip())]
            self._line = self.getpos()[0] + leading.count("\n")
        self._words.append(data)

    def _end_block(self) -> None:
        text = " ".join("".join(self._words).split())
        if text:
            self.blocks.append(Block(self._line, text))
        self._words = []
