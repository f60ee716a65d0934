"""Finds the states that an agent stored in a session's log, over all runs: the history of an agent that another
framework runs is the sequence of them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from greenroom.log.state import log_state_of
from greenroom.records.copy_on_write import CopyOnWriteList
from greenroom.records.event import Event

_KEY = "agent_states"


class AgentThread(NamedTuple):
    """The agent of a conversation: each branch and each call of an agent as a tool has a conversation of its own."""

    author: str
    branch: str | None
    scope: str | None


_Indexes: TypeAlias = dict[AgentThread, list[int]]


def agent_state_indexes(events: CopyOnWriteList[Event], thread: AgentThread) -> Sequence[int]:
    """The indexes of the events with a state of that agent, oldest first, without those that were taken back. Each
    event of a log is read once.
    """
    rewound = log_state_of(events).rewound
    end = len(events)

    known: tuple[int, frozenset[int], _Indexes] = events.derived.get(_KEY) or (0, rewound, {})
    seen, known_rewound, indexes = known
    if known_rewound != rewound:
        seen = 0
        indexes = {}

    if seen < end:
        _read(events, rewound, indexes, since=seen)
        events.derived[_KEY] = end, rewound, indexes

    own = indexes.get(thread, [])
    if seen > end:  # another holder of the log has appended to it
        return own[: bisect_left(own, end)]
    return own


def _read(events: CopyOnWriteList[Event], rewound: frozenset[int], indexes: _Indexes, *, since: int) -> None:
    for index, event in enumerate(events[since:], since):
        if event.actions.agent_state is not None and index not in rewound:
            thread = AgentThread(event.author, event.branch, event.isolation_scope)
            indexes.setdefault(thread, []).append(index)
