"""Replies of models made at random, their texts in pieces, and the parts of what was read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from greenroom.records.base import JsonObject
from greenroom.records.content import Part
from greenroom.records.model_exchange import LlmResponse

Calls = list[tuple[str, JsonObject]]
Draw = Callable[..., Any]

words = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=12)
_values = st.one_of(st.integers(-9, 9), words, st.booleans(), st.lists(st.integers(0, 9), max_size=2))
_arguments = st.dictionaries(st.sampled_from("abc}"), st.one_of(_values, st.dictionaries(words, _values, max_size=2)))
calls = st.lists(st.tuples(st.sampled_from(["look", "find"]), _arguments), max_size=4)


def cut(draw: Draw, text: str) -> list[str]:
    """Cuts a text into pieces that aren't empty."""
    places = sorted(draw(st.sets(st.integers(1, max(len(text) - 1, 1)), max_size=4)))
    pieces = [text[begin:end] for begin, end in zip([0, *places], [*places, len(text)], strict=True)]
    return [piece for piece in pieces if piece]


def shown_parts(shown: list[LlmResponse]) -> list[Part]:
    return [part for response in shown if response.content for part in response.content.parts or ()]


def texts_of(response: LlmResponse, *, thought: bool = False) -> str:
    return "".join(part.text or "" for part in shown_parts([response]) if bool(part.thought) == thought)


def calls_of(response: LlmResponse) -> Calls:
    """Names and arguments of the calls, each of which has an id of its own."""
    found = [part.function_call for part in shown_parts([response]) if part.function_call]
    assert len({call.id for call in found}) == len(found)
    return [(call.name or "", call.args or {}) for call in found]
