"""The schedules in the settings of an app in YAML."""

from __future__ import annotations

from typing import Any

from greenroom.apps.yaml_config.document import ConfigNode
from greenroom.apps.yaml_config.keys import entries_of, snake
from greenroom.errors import InvalidRequest
from greenroom.records import wire
from greenroom.records.schedule import Schedule
from greenroom.schedules.times import read_time
from greenroom.schedules.validation import check_schedule

_TIMES = ("at", "start_at", "end_at")
_KEYS = (
    *("id", "user_id", "session_id", "cron", "time_zone", "every_seconds", *_TIMES, "jitter_seconds"),
    *("missed", "overlap", "message", "request"),
)


def read_schedule(node: ConfigNode) -> Schedule:
    """Raises ConfigFileError."""
    fields = entries_of(node, _KEYS, what="of a schedule")
    if "message" in fields and "request" in fields:
        raise fields["message"].error("give either message or request, which holds the message, too")

    plain: dict[str, Any] = {key: _time(entry) if key in _TIMES else entry.plain() for key, entry in fields.items()}
    if "message" in plain:
        plain["message"] = fields["message"].text
    try:
        schedule = wire.from_plain(Schedule.from_shorthands(**plain), Schedule)
        check_schedule(schedule)
    except InvalidRequest as error:
        named = fields.get(snake(str(error.location[-1])), node)
        raise named.error(error.detail) from None
    return schedule


def _time(node: ConfigNode) -> object:
    """Unix seconds, also those of a date and time in text."""
    if not isinstance(node.value, str):
        return node.plain()
    try:
        return read_time(node.text)
    except ValueError as error:
        raise node.error(f"must be a time with an offset, such as 2026-03-01T09:00:00+01:00: {error}") from None
