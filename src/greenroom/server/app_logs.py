"""The log of each app, in memory: the log lines of its runs, without keys and passwords."""

from __future__ import annotations

import logging
import os
import re
from collections import deque

from greenroom.records.base import Record
from greenroom.telemetry.span import Run, current_run

HIDDEN = "***"

_SECRET_NAME = re.compile(r"(?:^|_)(?:API_?KEY|KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS)$", re.IGNORECASE)
_SHORTEST = 8
"""Shorter values would match ordinary words."""

_KNOWN_FORMS = re.compile(
    r"""(?x)
    (?P<scheme> \b(?:Bearer|Basic)\ +) [^\s"',;)]{8,}
    | (?P<user> ://[^\s/:@]*:) [^\s/@]+ (?=@)
    | (?P<name> [?&;](?:api_?key|key|token|access_token|password|secret)=) [^\s"'&;)]+
    | \b(?: gr_[0-9a-f]{10}_[\w-]{43} | sk-[\w-]{8,} | AIza[\w-]{20,} | gh[opsu]_\w{20,} | xox[a-z]-[\w-]{10,}
    | AKIA[0-9A-Z]{16} | eyJ[\w-]{8,}\.[\w-]+\.[\w-]* )
    """,
    re.IGNORECASE,
)


def hide_secrets(text: str) -> str:
    """Masks the values of environment variables that are named like secrets, and texts in the form of a secret."""
    for name, value in os.environ.items():
        if len(value) >= _SHORTEST and value in text and _SECRET_NAME.search(name):
            text = text.replace(value, HIDDEN)
    return _KNOWN_FORMS.sub(lambda found: (found["scheme"] or found["user"] or found["name"] or "") + HIDDEN, text)


MAX_BYTES = 256 * 1024
MAX_LINE_CHARS = 8 * 1024
_LINE_BYTES = 300
"""Size of a line without its text."""

_formatter = logging.Formatter()


class LogLine(Record, kw_only=True):
    """A line of an app's log."""

    number: int
    """Counted from 1, one more with each line of the server."""
    time: float
    """Unix seconds."""
    level: str
    """`debug`, `info`, `warning`, `error` or `critical`."""
    logger: str
    """The name of the logger."""
    message: str
    """At most 8,192 characters."""
    user_id: str
    """The owner of the session."""
    session_id: str
    """The session of the run."""
    run_id: str
    """The run that logged the line."""
    error: str | None = None
    """The traceback of an error, or its class if content isn't traced; at most 8,192 characters."""


class ListLogsResponse(Record, kw_only=True, omit_defaults=False):
    """Lines of an app's log."""

    lines: list[LogLine]
    """Oldest first."""


class AppLogs(logging.Handler):
    """Keeps the newest lines of each app, up to MAX_BYTES. with_content: whether lines have messages of errors."""

    def __init__(self, *, with_content: bool) -> None:
        super().__init__()
        self._with_content = with_content
        self._apps: dict[str, tuple[deque[LogLine], int]] = {}
        self._last = 0

    def emit(self, record: logging.LogRecord) -> None:
        run = current_run.get()
        if run is not None:
            try:
                self._add(record, run)
            except Exception:  # a line that can't be formatted must not fail the code that logs it
                self.handleError(record)

    def _add(self, record: logging.LogRecord, run: Run) -> None:
        error = None
        if record.exc_info and record.exc_info[0] is not None:
            error = _formatter.formatException(record.exc_info) if self._with_content else record.exc_info[0].__name__
        self._last += 1
        line = LogLine(
            number=self._last,
            time=record.created,
            level=record.levelname.lower(),
            logger=record.name,
            message=_clean(record.getMessage())[:MAX_LINE_CHARS],
            user_id=run.user_id,
            session_id=run.session_id,
            run_id=run.id,
            error=error and _clean(error)[-MAX_LINE_CHARS:],
        )
        lines, size = self._apps.get(run.app_name) or (deque[LogLine](), 0)
        lines.append(line)
        size += _size(line)
        while size > MAX_BYTES:
            size -= _size(lines.popleft())
        self._apps[run.app_name] = lines, size

    def after(self, number: int, *, app_name: str, user_id: str | None, limit: int) -> list[LogLine]:
        """The newest lines after the one with the number, oldest first. user_id None: of all users."""
        self.acquire()
        try:
            lines, _ = self._apps.get(app_name) or ((), 0)
            matching = [line for line in lines if line.number > number and user_id in (None, line.user_id)]
        finally:
            self.release()
        return matching[-limit:]


def _clean(text: str) -> str:
    """Removes secrets, and lone surrogates (as of broken file names), which JSON in UTF-8 can't have."""
    return hide_secrets(text).encode("utf-8", "replace").decode()


def _size(line: LogLine) -> int:
    return _LINE_BYTES + len(line.message.encode()) + len((line.error or "").encode())
