"""Log lines for machines."""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Iterator
from datetime import UTC, datetime

from greenroom.cli.log_secrets import hide_secrets
from greenroom.telemetry.current_run import current_run

_CAUSE = "The direct cause of:"


class JsonFormatter(logging.Formatter):
    """One JSON object a line: `time` (UTC), `level`, `logger`, `message`, of a run's lines `appName`, `sessionId` and
    `runId`, of an error's `error`, its class, and `traceback`. What errors say may be what users said, so it is left
    out unless content is wanted."""

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
            line["traceback"] = hide_secrets("\n".join(self._told(error, set())))
        return json.dumps(line)  # all ASCII, so that no terminal and no broken file name stands in the way

    def _told(self, error: BaseException, seen: set[int]) -> Iterator[str]:
        """As Python has it, the cause first, but without what the errors say."""
        seen.add(id(error))
        cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        if cause is not None and id(cause) not in seen:
            yield from self._told(cause, seen)
            yield _CAUSE
        yield from "".join(traceback.format_tb(error.__traceback__)).splitlines()
        told = traceback.format_exception_only(error) if self._with_content else [type(error).__name__]
        yield "".join(told).rstrip()
        if isinstance(error, BaseExceptionGroup):
            for each in error.exceptions:  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
                yield from self._told(each, seen)  # pyright: ignore[reportUnknownArgumentType]
