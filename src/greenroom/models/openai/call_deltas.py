"""Decides to which function call each delta of a chat completion belongs."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from greenroom.models.reply import StreamedCall
from greenroom.records.base import JsonObject

_NO_IDS = (None, "", "null")
"""In place of an id; `null` as text is of Mistral's SDK."""


def given_id(delta: JsonObject) -> str | None:
    call_id = delta.get("id")
    return None if call_id in _NO_IDS else str(call_id)


class _BegunCall(msgspec.Struct):
    """A call that has begun, with the values from its deltas."""

    index: int | None
    id: str | None
    call: StreamedCall

    def may_have(self, index: int | None, call_id: str | None) -> bool:
        """False if either contradicts the known value."""
        is_other_index = index is not None and self.index is not None and index != self.index
        is_other_id = call_id is not None and self.id is not None and call_id != self.id
        return not is_other_index and not is_other_id


class CallDeltas:
    """The calls of one completion, by the deltas that began them.

    OpenAI gives each call an index, and its id and name in the first delta only. Compatible servers
    leave out the index, the id or both, give every call the same ones (TGI), give every delta a new
    id (vLLM), repeat the name in every delta (TGI), or send whole calls (llama.cpp, Mistral,
    Ollama). So the name counts, and the arguments so far:

        {"name": "f", "arguments": ""}            begins a call
        {"arguments": "{\\"a\\":"}                  continues it: no name
        {"name": "f", "arguments": " 1}"}         continues it: its arguments aren't a whole object
        {"name": "f", "arguments": "{\\"a\\": 2}"}  begins another: they are
        {"name": "g", "arguments": "{}"}          begins another: another name
        {"id": "x", "arguments": "{}"}            continues it, although the id is new: no name
    """

    def __init__(self) -> None:
        self._known: list[_BegunCall] = []
        self._in_chunk: list[_BegunCall] = []

    def begin_chunk(self) -> None:
        """A chunk has at most one named delta of a call."""
        self._in_chunk.clear()

    def begin(self, delta: JsonObject, call: StreamedCall) -> None:
        """Notes the call that a delta began."""
        known = _BegunCall(delta.get("index"), given_id(delta), call)
        self._known.append(known)
        self._in_chunk.append(known)

    def call_of(self, delta: JsonObject, name: str, arguments: str) -> StreamedCall | None:
        """Returns the call that a delta continues; None if it begins one."""
        index: int | None = delta.get("index")
        call_id = given_id(delta)
        if name:
            call_delta = self._named(name, arguments, index, call_id)
        else:
            call_delta = self._nameless(index, call_id)

        if call_delta is None:
            return None

        call_delta.id = call_delta.id or call_id
        self._in_chunk.append(call_delta)

        return call_delta.call

    def _nameless(self, index: int | None, call_id: str | None) -> _BegunCall | None:
        by_id = (one for one in self._newest_first() if call_id and one.id == call_id and one.may_have(index, call_id))
        by_index = (one for one in self._newest_first() if index is not None and one.index == index)
        unnumbered = (one for one in self._newest_first() if index is None or one.index is None)
        return next(by_id, None) or next(by_index, None) or next(unnumbered, None)

    def _named(
        self,
        name: str,
        arguments: str,
        index: int | None,
        call_id: str | None,
    ) -> _BegunCall | None:
        newest = next((one for one in self._newest_first() if one.may_have(index, call_id)), None)
        if newest is None or any(newest is one for one in self._in_chunk):
            return None

        call = newest.call
        if call.call.name and call.call.name != name:
            return None

        is_same_id = call_id is not None and newest.id == call_id
        is_identified = is_same_id or (index is not None and newest.index == index)
        is_whole = call.is_whole
        if is_whole and arguments:
            continues = is_same_id and call.text == arguments  # the last delta of some servers repeats the call
        elif not arguments and (is_whole or not call.pieces):
            continues = is_identified  # else it is another call, whose arguments follow or are none
        else:
            continues = True

        return newest if continues else None

    def _newest_first(self) -> Iterator[_BegunCall]:
        return reversed(self._known)
