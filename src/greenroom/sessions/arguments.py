"""Checks arguments of session stores, and reads and writes the tokens of pages."""

from __future__ import annotations

from collections.abc import Sequence

from greenroom.errors import InvalidRequest
from greenroom.records import wire
from greenroom.records.session import GetSessionConfig, Session


def check_config(config: GetSessionConfig | None) -> None:
    if config is not None and config.num_recent_events is not None and config.num_recent_events < 0:
        raise InvalidRequest("numRecentEvents must not be negative", location=("query", "numRecentEvents"))
    if config is not None and config.until_seq is not None and config.until_seq < 0:
        raise InvalidRequest("untilSeq must not be negative", location=("query", "untilSeq"))


def check_fork(seq: int | None, last_seq: int) -> int:
    """The sequence number after which a log of `last_seq` events is forked."""
    if seq is not None and not 0 <= seq <= last_seq:
        raise InvalidRequest(f"seq must be between 0 and {last_seq}, the last event's", location=("body", "seq"))
    return last_seq if seq is None else seq


def check_limit(limit: int | None) -> None:
    if limit is not None and limit < 1:
        raise InvalidRequest("limit must be at least 1", location=("query", "limit"))


def next_page(page: Sequence[Session]) -> str:
    """The token of the next page."""
    last = page[-1]
    return wire.write_page_token(last.last_update_time, last.user_id, last.id)


def page_position(page_token: str | None) -> tuple[float, str, str] | None:
    """Update time, user and id of the last session of the previous page. Raises InvalidRequest."""
    if not page_token:
        return None
    time, (user_id, session_id) = wire.read_page_token(page_token, keys=2)
    return time, user_id, session_id
