"""A server's log: its destination, text or JSON format, and redaction of keys and passwords."""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Iterator
from datetime import UTC, datetime

from greenroom.cli.terminal import is_debugging
from greenroom.server.app_logs import hide_secrets
from greenroom.server.inspection import content_policy
from greenroom.server.settings import ServeSettings
from greenroom.telemetry.span import current_run


class TextFormatter(logging.Formatter):
    """Log lines for people, tracebacks in full."""

    def format(self, record: logging.LogRecord) -> str:
        return hide_secrets(super().format(record))


_CAUSE = "The direct cause of:"


class JsonFormatter(logging.Formatter):
    """One JSON object a line: `time` (UTC), `level`, `logger`, `message`, of a run's lines `appName`, `sessionId` and
    `runId`, of an error's `error`, its class, and `traceback`. Messages of errors may quote users, so they are left out
    unless content is wanted."""

    def __init__(self, *, with_content: bool) -> None:
        super().__init__()
        self._with_content = with_content

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": hide_secrets(record.getMessage()),
        }
        run = current_run.get()
        if run is not None:
            line |= {"appName": run.app_name, "sessionId": run.session_id, "runId": run.id}
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            line["error"] = type(error).__name__
            line["traceback"] = hide_secrets("\n".join(self._lines_of(error, set())))
        return json.dumps(line)  # all ASCII, so that any terminal and any broken file name works

    def _lines_of(self, error: BaseException, seen: set[int]) -> Iterator[str]:
        """The traceback as Python prints it, the cause first; messages of errors only with content."""
        seen.add(id(error))
        cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        if cause is not None and id(cause) not in seen:
            yield from self._lines_of(cause, seen)
            yield _CAUSE
        yield from "".join(traceback.format_tb(error.__traceback__)).splitlines()
        lines = traceback.format_exception_only(error) if self._with_content else [type(error).__name__]
        yield "".join(lines).rstrip()
        if isinstance(error, BaseExceptionGroup):
            for each in error.exceptions:  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
                yield from self._lines_of(each, seen)  # pyright: ignore[reportUnknownArgumentType]


_FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"


def set_up_log(settings: ServeSettings) -> None:
    handler = logging.StreamHandler()
    if settings.log_format == "json":
        content = content_policy(settings.traced_content)
        handler.setFormatter(JsonFormatter(with_content=content.in_export))
    else:
        handler.setFormatter(TextFormatter(_FORMAT))
    logging.basicConfig(level="DEBUG" if is_debugging() else settings.log_level.upper(), handlers=[handler])
