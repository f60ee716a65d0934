"""An artifact in a form that models take: media they know as it is, other things as text."""

from __future__ import annotations

import codecs
import logging
import mimetypes

from greenroom.records.content import Blob, Part
from greenroom.tools.builtin.office_text import DOCX, XLSX, UnreadableDocument, docx_text, xlsx_tables

_log = logging.getLogger("greenroom.tools")

_MAX_DOCUMENT_BYTES = 10 * 1024 * 1024
_MEDIA = ("image/", "audio/", "video/")
_TEXT = frozenset(
    f"application/{name}"
    for name in ("json", "csv", "xml", "yaml", "x-yaml", "javascript", "x-ndjson", "jsonl", "sql", "toml")
)
_UNKNOWN = ("", "application/octet-stream", "binary/octet-stream")
_DOCUMENTS = {DOCX: docx_text, XLSX: xlsx_tables}


def readable_part(name: str, part: Part) -> Part:
    """Text and file references are kept. What no model can read becomes a note that says what it is."""
    if part.inline_data is None:
        if part.text is None and part.file_data is None:
            return Part(text=f"[Artifact {name} holds no data.]")
        return part
    data = part.inline_data.data or b""
    if not data:
        return Part(text=f"[Artifact {name} holds no data.]")
    mime_type, _, parameters = (part.inline_data.mime_type or "").lower().partition(";")
    mime_type = mime_type.strip()
    if mime_type in _UNKNOWN:
        mime_type = mimetypes.guess_type(name)[0] or mime_type
    if mime_type.startswith("text/") or mime_type in _TEXT or mime_type.endswith(("+json", "+xml", "/xml")):
        return Part(text=_decoded(data, parameters))
    if mime_type == "application/pdf" or mime_type.startswith(_MEDIA):
        if part.inline_data.mime_type == mime_type:
            return part
        return Part(inline_data=Blob(data=data, mime_type=mime_type, display_name=part.inline_data.display_name))
    if mime_type in _DOCUMENTS and len(data) <= _MAX_DOCUMENT_BYTES:
        try:
            return Part(text=_DOCUMENTS[mime_type](data))
        except UnreadableDocument as error:
            _log.warning("artifact %s is shown by its name only: %s", name, error)
    kind = mime_type or "unknown type"
    return Part(text=f"[Artifact {name} is binary ({kind}, {len(data) / 1024:.1f} KB) and can't be shown as text.]")


def _decoded(data: bytes, parameters: str) -> str:
    for bom, encoding in ((codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16")):
        if data.startswith(bom):
            return data.decode(encoding, errors="replace")
    _, _, charset = parameters.replace(" ", "").partition("charset=")
    try:
        encoding = codecs.lookup(charset.partition(";")[0].strip("\"'") or "utf-8-sig").name
        text = data.decode(encoding, errors="replace")
    except LookupError:
        text = data.decode("utf-8-sig", errors="replace")
    return text.removeprefix("\ufeff")
