"""State: its scopes, and the view that notices every change."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.records.state import REMOVED, State, apply_delta, merge_scopes, split_by_scope
from tests.records.strategies import json_values

prefixes = st.sampled_from(["", "app:", "user:", "temp:"])
scoped_keys = st.tuples(prefixes, st.text("abc:_", min_size=1, max_size=3)).map("".join)


@given(st.dictionaries(scoped_keys, json_values, max_size=6))
def test_scopes_come_apart_and_together_again(state: dict[str, Any]) -> None:
    scopes = split_by_scope(state)
    merged = merge_scopes(app=scopes.app, user=scopes.user, session=scopes.session)
    assert merged == {key: value for key, value in state.items() if not key.startswith("temp:")}


@given(st.dictionaries(scoped_keys, json_values, max_size=5), st.dictionaries(scoped_keys, json_values, max_size=5))
def test_a_delta_lies_over_the_state(state: dict[str, Any], delta: dict[str, Any]) -> None:
    expected = {**state, **delta}
    apply_delta(state, delta)
    assert state == expected
    apply_delta(state, dict.fromkeys(delta, REMOVED))
    assert state == {key: value for key, value in expected.items() if key not in delta}


def new(**value: Any) -> tuple[State, dict[str, Any], dict[str, Any]]:
    delta: dict[str, Any] = {}
    return State(value, delta), value, delta


def test_a_write_is_seen_at_once_and_recorded() -> None:
    state, value, delta = new(a=1)
    assert not state.has_delta()
    state["b"] = 2
    state.update({"c": 3})
    assert state.setdefault("a", 9) == 1
    assert state.setdefault("d", 4) == 4
    assert value == {"a": 1, "b": 2, "c": 3, "d": 4}
    assert delta == {"b": 2, "c": 3, "d": 4}
    assert state.has_delta()
    assert (len(state), list(state), "b" in state, state.get("x", 0)) == (4, ["a", "b", "c", "d"], True, 0)


@pytest.mark.parametrize("how", ["del", "set", "pop", "remove"])
def test_a_removed_key_is_marked_in_the_delta(how: str) -> None:
    state, value, delta = new(a=1, b=2)
    if how == "del":
        del state["a"]
    elif how == "set":
        state["a"] = REMOVED
    else:
        assert (state.pop if how == "pop" else state.remove)("a") == 1
    assert value == {"b": 2}
    assert delta == {"a": REMOVED}
    assert "a" not in state
    with pytest.raises(KeyError):
        del state["a"]
    with pytest.raises(KeyError):
        state["a"]
    assert state.remove("never there") is None
    assert delta == {"a": REMOVED}


def test_none_is_a_value() -> None:
    state, value, delta = new(a=1)
    state["a"] = None
    assert value == delta == {"a": None}
    assert ("a" in state, state["a"], state.get("a", 1), state.setdefault("a", 1)) == (True, None, None, None)


def test_changes_in_place_are_noticed() -> None:
    state, _, delta = new(cart=["egg"], profile={"tags": {"x": 1}}, other=[1])
    state["cart"].append("milk")
    state["profile"]["tags"]["y"] = 2
    assert state["other"] == [1]
    assert delta == {}
    assert state.has_delta()
    assert delta == {"cart": ["egg", "milk"], "profile": {"tags": {"x": 1, "y": 2}}}


def test_changes_in_place_are_noticed_each_time() -> None:
    state, _, delta = new(cart=[])
    state["cart"].append(1)
    state.collect()
    delta.clear()
    state.collect()
    assert delta == {}
    state["cart"].append(2)
    state.collect()
    assert delta == {"cart": [1, 2]}


def test_what_was_read_through_items_or_values_is_noticed_too() -> None:
    state, _, delta = new(a=[1], b=[2])
    for value in state.values():
        value.append(0)
    state.collect()
    assert delta == {"a": [1, 0], "b": [2, 0]}


def test_a_value_that_was_replaced_or_removed_is_not_compared_with_the_old_one() -> None:
    state, _, delta = new(a=[1], b=[1])
    old = state["a"], state["b"]
    state["a"] = [5]
    del state["b"]
    for one in old:
        one.append(2)
    state.collect()
    assert delta == {"a": [5], "b": REMOVED}


def test_reading_alone_changes_nothing() -> None:
    state, value, delta = new(a={"b": [1, {"c": None}]})
    assert state["a"]["b"][1] == {"c": None}
    assert dict(state) == state.to_dict() == value
    assert not state.has_delta()
    assert delta == {}


def test_what_json_cannot_hold_can_still_be_read() -> None:
    state, _, _ = new(**{"temp:handle": [object()]})
    assert state["temp:handle"]
    assert not state.has_delta()
