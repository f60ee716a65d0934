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

_FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
_CAUSE = "The direct cause of:"


class TextFormatter(logging.Formatter):
    """Log lines for people, tracebacks in full."""

    def format(self, record: logging.LogRecord) -> str:
        return hide_secrets(super().format(record))


class JsonFormatter(logging.Formatter):
    """Formats each message as one line with a JSON object.

    Each has `time` (UTC), `level`, `logger` and `message`, and with several workers the number of its `worker`.
    Messages of a run have `appName`, `sessionId` and `runId`.
    Errors have `error`, the class, and `traceback`. The texts of errors may quote users, so they are only included with
    content.
    """

    def __init__(self, *, with_content: bool, worker: int | None = None) -> None:
        super().__init__()
        self._with_content = with_content
        self._worker = worker

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, str | int] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": hide_secrets(record.getMessage()),
        }

        if self._worker is not None:
            line["worker"] = self._worker

        run = current_run.get()
        if run is not None:
            line |= {"appName": run.app_name, "sessionId": run.session_id, "runId": run.id}

        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            line["error"] = type(error).__name__
            line["traceback"] = hide_secrets("\n".join(self._lines_of(error, set())))
        return json.dumps(line)  # all ASCII, so that any terminal and any broken file name works

    def _lines_of(self, error: BaseException, seen: set[int]) -> Iterator[str]:
        """Yields the traceback as Python prints it, the cause first. Texts of errors are only included with content."""
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


def set_up_log(settings: ServeSettings, *, worker: int | None = None) -> None:
    """Sends log messages to standard error. worker: the number of this process among several."""
    if settings.log_format == "json":
        content = content_policy(settings.traced_content)
        formatter = JsonFormatter(with_content=content.in_export, worker=worker)
    else:
        source = "" if worker is None else f"worker {worker}, "
        formatter = TextFormatter(_FORMAT.replace("%(name)s", source + "%(name)s"))

    handler = logging.StreamHandler()
    handler.setFormatter(formatter)
    level = "DEBUG" if is_debugging() else settings.log_level.upper()
    logging.basicConfig(level=level, handlers=[handler])
