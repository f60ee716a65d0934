"""Splits files into passages of text, each with its position in the file."""

from __future__ import annotations

import codecs
import csv
import io
import json
from collections.abc import Iterable, Iterator
from pathlib import PurePath
from typing import Any, NamedTuple, cast

from greenroom.tools.web.page_text import visible_text

MARKDOWN = frozenset({".md", ".markdown"})
PLAIN = frozenset({".txt", ".text", ".rst", ".log"})
HTML = frozenset({".html", ".htm", ".xhtml"})
TABLES = {".csv": ",", ".tsv": "\t"}
READABLE = MARKDOWN | PLAIN | HTML | frozenset(TABLES) | {".json", ".jsonl", ".ndjson"}
"""Suffixes of the files that can be read."""


class Unit(NamedTuple):
    """A line, a row or a value: split only when it is too long."""

    at: int | str
    """Its line number, or its path in JSON."""

    text: str


class Passage(NamedTuple):
    position: str
    text: str


def passages(name: str, data: bytes, *, length: int, overlap: int) -> Iterator[Passage]:
    """Cuts the files of a folder into passages.

    length, overlap: in characters; adjacent passages share up to `overlap`. Binary files have no
    passages.
    """
    text = _decoded(data)
    if text is None:
        return

    suffix = PurePath(name).suffix.lower()
    held: list[Unit] = []
    is_fresh = False
    for unit in _cut_long(_units(suffix, text), length, overlap):
        size = sum(len(u.text) + 1 for u in held)
        is_heading = suffix in MARKDOWN and unit.text.startswith("#") and size > length // 3
        if held and is_fresh and (size + len(unit.text) > length or is_heading):
            yield from _passage(held)
            if is_heading:
                held = []
            else:
                held = _tail(held, min(overlap, length - len(unit.text)))

        held.append(unit)
        is_fresh = True

    if is_fresh:
        yield from _passage(held)


def _passage(units: list[Unit]) -> Iterator[Passage]:
    visible = [unit for unit in units if unit.text.strip()]
    if visible:
        yield Passage(
            _position(visible[0].at, visible[-1].at),
            "\n".join(unit.text for unit in units).strip("\n"),
        )


def _position(first: int | str, last: int | str) -> str:
    if isinstance(first, str):
        return first if first == last else f"{first} to {last}"
    return f"line {first}" if first == last else f"lines {first}-{last}"


def _tail(units: list[Unit], overlap: int) -> list[Unit]:
    size = 0
    for at in range(len(units) - 1, 0, -1):
        size += len(units[at].text) + 1
        if size > overlap:
            return units[at + 1 :]
    return units[1:]


def _cut_long(units: Iterable[Unit], length: int, overlap: int) -> Iterator[Unit]:
    for at, text in units:
        while len(text) > length:
            end = text.rfind(" ", length // 2, length)
            end = end if end > 0 else length
            yield Unit(at, text[:end])
            space = text.find(" ", max(end - overlap, 1), end)
            text = text[space + 1 if space > 0 else max(end - overlap, 1) :]
        yield Unit(at, text)


def _decoded(data: bytes) -> str | None:
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", errors="replace")
    if b"\0" in data:
        return None

    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("cp1252", errors="replace")


def _units(suffix: str, text: str) -> Iterable[Unit]:
    try:
        if suffix in HTML:
            return [Unit(line, block) for line, block in visible_text(text)]
        if suffix in TABLES:
            return list(_rows(text, TABLES[suffix]))
        if suffix == ".json":
            return list(_values("$", json.loads(text)))
        if suffix in (".jsonl", ".ndjson"):
            return [Unit(n, _joined(json.loads(line))) for n, line in _numbered(text) if line.strip()]
    except (ValueError, csv.Error, RecursionError):
        pass  # not JSON in spite of its name: indexed as plain text

    return [Unit(number, line) for number, line in _numbered(text)]


def _numbered(text: str) -> Iterator[tuple[int, str]]:
    # Only the line breaks that editors count.
    return enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), start=1)


def _rows(text: str, delimiter: str) -> Iterator[Unit]:
    """Rows with the names of their columns, so that each can be understood and found on its own."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    names = next(reader, cast("list[str]", []))
    if names:
        yield Unit(1, delimiter.join(names))
    for row in reader:
        named = (f"{names[i]}: {cell}" if i < len(names) else cell for i, cell in enumerate(row) if cell)
        yield Unit(reader.line_num, "; ".join(named))


def _values(path: str, value: Any) -> Iterator[Unit]:
    if isinstance(value, dict):
        for key, inner in cast("dict[str, Any]", value).items():
            yield from _values(f"{path}.{key}" if key.isidentifier() else f"{path}[{json.dumps(key)}]", inner)
    elif isinstance(value, list):
        for index, inner in enumerate(cast("list[Any]", value)):
            yield from _values(f"{path}[{index}]", inner)
    else:
        text = value if isinstance(value, str) else json.dumps(value)
        yield Unit(
            path,
            f"{path.removeprefix('$').removeprefix('.')}: {text}" if path != "$" else text,
        )


def _joined(value: Any) -> str:
    return "; ".join(unit.text for unit in _values("$", value))
