"""Creates ids: UUIDs (RFC 9562, version 4) with ADK's prefixes. All are random except those of events."""

from __future__ import annotations

import os
import time

_READ_AT_ONCE = 256
_VARIANTS = {digit: "89ab"[int(digit, 16) % 4] for digit in "0123456789abcdef"}
"""By a random digit, the first one of a UUID's fourth group."""

_unused: list[str] = []
os.register_at_fork(after_in_child=_unused.clear)


def uuid4() -> str:
    digits = _random_digits()
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{_VARIANTS[digits[16]]}{digits[17:20]}-{digits[20:]}"


def _random_digits() -> str:
    """Returns 32 hexadecimal digits. Random bytes are read for many ids at a time: a system call each would cost more
    than the rest of an id.
    """
    try:
        return _unused.pop()
    except IndexError:
        first, *others = os.urandom(16 * _READ_AT_ONCE).hex(" ", 16).split()
        _unused.extend(others)
        return first


_STATE_PATCH = "p-"


def new_event_id() -> str:
    """A UUID that begins with the time (a COMB): the ids of a session ascend, so that its pages of an index are full.

    48 bits of milliseconds, 12 of their fraction, as in version 7, then 62 random ones. Version 4, as of ADK's ids.
    """
    moment = f"{(time.time_ns() << 12) // 1_000_000:015x}"
    digits = _random_digits()
    return f"{moment[:8]}-{moment[8:12]}-4{moment[12:]}-{_VARIANTS[digits[16]]}{digits[17:20]}-{digits[20:]}"


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
