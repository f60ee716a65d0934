"""A copy-on-write list behaves like a list, and its snapshots like copies of one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from greenroom.records.copy_on_write import CopyOnWriteList

numbers = st.integers(0, 9)
indexes = st.integers(-6, 6)
slices = st.builds(slice, st.none() | indexes, st.none() | indexes, st.none() | st.sampled_from([-2, -1, 1, 2]))

Pair: TypeAlias = tuple[CopyOnWriteList[int], list[int]]


class Views(RuleBasedStateMachine):
    """Every view goes with a plain list to which the same is done; they must stay equal, and fail alike."""

    views = Bundle("views")

    def __init__(self) -> None:
        super().__init__()
        self.pairs: list[Pair] = []

    def both(self, pair: Pair, action: Callable[[Any], Any]) -> None:
        outcomes: list[Any] = []
        for items in pair:
            try:
                outcomes.append(action(items))
            except (IndexError, ValueError) as error:
                outcomes.append(type(error))
        assert outcomes[0] == outcomes[1]

    @rule(target=views, items=st.lists(numbers, max_size=4))
    def new(self, items: list[int]) -> Pair:
        self.pairs.append((CopyOnWriteList(items), list(items)))
        return self.pairs[-1]

    @rule(target=views, pair=views)
    def snapshot(self, pair: Pair) -> Pair:
        view, model = pair
        copy = view.snapshot()
        assert copy.shares_items_with(view)
        self.pairs.append((copy, list(model)))
        return self.pairs[-1]

    @rule(pair=views, value=numbers)
    def append(self, pair: Pair, value: int) -> None:
        self.both(pair, lambda items: items.append(value))

    @rule(pair=views, values=st.lists(numbers, max_size=3))
    def extend(self, pair: Pair, values: list[int]) -> None:
        self.both(pair, lambda items: items.extend(values))

    @rule(pair=views)
    def extend_by_itself(self, pair: Pair) -> None:
        if len(pair[1]) < 50:
            self.both(pair, lambda items: items.extend(items))

    @rule(pair=views, index=indexes, value=numbers)
    def insert(self, pair: Pair, index: int, value: int) -> None:
        self.both(pair, lambda items: items.insert(index, value))

    @rule(pair=views, index=indexes, value=numbers)
    def set_item(self, pair: Pair, index: int, value: int) -> None:
        self.both(pair, lambda items: items.__setitem__(index, value))

    @rule(pair=views, part=slices, values=st.lists(numbers, max_size=3))
    def set_slice(self, pair: Pair, part: slice, values: list[int]) -> None:
        self.both(pair, lambda items: items.__setitem__(part, values))

    @rule(pair=views, index=indexes | slices)
    def delete(self, pair: Pair, index: Any) -> None:
        self.both(pair, lambda items: items.__delitem__(index))

    @rule(pair=views, index=indexes | slices)
    def read(self, pair: Pair, index: Any) -> None:
        self.both(pair, lambda items: items[index])

    @rule(pair=views, index=indexes)
    def pop(self, pair: Pair, index: int) -> None:
        self.both(pair, lambda items: items.pop(index))

    @rule(pair=views, value=numbers)
    def remove(self, pair: Pair, value: int) -> None:
        self.both(pair, lambda items: items.remove(value))

    @rule(pair=views)
    def reverse(self, pair: Pair) -> None:
        self.both(pair, lambda items: items.reverse())

    @rule(pair=views)
    def clear(self, pair: Pair) -> None:
        self.both(pair, lambda items: items.clear())

    @rule(pair=views, value=numbers)
    def look_up(self, pair: Pair, value: int) -> None:
        self.both(pair, lambda items: (items.index(value), items.count(value), value in items))

    @invariant()
    def views_equal_their_lists(self) -> None:
        for view, model in self.pairs:
            assert view == model
            assert list(view) == model
            assert list(reversed(view)) == model[::-1]
            assert len(view) == len(model)
            assert view.__add__([1]) == [*model, 1]
            assert view.__radd__([1]) == [1, *model]


TestViews = Views.TestCase
TestViews.settings = settings(deadline=None, max_examples=150, stateful_step_count=30)


def test_an_append_at_the_shared_end_copies_nothing() -> None:
    view = CopyOnWriteList([1])
    before = view.snapshot()
    view.append(2)
    assert view.shares_items_with(before)
    assert (list(before), list(view)) == ([1], [1, 2])
    before.append(3)
    assert not view.shares_items_with(before)
    assert (list(before), list(view)) == ([1, 3], [1, 2])


def test_what_was_derived_is_shared_with_the_items_and_only_with_them() -> None:
    view = CopyOnWriteList([1])
    copy = view.snapshot()
    view.derived["sum"] = 1
    assert copy.derived == {"sum": 1}
    copy[0] = 5
    assert copy.derived == {}
    assert view.derived == {"sum": 1}


def test_an_iteration_sees_the_length_it_began_with() -> None:
    view = CopyOnWriteList([1, 2])
    seen: list[int] = []
    for item in view:
        seen.append(item)
        view.append(item)
    assert seen == [1, 2]
    assert len(view) == 4


def test_it_is_no_key() -> None:
    with pytest.raises(TypeError):
        hash(CopyOnWriteList[int]())


def test_it_equals_lists_and_nothing_else() -> None:
    view = CopyOnWriteList([1, 2])
    assert view == [1, 2]
    assert view == CopyOnWriteList([1, 2])
    assert view != (1, 2)
    assert view != [1]
    assert repr(view) == "[1, 2]"
