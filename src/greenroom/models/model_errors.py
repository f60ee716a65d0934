"""Maps what providers' SDKs raise to `ModelError`: its category, whether to retry, and when.

Source: the rules of ADK's Spring AI adapter, which apply to exceptions without an HTTP status.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from greenroom.errors import MessageConversionError, ModelError, ModelErrorCategory
from greenroom.models.error_reply import ErrorReply

_C = ModelErrorCategory
_PREFIXES = {
    _C.AUTH_ERROR: "Authentication error",
    _C.CLIENT_ERROR: "Client error",
    _C.RATE_LIMITED: "Rate limited",
    _C.SERVER_ERROR: "Server error",
    _C.TIMEOUT_ERROR: "Timeout",
    _C.NETWORK_ERROR: "Network error",
    _C.MODEL_ERROR: "Model error",
    _C.UNKNOWN_ERROR: "Unknown error",
}
_STATUSES = {401: _C.AUTH_ERROR, 403: _C.AUTH_ERROR, 408: _C.TIMEOUT_ERROR, 409: _C.SERVER_ERROR, 425: _C.SERVER_ERROR,
             429: _C.RATE_LIMITED, 504: _C.TIMEOUT_ERROR}  # fmt: skip
"""409: the providers' SDKs take it for a conflict that passes. Other 4xx are client errors, 5xx
server errors.
"""

_TYPES: list[tuple[ModelErrorCategory, str]] = [
    (_C.SERVER_ERROR, "overloaded|api_error|server_error|internal|unavailable"),
    (_C.RATE_LIMITED, "rate_limit|resource_exhausted"),
    (_C.TIMEOUT_ERROR, "timeout|deadline"),
    (_C.AUTH_ERROR, "authentication|permission|unauthenticated"),
    (_C.CLIENT_ERROR, "invalid|not_found|too_large|billing"),
]
"""Types and codes that providers give errors, also those in the middle of a stream, which have no
HTTP status.
"""

_WORDS: list[tuple[ModelErrorCategory, str]] = [
    (_C.AUTH_ERROR, "unauthorized|authentication|api key|invalid key|401"),
    (_C.RATE_LIMITED, "rate limit|quota exceeded|too many requests|429"),
    (_C.CLIENT_ERROR, "bad request|invalid|400|404|model not found|unsupported"),
    (_C.SERVER_ERROR, "internal server error|service unavailable|500|502|503"),
    (_C.NETWORK_ERROR, "connection|network|host|dns"),
    (_C.MODEL_ERROR, "model.*(not found|unavailable|deprecated)|(not found|unavailable|deprecated).*model"),
]
_QUOTA_USED_UP = "insufficient_quota"
_SECRET = re.compile(r"\b(sk|key|Bearer)[-_ ][^\s'\",;)]{4,}", re.IGNORECASE)


def category_of(error: BaseException | None) -> ModelErrorCategory:
    """Returns the category by the HTTP status if the error has one, else by its type, else by words in its message."""
    if error is None:
        return _C.UNKNOWN_ERROR

    status = http_status_of(error)
    if status is not None and status >= 400:
        if status == 400 and "api key" in str(error).lower():
            return _C.AUTH_ERROR  # Gemini's way
        return _STATUSES.get(status, _C.SERVER_ERROR if status >= 500 else _C.CLIENT_ERROR)

    for kind in (getattr(error, "type", None), getattr(error, "code", None)):
        if isinstance(kind, str) and (category := category_of_type(kind)) is not None:
            return category

    kinds = [*type(error).__mro__, type(error.__cause__)]

    names = " ".join(kind.__name__ for kind in kinds)
    if "Timeout" in names:
        return _C.TIMEOUT_ERROR
    if re.search("ConnectionError|ConnectError|NetworkError|TransportError|ClientPayloadError", names):
        return _C.NETWORK_ERROR
    if _is_unreadable(error):
        return _C.SERVER_ERROR

    # An error without a kind is the server's own failure.
    if isinstance(error, ErrorReply):
        otherwise = _C.SERVER_ERROR
    else:
        otherwise = _C.UNKNOWN_ERROR

    return _by_words(_WORDS, str(error).lower()) or otherwise


def _is_unreadable(error: BaseException) -> bool:
    """True if the SDK, or this code, can't read the provider's reply."""
    kinds = [*type(error).__mro__, *type(error.__cause__).__mro__]
    return any(kind.__name__ in ("JSONDecodeError", "DecodeError", "ValidationError") for kind in kinds)


def _by_words(rules: list[tuple[ModelErrorCategory, str]], text: str) -> ModelErrorCategory | None:
    return next((category for category, words in rules if re.search(words, text)), None)


def category_of_type(kind: str | None) -> ModelErrorCategory | None:
    """The category by the type or code that the provider gave the error."""
    return _by_words(_TYPES, kind.lower()) if kind else None


def http_status_of(error: BaseException) -> int | None:
    given = [getattr(error, name, None) for name in ("status_code", "code", "http_status")]
    given.append(getattr(getattr(error, "response", None), "status_code", None))
    return next((int(status) for status in given if isinstance(status, int)), None)


def model_error(
    error: Exception, *, model: str, secrets: Iterable[str | None] = (), message: str | None = None
) -> ModelError:
    """The error with its category before the provider's message, without secrets. A reply that
    can't be read is a MessageConversionError.

    message: the message, if it isn't the error's own.
    """
    category = category_of(error)
    status = http_status_of(error)

    message = message or str(getattr(error, "message", None) or error or type(error).__name__)
    for secret in secrets:
        if secret:
            message = message.replace(secret, "…")

    if status is not None and status >= 400:
        what = f"HTTP {status}"
    else:
        what = type(error).__name__

    detail = f"{model}: {_PREFIXES[category]} ({what}): {_SECRET.sub('…', message)}"

    return new_model_error(
        detail,
        model=model,
        category=category,
        retryable=category.is_retryable and getattr(error, "code", None) != _QUOTA_USED_UP,
        http_status=status,
        retry_after_seconds=_retry_after(error),
        kind=MessageConversionError if (status or 200) < 400 and _is_unreadable(error) else ModelError,
    )


def missing_variable(name: str, *, model: str) -> ModelError:
    detail = f"The model {model!r} needs the environment variable {name}"
    return new_model_error(detail, model=model, category=_C.AUTH_ERROR)


def new_model_error(
    detail: str,
    *,
    model: str,
    category: ModelErrorCategory,
    retryable: bool | None = None,
    http_status: int | None = None,
    retry_after_seconds: float | None = None,
    kind: type[ModelError] = ModelError,
) -> ModelError:
    may_retry = category.is_retryable if retryable is None else retryable
    error = kind(detail, model=model, retryable=may_retry, category=category)
    error.http_status = http_status
    error.retry_after_seconds = retry_after_seconds
    return error


def _retry_after(error: Any) -> float | None:
    """Seconds, from the headers `retry-after-ms` and `retry-after`, or from the RetryInfo of a
    Google error.
    """
    headers: Mapping[str, str] = getattr(error, "litellm_response_headers", None) or {}
    headers = headers or getattr(getattr(error, "response", None), "headers", None) or {}
    try:
        if headers.get("retry-after-ms"):
            return float(headers["retry-after-ms"]) / 1000

        header = headers.get("retry-after")
        if header:
            if header.replace(".", "", 1).isdigit():
                return float(header)
            return max(0.0, (parsedate_to_datetime(header) - datetime.now(UTC)).total_seconds())

        details: Any = getattr(error, "details", None) or {}
        for entry in details["error"]["details"]:
            if "retryDelay" in entry:
                return float(entry["retryDelay"].rstrip("s"))
    except (KeyError, TypeError, ValueError):
        pass  # a malformed hint is no hint

    return None
