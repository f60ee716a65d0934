"""Reads the errors that servers send with status 200, as a whole reply or within a stream."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import msgspec

from greenroom.records.base import JsonObject, JsonValue

_MAX_SHOWN = 500


class ErrorReply(Exception):
    """An error that a server sent in place of a reply.

    message, type (kind), code: as the server has them.

    status_code: the HTTP status that its code is, if it is one.
    """

    def __init__(
        self, message: str, *, kind: str | None = None, code: str | None = None, status_code: int | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.type = kind
        self.code = code
        self.status_code = status_code

    @classmethod
    def of(cls, error: JsonValue, *, around: JsonObject | None = None) -> ErrorReply:
        """Reads an error as servers write it: a text, or an object with any of the usual fields.

        around: the object that has it, where some servers put the type and the code.
        """
        fields: JsonObject = {"message": error}
        if isinstance(error, dict):
            fields = cast("JsonObject", error)

        sources = [fields, around or {}]
        code = _first(sources, ("code", "status_code", "http_status"))
        kind = _first(sources, ("type", "error_type", "status"))

        return cls(
            _message(fields) or _text(error),
            kind=kind if isinstance(kind, str) and kind != "error" else None,
            code=str(code) if code is not None else None,
            status_code=_http_status(code) or _http_status(kind),
        )


def error_in(body: JsonObject) -> ErrorReply | None:
    """The error that a body or an event reports; None for others.

    Source: the error bodies of OpenAI, Anthropic, OpenRouter (`error`), TGI (`error` as text beside
    `error_type`), vLLM and Mistral (`"object": "error"`).
    """
    error = body.get("error")
    if error:
        return ErrorReply.of(error, around=body)
    if "error" in (body.get("object"), body.get("type")):
        return ErrorReply.of(body)
    return None


def not_a_reply(body: JsonObject, *, missing: str) -> ErrorReply:
    """The error for a body that lacks the field of every reply: with the server's words, if it has any."""
    error = error_in(body)
    if error is not None:
        return error
    if _message(body):
        return ErrorReply.of(body)
    return ErrorReply(f"The reply has no {missing!r}: {_text(body)}")


def _first(sources: Iterable[JsonObject], names: Iterable[str]) -> JsonValue:
    """The first value among these fields."""
    values = (source.get(name) for source in sources for name in names)
    return next((value for value in values if value is not None), None)


def _message(fields: JsonObject) -> str:
    """The message, or the message of a gateway's upstream service, which OpenRouter has in `metadata.raw`."""
    detail = _first([fields], ("message", "detail", "msg", "error", "error_message"))

    message = "" if detail is None else _text(detail)
    metadata = fields.get("metadata")
    if isinstance(metadata, dict):
        raw = cast("JsonObject", metadata).get("raw")
        if raw:
            message = f"{message}: {_text(raw)}"

    return message


def _text(value: JsonValue) -> str:
    if isinstance(value, str):
        text = value
    else:
        text = msgspec.json.encode(value).decode()
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"


def _http_status(code: JsonValue) -> int | None:
    """Codes of 400 to 599, also as text."""
    if isinstance(code, str) and code.isascii() and code.isdecimal() and len(code) == 3:
        code = int(code)
    if isinstance(code, int) and 400 <= code <= 599:
        return code
    return None
