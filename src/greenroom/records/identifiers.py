"""Creates ids: UUIDs (RFC 9562, version 4) with ADK's prefixes. All are random except those of events."""

from __future__ import annotations

import os
import time

_RANDOM_BITS = (1 << 128) - 1 ^ (0xF << 76) ^ (0b11 << 62)
_VERSION_BITS = (4 << 76) | (0b10 << 62)
_AFTER_TIME = (0xF << 76) | (1 << 64) - 1
_READ_AT_ONCE = 256

_noise: list[bytes] = []
os.register_at_fork(after_in_child=_noise.clear)


def uuid4() -> str:
    return _to_text(_random_uuid())


def _random_uuid() -> int:
    """Random bytes are read for many ids at a time: a system call each would cost more than the rest of an id."""
    try:
        noise = _noise.pop()
    except IndexError:
        fresh = os.urandom(16 * _READ_AT_ONCE)
        _noise.extend(fresh[start : start + 16] for start in range(16, len(fresh), 16))
        noise = fresh[:16]
    return int.from_bytes(noise) & _RANDOM_BITS | _VERSION_BITS


def _to_text(uuid: int) -> str:
    text = f"{uuid:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


_STATE_PATCH = "p-"


def new_event_id() -> str:
    """A UUID that begins with the time (a COMB): the ids of a session ascend, so that its pages of an index are full.

    48 bits of milliseconds, 12 of their fraction, as in version 7, then 62 random ones. Version 4, as of ADK's ids.
    """
    milliseconds, nanoseconds = divmod(time.time_ns(), 1_000_000)
    ordered = milliseconds << 80 | (nanoseconds << 12) // 1_000_000 << 64
    return _to_text(_random_uuid() & _AFTER_TIME | ordered)


def new_session_id() -> str:
    return uuid4()


def new_invocation_id() -> str:
    """Returns a new invocation id, which is also the id of the run."""
    return f"e-{uuid4()}"


def new_webhook_id() -> str:
    return f"wh_{uuid4()}"


def new_schedule_id() -> str:
    return f"sch_{uuid4()}"


def new_delivery_id() -> str:
    """Returns the id of a message to a webhook, which all its tries have."""
    return f"msg_{uuid4()}"


def new_state_patch_id() -> str:
    """Invocation id of a state change that a client made outside a run."""
    return f"{_STATE_PATCH}{uuid4()}"


def is_state_patch_id(invocation_id: str) -> bool:
    return invocation_id.startswith(_STATE_PATCH)


def new_function_call_id() -> str:
    """Makes an id for a call to which the model gave none; the prefix keeps it from being sent back to the model."""
    return f"adk-{uuid4()}"
