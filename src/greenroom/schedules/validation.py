"""Refuses schedules that can't work."""

from __future__ import annotations

import math
import re
from datetime import datetime

from greenroom.errors import InvalidRequest
from greenroom.records.human_requests import responses_in
from greenroom.records.schedule import LAST_TIME, MAX_CRON_LENGTH, MAX_JITTER_SECONDS, SCHEDULE_ID, Schedule
from greenroom.schedules.times import zone_of

_ID = re.compile(SCHEDULE_ID)
_CRON_FIELDS = 5


def check_schedule(schedule: Schedule) -> None:
    """Raises InvalidRequest."""
    if not _ID.fullmatch(schedule.id):
        raise InvalidRequest(
            "The id of a schedule may have up to 64 letters, digits, '_' and '-'", location=("body", "id")
        )
    if not schedule.user_id:
        raise InvalidRequest("A schedule needs the user whose sessions its runs are in", location=("body", "userId"))
    if schedule.session_id == "":
        raise InvalidRequest(
            "sessionId must not be empty; without it each run gets a new session", location=("body", "sessionId")
        )
    _check_times(schedule)
    _check_overlap(schedule)
    _check_request(schedule)


def _check_times(schedule: Schedule) -> None:
    given = [name for name in ("cron", "every_seconds", "at") if getattr(schedule, name) is not None]
    if len(given) != 1:
        raise InvalidRequest("A schedule has exactly one of cron, everySeconds and at", location=("body", "cron"))
    given_times = {
        "at": schedule.at,
        "startAt": schedule.start_at,
        "endAt": schedule.end_at,
        "createdAt": schedule.created_at,
    }
    for name, value in given_times.items():
        if value is not None and not 0 <= value < LAST_TIME:
            raise InvalidRequest(f"{name} must be Unix seconds, before the year 9000", location=("body", name))
    if schedule.start_at is not None and schedule.end_at is not None and schedule.end_at < schedule.start_at:
        raise InvalidRequest("endAt must not be before startAt", location=("body", "endAt"))
    if schedule.every_seconds is not None and not 1 <= schedule.every_seconds <= LAST_TIME:
        raise InvalidRequest("everySeconds must be at least 1", location=("body", "everySeconds"))
    if not 0 <= schedule.jitter_seconds <= MAX_JITTER_SECONDS or math.isnan(schedule.jitter_seconds):
        message = f"jitterSeconds must be from 0 to {MAX_JITTER_SECONDS:.0f}"
        raise InvalidRequest(message, location=("body", "jitterSeconds"))
    zone_of(schedule.time_zone)
    if schedule.cron is not None:
        _check_cron(schedule.cron)


def _check_cron(expression: str) -> None:
    from cronsim import CronSim, CronSimError  # most servers have no cron expression

    if len(expression) > MAX_CRON_LENGTH:
        raise InvalidRequest(f"cron must be at most {MAX_CRON_LENGTH} characters long", location=("body", "cron"))
    if len(expression.split()) != _CRON_FIELDS:
        message = "cron has five fields: minute, hour, day of the month, month and day of the week"
        raise InvalidRequest(message, location=("body", "cron"))
    try:
        has_time = next(CronSim(expression, datetime(2000, 1, 1)), None) is not None
    except CronSimError as error:
        raise InvalidRequest(f"cron {expression!r} is invalid: {error}", location=("body", "cron")) from None
    if not has_time:
        raise InvalidRequest(f"cron {expression!r} has no time: there is no such day", location=("body", "cron"))


def _check_overlap(schedule: Schedule) -> None:
    if schedule.session_id is None and schedule.overlap == "enqueue":
        message = "overlap can be 'enqueue' only with a sessionId: runs in new sessions don't wait for each other"
        raise InvalidRequest(message, location=("body", "overlap"))
    if schedule.session_id is not None and schedule.overlap == "allow":
        message = "overlap can't be 'allow' with a sessionId: runs of one session follow each other"
        raise InvalidRequest(message, location=("body", "overlap"))


def _check_request(schedule: Schedule) -> None:
    request = schedule.request
    if request.invocation_id is not None:
        raise InvalidRequest(
            "A schedule continues no run: leave invocationId out", location=("body", "request", "invocationId")
        )
    if request.start_at is not None or request.delay_seconds is not None:
        message = "The schedule says when its runs start: leave startAt and delaySeconds out of the request"
        raise InvalidRequest(message, location=("body", "request", "startAt"))
    if responses_in(request.new_message):
        message = "A schedule answers no call: its message must not hold function responses"
        raise InvalidRequest(message, location=("body", "request", "newMessage"))
    if request.multitask_strategy != "enqueue":
        message = "overlap is the policy of a schedule: leave multitaskStrategy out"
        raise InvalidRequest(message, location=("body", "request", "multitaskStrategy"))
