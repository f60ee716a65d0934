"""The fenced blocks of a page, and what a reader does with them: write files and type commands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]

CTRL_C = "^C"

_BLOCK = re.compile(
    r"^(?P<indent> *)(?P<fence>```+)(?P<language>\S*)(?P<attributes>[^\n]*)\n(?P<text>.*?)^(?P=indent)(?P=fence)[ ]*$",
    re.MULTILINE | re.DOTALL,
)
_COMMENT = re.compile(r"<!-- (tested|not tested): ([^>]*?) -->\n+\Z")
_TITLE = re.compile(r'title="([^"]+)"')


class Block(NamedTuple):
    """One fenced block of a page."""

    page: str
    line: int
    language: str
    title: str | None
    """The path of the file that the block shows."""
    text: str
    comment: tuple[str, str] | None
    """The HTML comment before it: `tested` or `not tested`, and what it says."""
    is_next_to_former: bool
    """Only blank lines stand between this block and the one before."""

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


def blocks_of(page: Path) -> list[Block]:
    return blocks_in(page.read_text(), page.relative_to(ROOT).as_posix())


def blocks_in(text: str, page: str) -> list[Block]:
    blocks: list[Block] = []
    end = 0
    for match in _BLOCK.finditer(text):
        between = text[end : match.start()]
        comment = _COMMENT.search(between)
        title = _TITLE.search(match["attributes"])
        indent = match["indent"]
        blocks.append(
            Block(
                page=page,
                line=text.count("\n", 0, match.start()) + 1,
                language=match["language"],
                title=title[1] if title else None,
                text=re.sub(f"^{indent}", "", match["text"], flags=re.MULTILINE),
                comment=(comment[1], comment[2]) if comment else None,
                is_next_to_former=bool(blocks) and not between.strip(),
            )
        )
        end = match.end()
    return blocks


class File(NamedTuple):
    """A file that the reader writes."""

    path: str
    text: str
    place: str


class Command(NamedTuple):
    """A command that the reader types."""

    line: str
    output: str | None
    """As the page shows it. None for an `sh` block without a `json` block: the page doesn't show the output."""
    place: str
    exit_code: int = 0


Step = File | Command


def steps_in(blocks: list[Block]) -> Iterator[Step]:
    """Yields what the page asks its reader to do, in order.

    A block with a title is a file. A `console` block has commands after `$`, each followed by its output. An `sh` block
    is one command, and a `json` block right after it is its output. Other blocks only show something.
    """
    for block, following in zip(blocks, [*blocks[1:], None], strict=True):
        if block.comment is not None and block.comment[0] == "not tested":
            continue
        exit_code = 0
        if block.comment is not None and (exits := re.fullmatch(r"exits with (\d+)", block.comment[1])):
            exit_code = int(exits[1])

        if block.title is not None:
            yield File(block.title, block.text, block.place)
        elif block.language == "console":
            for command, output in _typed(block.text):
                yield Command(command, output, block.place, exit_code)
        elif block.language == "sh":
            is_shown = following is not None and following.language == "json" and following.is_next_to_former
            output = following.text if is_shown and following is not None else None
            yield Command(block.text.strip(), output, block.place, exit_code)


def _typed(text: str) -> Iterator[tuple[str, str]]:
    """Yields commands with their output. A command goes on in the next line after a backslash, and inside quotes."""
    lines = text.splitlines(keepends=True)
    if lines[0].strip() == CTRL_C:
        yield lines.pop(0).strip(), ""
    assert not lines or lines[0].startswith("$ "), f"a console block begins with a command: {lines[0]!r}"

    while lines:
        command = lines.pop(0).removeprefix("$ ")
        while lines and (command.endswith("\\\n") or _has_open_quote(command)):
            command += lines.pop(0)
        output = ""
        while lines and not lines[0].startswith("$ "):
            output += lines.pop(0)
        yield command.strip(), output


def _has_open_quote(command: str) -> bool:
    without_escapes = re.sub(r"\\.", "", command, flags=re.DOTALL)
    without_quoted = re.sub(r"'[^']*'|\"[^\"]*\"", "", without_escapes)
    return "'" in without_quoted or '"' in without_quoted
