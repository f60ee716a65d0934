"""How many tokens a text or a request is likely to have, before a model has counted them."""

from __future__ import annotations

from collections.abc import Iterable

from greenroom.records import wire
from greenroom.records.content import Content, Part
from greenroom.records.model_exchange import LlmRequest

_BYTES_PER_TOKEN = 3
"""English has about four, JSON and other alphabets about three, so this errs on the dear side."""

_FILE_TOKENS = 1_500
_CONTENT_TOKENS = 4


def request_tokens(request: LlmRequest) -> int:
    """The prompt: contents, system instruction and tool declarations."""
    total = text_tokens(request.config.system_text()) + contents_tokens(request.contents)
    for declaration in request.function_declarations():
        total += text_tokens(wire.encode(declaration))
    if request.config.response_schema is not None:
        total += text_tokens(repr(request.config.response_schema))
    return total


def contents_tokens(contents: Iterable[Content]) -> int:
    return sum(_CONTENT_TOKENS + sum(_part_tokens(part) for part in content.parts or ()) for content in contents)


def text_tokens(text: str | bytes) -> int:
    size = len(text) if isinstance(text, bytes) or text.isascii() else len(text.encode(errors="replace"))
    return -(-size // _BYTES_PER_TOKEN)


def _part_tokens(part: Part) -> int:
    if part.text is not None:
        return text_tokens(part.text)
    if part.inline_data is not None or part.file_data is not None:
        return _FILE_TOKENS
    return text_tokens(wire.encode(part))
