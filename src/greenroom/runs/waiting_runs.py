"""Compares waiting runs with the present code of their app, before they are answered."""

from __future__ import annotations

from greenroom.apps.app import App
from greenroom.log.state import log_state_of
from greenroom.records.human_requests import (
    REQUEST_CONFIRMATION,
    REQUEST_CREDENTIAL,
    REQUEST_INPUT,
    original_call,
)
from greenroom.records.run import Run, public_record
from greenroom.records.session import Session
from greenroom.records.waiting_run import WaitingRun
from greenroom.runner.version_replay import find_difference
from greenroom.runs.run_config import run_config_of


async def compare(run: Run, app: App, session: Session, *, is_published: bool) -> WaitingRun:
    """Replays a waiting run if it began with another version and would continue with this one.

    session: with all its events. is_published: whether its version is published, so that it continues with that.
    """
    compared = WaitingRun(
        run=public_record(run),
        waits_for=waits_for(run, session),
        version=app.version or None,
        on_version_change=app.on_version_change,
    )
    if run.app_version != compared.version and not is_published:
        config = run_config_of(run.request, app.run_config, 0) if run.request is not None else app.run_config
        compared.difference = await find_difference(app, session, run.id, run_config=config)
    return compared


def waits_for(run: Run, session: Session) -> list[str]:
    """Names the open calls of a run."""
    events = session.events
    state = log_state_of(events).find_run(run.id)
    if state is None:
        return []

    wake_ups = state.wake_ups(events)
    names: list[str] = []
    for (call_id, _), index in state.calls.waiting.items():
        call = next((call for call in events[index].get_function_calls() if call.id == call_id), None)
        wake_up = wake_ups.get(call_id)
        if call is None:
            names.append("the user's next message")
        elif wake_up is not None and wake_up.signal is not None:
            names.append(f"signal {wake_up.signal}")
        elif wake_up is not None:
            names.append("a time")
        elif call.name == REQUEST_CONFIRMATION and (original := original_call(call)) is not None:
            names.append(f"approval of {original.name}")
        elif call.name == REQUEST_CREDENTIAL:
            names.append("a login")
        elif call.name == REQUEST_INPUT:
            names.append("an input")
        else:
            names.append(f"response of {call.name}")

    return names
