"""Signals that come before their run waits for them: they are stored in its record, each is taken once, oldest first.

{signals: []}                      the run is running
{signals: [paid 5]}                POST …/signals/paid: the record is stored before the request is answered
{signals: [paid 5], status: waiting, wakeUps: {c-1: paid}}     it calls `wait_for`; its wake-up is due at once
{signals: [], status: running}     admitted with the response {"value": 5} to c-1, in one write
"""

from __future__ import annotations

import hashlib
import time

from greenroom.errors import NotWaiting, SignalRepeated, SignalsFull
from greenroom.records import wire
from greenroom.records.base import JsonValue
from greenroom.records.identifiers import uuid4
from greenroom.records.run import Run, RunStatus
from greenroom.records.wake_up import SentSignal, WakeUp

_KNOWN_SECONDS = 86400.0
"""Time for which a run knows a signal that it has received."""

_MAX_SIGNALS = 100
_MAX_BYTES = 64 * 1024
_MAX_IDS = 1000


def new_signal(name: str, value: JsonValue, *, key: str | None = None, known_until: float | None = None) -> SentSignal:
    """A signal that is sent now. key: of any length; a run receives one of the signals with the same key."""
    now = time.time()
    return SentSignal(
        id=uuid4() if key is None else hashlib.sha256(key.encode()).hexdigest(),
        name=name,
        value=value,
        sent_at=now,
        known_until=now + _KNOWN_SECONDS if known_until is None else known_until,
    )


def check_receives(run: Run, signal: SentSignal, *, while_waiting: bool) -> str | None:
    """Returns the id of the call that the signal answers; None if the run may wait for it later.

    while_waiting: whether a run that waits for something else stores it. Raises SignalRepeated, NotWaiting.
    """
    if run.signal_ids.get(signal.id, 0.0) > time.time():
        raise SignalRepeated(run.id, signal.name)
    for call_id, wake_up in run.wake_ups.items():
        if wake_up.signal == signal.name:
            return call_id

    may_wait_later = not run.status.is_over or (run.status is RunStatus.WAITING and while_waiting)
    if run.is_live or not may_wait_later:
        raise NotWaiting(run.id, f"the signal {signal.name!r}")
    return None


def store_signal(run: Run, signal: SentSignal) -> None:
    """Adds a signal that the run does not wait for yet to its record. Raises SignalsFull."""
    if len(run.signals) >= _MAX_SIGNALS:
        raise SignalsFull(run.id, f"{_MAX_SIGNALS} of them")
    if len(wire.encode([*run.signals, signal])) > _MAX_BYTES:
        raise SignalsFull(run.id, f"room for {_MAX_BYTES} bytes of them")
    _note_id(run, signal)
    run.signals.append(signal)


def take_signal(run: Run, signal: SentSignal) -> None:
    """Notes that a call is answered with the signal, which may have been stored. Raises SignalsFull."""
    _note_id(run, signal)
    run.signals[:] = [stored for stored in run.signals if stored.id != signal.id]


def stored_signal(run: Run, wake_up: WakeUp) -> SentSignal | None:
    """The stored signal that answers a call."""
    if wake_up.signal is None:
        return None
    return next((signal for signal in run.signals if signal.name == wake_up.signal), None)


def _note_id(run: Run, signal: SentSignal) -> None:
    ids = run.signal_ids
    now = time.time()
    for old in [old for old, until in ids.items() if until <= now]:
        del ids[old]
    if len(ids) >= _MAX_IDS and signal.id not in ids:
        raise SignalsFull(run.id, f"received {_MAX_IDS} that it still knows")
    ids[signal.id] = signal.known_until
