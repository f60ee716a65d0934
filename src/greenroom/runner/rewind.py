"""Restores state of the session's own scope, and its artifacts, for a rewind."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from greenroom.artifacts.layout import removed_part
from greenroom.artifacts.service import USER_NAMESPACE, BaseArtifactService
from greenroom.errors import RunNotFound
from greenroom.records.base import JsonObject
from greenroom.records.event import Event, EventActions
from greenroom.records.identifiers import new_invocation_id
from greenroom.records.session import Session
from greenroom.records.state import REMOVED, split_by_scope

_log = logging.getLogger("greenroom.runner")


InvocationNotFoundError = RunNotFound
"""ADK's name."""


async def rewind_event(session: Session, before: str, artifacts: BaseArtifactService | None) -> Event:
    """The event that takes a session, whose whole log is given, back to where the run with the id `before` began.

    Saves new versions of the artifacts that have changed since. Raises RunNotFound.
    """
    events = session.events
    begins_at = next((index for index, event in enumerate(events) if event.invocation_id == before), None)
    if begins_at is None:
        raise RunNotFound(before)
    earlier = events[:begins_at]
    later = events[begins_at:]
    actions = EventActions(rewind_before_invocation_id=before, state_delta=_state_delta(session, earlier, later))
    if artifacts is not None:
        actions.artifact_delta = await _restored(session, earlier, later, artifacts)
    return Event(invocation_id=new_invocation_id(), author="user", actions=actions)


def _state_delta(session: Session, earlier: Sequence[Event], later: Sequence[Event]) -> JsonObject:
    """Returns the delta that undoes the later events. The initial state is no event: a key of it that changed is
    removed."""
    before: JsonObject = {}
    for event in earlier:
        before.update(split_by_scope(event.actions.state_delta).session)
    changed = dict.fromkeys(key for event in later for key in split_by_scope(event.actions.state_delta).session)
    restored = {key: before.get(key, REMOVED) for key in changed}
    return {key: value for key, value in restored.items() if value != session.state.get(key, REMOVED)}


async def _restored(
    session: Session, earlier: Sequence[Event], later: Sequence[Event], artifacts: BaseArtifactService
) -> dict[str, int]:
    key = session.key._asdict()
    before: dict[str, int] = {}
    for event in earlier:
        before.update(event.actions.artifact_delta)
    newest = before.copy()
    for event in later:
        newest.update(event.actions.artifact_delta)
    versions: dict[str, int] = {}
    for filename, version in newest.items():
        if filename.startswith(USER_NAMESPACE) or before.get(filename) == version:
            continue
        artifact = None
        if filename in before:
            artifact = await artifacts.load_artifact(**key, filename=filename, version=before[filename])
            if artifact is None:
                _log.warning("version %d of artifact %r, to be restored, is gone", before[filename], filename)
        versions[filename] = await artifacts.save_artifact(
            **key, filename=filename, artifact=removed_part() if artifact is None else artifact
        )
    return versions
