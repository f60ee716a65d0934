"""The queue of runs that may start, while the server executes as many as it may: by priority, then in fair shares.

Runs of one user in one app are a flow. Within a priority, flows take turns in proportion to their weights: each has a
virtual time, which grows by 1/weight with each of its runs, and the flow with the least is next (start-time fair
queueing). Within a flow, the oldest run is next. Ann has the weight 2, Bob 1; a run of each starts in turn:

    queued: ann a1 a2 a3 a4, bob b1 b2         virtual times      starts
    1                                          ann 0    bob 0     a1
    2                                          ann 0.5  bob 0     b1
    3                                          ann 0.5  bob 1     a2
    4                                          ann 1    bob 1     b2: Bob has this time for longer
    5                                          ann 1    bob 2     a3
    6                                          ann 1.5            a4

A higher priority is next, unless a run of a lower one has waited longer than the oldest of the higher one by
`AGING_SECONDS` for each step between them: then that run is next. So no run waits for ever, since later ones can't
come before it after that time.

    priority 5, queued at 12:00:00     priority 0, queued at 11:57:00      180 s longer, more than 5 × 30 s: priority 0

Each operation takes O(log n) for n flows; the number of priorities is bounded.
"""

from __future__ import annotations

import heapq
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

AGING_SECONDS = 30.0
"""Time in a queue that is worth one step of priority."""

_SLACK = 64
"""Number of outdated entries below which nothing is cleaned up."""

T = TypeVar("T", bound=Hashable)


class Flow(NamedTuple):
    app_name: str
    user_id: str


@dataclass(frozen=True)
class Weights:
    """Shares of apps and of users; 1 unless given."""

    apps: Mapping[str, float] = field(default_factory=dict[str, float])
    users: Mapping[str, float] = field(default_factory=dict[str, float])

    def of(self, flow: Flow) -> float:
        return self.apps.get(flow.app_name, 1.0) * self.users.get(flow.user_id, 1.0)


class FairQueue(Generic[T]):
    def __init__(
        self,
        weights: Weights,
        *,
        aging_seconds: float = AGING_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._weights = weights
        self._aging_seconds = aging_seconds
        self._clock = clock
        self._levels: dict[int, _Level[T]] = {}
        """By priority, those with items."""
        self._places: dict[T, tuple[int, Flow]] = {}

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, item: T) -> bool:
        return item in self._places

    def push(self, item: T, flow: Flow, priority: int) -> None:
        level = self._levels.get(priority)
        if level is None:
            level = self._levels[priority] = _Level(self._weights)
        level.push(item, flow, self._clock())
        self._places[item] = priority, flow

    def remove(self, item: T) -> None:
        """Does nothing for an item that isn't there."""
        place = self._places.pop(item, None)
        if place is not None:
            priority, flow = place
            self._levels[priority].remove(item, flow)
            self._drop_if_empty(priority)

    def pop(self) -> T:
        """The next item. Raises IndexError if there is none."""
        if not self._levels:
            raise IndexError("the queue is empty")
        highest = max(self._levels)
        chosen = min(self._levels, key=self._due_at)
        if self._due_at(chosen) < self._due_at(highest):
            item = self._levels[chosen].oldest
        else:
            item = self._levels[highest].next()
        priority, flow = self._places.pop(item)
        self._levels[priority].take(item, flow)
        self._drop_if_empty(priority)
        return item

    def _due_at(self, priority: int) -> float:
        """Returns the time at which the oldest item of a priority was queued, moved back by the priority."""
        return self._levels[priority].oldest_at - priority * self._aging_seconds

    def _drop_if_empty(self, priority: int) -> None:
        if self._levels[priority].is_empty:
            del self._levels[priority]


@dataclass(eq=False)
class _FlowState(Generic[T]):
    """The items of a flow, oldest first, and the virtual time of the next."""

    virtual_time: float
    items: OrderedDict[T, None] = field(default_factory=OrderedDict[T, None])


class _Level(Generic[T]):
    """The items of one priority."""

    def __init__(self, weights: Weights) -> None:
        self._weights = weights
        self._virtual_time = 0.0
        """Of the flow whose turn was last."""
        self._flows: dict[Flow, _FlowState[T]] = {}
        self._most_flows = _SLACK
        """Number of flows above which idle ones are forgotten."""
        self._active = 0
        """The number of flows with items."""
        self._turns: list[tuple[float, int, Flow]] = []
        """A heap of flows by virtual time. Entries are outdated where the flow has another time, or no items."""
        self._numbers = 0
        self._queued_at: OrderedDict[T, float] = OrderedDict()

    @property
    def is_empty(self) -> bool:
        return not self._queued_at

    @property
    def oldest(self) -> T:
        return next(iter(self._queued_at))

    @property
    def oldest_at(self) -> float:
        return self._queued_at[self.oldest]

    def push(self, item: T, flow: Flow, now: float) -> None:
        self._queued_at[item] = now
        state = self._flows.get(flow)
        if state is None:
            state = self._flows[flow] = _FlowState(self._virtual_time)
        if not state.items:
            state.virtual_time = max(state.virtual_time, self._virtual_time)
            self._active += 1
            self._add_turn(flow, state)
        state.items[item] = None

    def next(self) -> T:
        """The oldest item of the flow whose turn it is."""
        while True:
            at, _, flow = self._turns[0]
            state = self._flows.get(flow)
            if state is not None and state.items and state.virtual_time == at:
                self._virtual_time = max(self._virtual_time, at)
                return next(iter(state.items))
            heapq.heappop(self._turns)

    def take(self, item: T, flow: Flow) -> None:
        """Removes an item that starts, and charges its flow."""
        state = self._flows[flow]
        state.virtual_time += 1 / self._weights.of(flow)
        self.remove(item, flow)
        if state.items:
            self._add_turn(flow, state)

    def remove(self, item: T, flow: Flow) -> None:
        del self._queued_at[item]
        state = self._flows[flow]
        del state.items[item]
        if not state.items:
            self._active -= 1
            if len(self._flows) > self._most_flows:
                self._forget_idle_flows()
        if len(self._turns) > 2 * self._active + _SLACK:
            self._forget_outdated_turns()

    def _add_turn(self, flow: Flow, state: _FlowState[T]) -> None:
        self._numbers += 1
        heapq.heappush(self._turns, (state.virtual_time, self._numbers, flow))

    def _forget_idle_flows(self) -> None:
        """Forgets flows without items that would begin at the present virtual time anyway."""
        now = self._virtual_time
        self._flows = {flow: state for flow, state in self._flows.items() if state.items or state.virtual_time > now}
        self._most_flows = 2 * len(self._flows) + _SLACK

    def _forget_outdated_turns(self) -> None:
        self._turns = []
        for flow, state in sorted(self._flows.items(), key=lambda one: one[1].virtual_time):
            if state.items:
                self._add_turn(flow, state)
