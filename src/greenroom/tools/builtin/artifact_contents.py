"""Artifacts in a form that models read: media as they are, text, Word documents and Excel workbooks
as text.
"""

from __future__ import annotations

import codecs
import io
import logging
import mimetypes
import re
import zipfile
from collections.abc import Iterator
from itertools import islice
from xml.etree import ElementTree

from greenroom.records.content import Blob, Part

DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"

_log = logging.getLogger("greenroom.tools")

_MAX_DOCUMENT_BYTES = 10 * 1024 * 1024
_MEDIA = ("image/", "audio/", "video/")
_TEXT = frozenset(
    f"application/{name}"
    for name in ("json", "csv", "xml", "yaml", "x-yaml", "javascript", "x-ndjson", "jsonl", "sql", "toml")
)
_UNKNOWN = ("", "application/octet-stream", "binary/octet-stream")


def readable_part(name: str, part: Part) -> Part:
    """Keeps text and file references. Content that no model can read becomes a note with its name
    and type.
    """
    blob = part.inline_data
    if blob is None and (part.text is not None or part.file_data is not None):
        return part
    if blob is None or not blob.data:
        return Part(text=f"[Artifact {name} holds no data.]")

    data = blob.data
    mime_type, _, parameters = (blob.mime_type or "").lower().partition(";")
    mime_type = mime_type.strip()
    if mime_type in _UNKNOWN:
        mime_type = mimetypes.guess_type(name)[0] or mime_type

    if mime_type.startswith("text/") or mime_type in _TEXT or mime_type.endswith(("+json", "+xml", "/xml")):
        return Part(text=_decoded(data, parameters))

    if mime_type == "application/pdf" or mime_type.startswith(_MEDIA):
        if blob.mime_type == mime_type:
            return part
        return Part(inline_data=Blob(data=data, mime_type=mime_type, display_name=blob.display_name))

    if mime_type in _DOCUMENTS and len(data) <= _MAX_DOCUMENT_BYTES:
        try:
            return Part(text=_DOCUMENTS[mime_type](zipfile.ZipFile(io.BytesIO(data))))
        except Exception as error:  # broken archives raise zlib's, zipfile's and the XML parser's errors
            _log.warning("artifact %s is shown by its name only: %s", name, error)

    kind = mime_type or "unknown type"

    return Part(text=f"[Artifact {name} is binary ({kind}, {len(data) / 1024:.1f} KB) and can't be shown as text.]")


def _decoded(data: bytes, parameters: str) -> str:
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", errors="replace")

    _, _, charset = parameters.replace(" ", "").partition("charset=")
    try:
        encoding = codecs.lookup(charset.partition(";")[0].strip("\"'") or "utf-8-sig").name
        text = data.decode(encoding, errors="replace")
    except LookupError:
        text = data.decode("utf-8-sig", errors="replace")

    return text.removeprefix("\ufeff")


_MAX_UNPACKED_BYTES = 64 * 1024 * 1024
_MAX_ROWS = 100
_MAX_COLUMNS = 100
_WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_SHEET = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
_RELATION = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"
_STRINGS = "xl/sharedStrings.xml"
_BREAKS = {f"{_WORD}tab": "\t", f"{_WORD}br": "\n", f"{_WORD}cr": "\n"}


def docx_text(archive: zipfile.ZipFile) -> str:
    """A line per paragraph."""
    paragraphs = _xml(archive, "word/document.xml").iter(f"{_WORD}p")
    return "\n".join("".join(map(_run_text, paragraph.iter())) for paragraph in paragraphs)


def _run_text(node: ElementTree.Element) -> str:
    if node.tag == f"{_WORD}t":
        return node.text or ""
    return _BREAKS.get(node.tag, "")


def xlsx_tables(archive: zipfile.ZipFile) -> str:
    """A Markdown table per sheet, with at most its first 100 rows."""
    strings: list[str] = []
    if _STRINGS in archive.namelist():
        for item in _xml(archive, _STRINGS):
            strings.append("".join(text.text or "" for text in item.iter(f"{_SHEET}t")))

    targets = {
        relation.get("Id"): (relation.get("Target") or "").removeprefix("/xl/")
        for relation in _xml(archive, "xl/_rels/workbook.xml.rels")
    }
    tables: list[str] = []
    for sheet in _xml(archive, "xl/workbook.xml").iter(f"{_SHEET}sheet"):
        target = targets.get(sheet.get(f"{_RELATION}id"))
        if target:
            rows = _xml(archive, f"xl/{target}").iter(f"{_SHEET}row")
            tables.append(_table(sheet.get("name") or "", _rows(rows, strings)))

    return "\n\n".join(tables)


def _xml(archive: zipfile.ZipFile, name: str) -> ElementTree.Element:
    with archive.open(name) as member:
        data = member.read(_MAX_UNPACKED_BYTES + 1)
    if len(data) > _MAX_UNPACKED_BYTES:
        raise ValueError(f"{name} unpacks to more than {_MAX_UNPACKED_BYTES} bytes")
    if b"<!DOCTYPE" in data:  # no office program writes one, and entities can grow without end
        raise ValueError(f"{name} declares a document type")
    return ElementTree.fromstring(data)


def _rows(rows: Iterator[ElementTree.Element], strings: list[str]) -> Iterator[list[str]]:
    for row in rows:
        cells: list[str] = []
        for cell in row.iter(f"{_SHEET}c"):
            column = _column(cell.get("r"), default=len(cells))
            if column >= _MAX_COLUMNS:
                break
            cells += [""] * (column - len(cells))
            cells.append(_value(cell, strings))

        yield cells


def _column(reference: str | None, *, default: int) -> int:
    """0 of `A7`, 26 of `AA7`."""
    number = 0
    for letter in re.findall(r"[A-Z]", reference or ""):
        number = number * 26 + ord(letter) - ord("A") + 1
    return max(number - 1, default)


def _value(cell: ElementTree.Element, strings: list[str]) -> str:
    kind = cell.get("t")
    if kind == "inlineStr":
        return "".join(text.text or "" for text in cell.iter(f"{_SHEET}t"))

    value = cell.findtext(f"{_SHEET}v") or ""
    if kind == "s":
        if value.isdecimal() and int(value) < len(strings):
            return strings[int(value)]
        return ""

    if kind == "b":
        return "TRUE" if value == "1" else "FALSE"

    return value


def _table(name: str, rows: Iterator[list[str]]) -> str:
    shown = list(islice(rows, _MAX_ROWS))
    left_out = sum(1 for _ in rows)

    width = max((len(row) for row in shown), default=0)
    lines = [f"## {name}"]
    for number, row in enumerate(shown):
        cells = [*row, *[""] * (width - len(row))]
        lines.append("| " + " | ".join(re.sub(r"\s*\n\s*", " ", c).replace("|", "\\|") for c in cells) + " |")
        if number == 0:
            lines.append("|" + " --- |" * width)

    if left_out:
        lines.append(f"({left_out} more rows are not shown.)")

    return "\n".join(lines)


_DOCUMENTS = {DOCX: docx_text, XLSX: xlsx_tables}
