"""The queue of runs that wait for their turn."""

from __future__ import annotations

from collections import Counter, deque
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from greenroom.runs.fair_queue import FairQueue, Flow, Weights

ANN = Flow("desk", "ann")
BOB = Flow("desk", "bob")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def popped(queue: FairQueue[str]) -> list[str]:
    return [queue.pop() for _ in range(len(queue))]


def test_flows_take_turns_by_weight() -> None:
    queue = FairQueue[str](Weights(users={"ann": 2.0}))
    for item in ("a1", "a2", "a3", "a4"):
        queue.push(item, ANN, 0)
    for item in ("b1", "b2"):
        queue.push(item, BOB, 0)
    assert popped(queue) == ["a1", "b1", "a2", "b2", "a3", "a4"]
    with pytest.raises(IndexError):
        queue.pop()


def test_weights_of_an_app_and_a_user_are_multiplied() -> None:
    weights = Weights(apps={"desk": 2.0}, users={"ann": 0.25})
    assert [weights.of(flow) for flow in (ANN, BOB, Flow("other", "ann"), Flow("x", "y"))] == [0.5, 2.0, 0.25, 1.0]


def test_flow_that_comes_back_has_no_credit_for_its_absence() -> None:
    queue = FairQueue[str](Weights())
    for number in range(10):
        queue.push(f"a{number}", ANN, 0)
    for _ in range(5):
        queue.pop()
    for number in range(5):
        queue.push(f"b{number}", BOB, 0)
    assert "".join(item[0] for item in popped(queue)) == "bababababa"


def test_cancelled_runs_cost_their_flow_nothing() -> None:
    queue = FairQueue[str](Weights())
    for number in range(100):
        queue.push(f"a{number}", ANN, 0)
    queue.push("b1", BOB, 0)
    queue.push("b2", BOB, 0)
    for number in range(99):
        queue.remove(f"a{number}")
    queue.remove("missing")
    assert popped(queue) == ["a99", "b1", "b2"]


def test_higher_priority_is_first_until_a_lower_one_has_waited_longer() -> None:
    clock = Clock()
    queue = FairQueue[str](Weights(), aging_seconds=30, clock=clock)
    queue.push("low", ANN, 0)
    clock.now = 149.0
    queue.push("high", BOB, 5)
    assert queue.pop() == "high"
    clock.now = 151.0
    queue.push("later", BOB, 5)
    assert popped(queue) == ["low", "later"]


def test_no_run_starves_under_runs_of_a_higher_priority() -> None:
    clock = Clock()
    queue = FairQueue[str](Weights(), aging_seconds=30, clock=clock)
    queue.push("low", ANN, -10)
    for number in count():
        queue.push(f"high{number}", BOB, 10)
        queue.push(f"more{number}", Flow("other", "eve"), 10)
        clock.now += 1.0
        if queue.pop() == "low":
            break
        assert clock.now < 2 * 20 * 30 + 10


FLOWS = [Flow(f"app{number % 2}", f"user{number}") for number in range(5)]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("push"), st.integers(0, 4), st.integers(-2, 2)),
        st.tuples(st.just("pop"), st.just(0), st.just(0)),
        st.tuples(st.just("remove"), st.integers(0, 200), st.just(0)),
    ),
    max_size=200,
)


@given(STEPS)
@settings(max_examples=200, deadline=None)
def test_every_item_comes_out_once_and_in_its_flows_order(steps: list[tuple[str, int, int]]) -> None:
    clock = Clock()
    queue = FairQueue[int](Weights(users={"user1": 3.0, "user2": 0.5}), clock=clock)
    expected: dict[tuple[int, int], deque[int]] = {}
    numbers = count()

    def check(item: int) -> None:
        [of_flow] = [items for items in expected.values() if item in items]
        assert of_flow.popleft() == item

    for step, which, priority in steps:
        clock.now += 1.0
        if step == "push":
            item = next(numbers)
            queue.push(item, FLOWS[which], priority)
            expected.setdefault((which, priority), deque()).append(item)
        elif step == "remove":
            queue.remove(which)
            for items in expected.values():
                if which in items:
                    items.remove(which)
        elif len(queue):
            check(queue.pop())
        assert len(queue) == sum(map(len, expected.values()))
    while len(queue):
        check(queue.pop())
    assert not any(expected.values())


@given(st.lists(st.sampled_from([0.5, 1.0, 2.0, 3.0]), min_size=2, max_size=5), st.integers(1, 60))
@settings(max_examples=200, deadline=None)
def test_flows_with_runs_get_their_shares(weights: list[float], starts: int) -> None:
    """In any number of starts, a flow is at most about one run (of 1/weight) ahead of another."""
    by_user = {f"user{number}": weight for number, weight in enumerate(weights)}
    queue = FairQueue[tuple[int, int]](Weights(users=by_user))
    for number in range(200):
        for flow in range(len(weights)):
            queue.push((flow, number), Flow("desk", f"user{flow}"), 0)
    started = Counter(queue.pop()[0] for _ in range(starts))
    served = [started[flow] / weight for flow, weight in enumerate(weights)]
    for first, one in zip(served, weights, strict=True):
        for second, other in zip(served, weights, strict=True):
            assert first - second <= 1 / one + 1 / other + 1e-9


def test_ten_thousand_flows_cost_little_per_start() -> None:
    compared = Counter[str]()

    class Counted(Flow):
        def __hash__(self) -> int:
            compared["hash"] += 1
            return super().__hash__()

    queue = FairQueue[int](Weights())
    for number in range(10_000):
        queue.push(number, Counted("desk", f"user{number}"), number % 3)
    compared.clear()
    for _ in range(1_000):
        queue.pop()
    assert compared["hash"] < 20_000
