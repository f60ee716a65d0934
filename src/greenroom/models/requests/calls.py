"""Function calls beside their responses, whatever a history holds.

Vendors want each call followed at once by exactly one response, ids that no other call has, and no
response without its call. An agent's prompt is like that, so that it is only checked. Histories
that callbacks, clients and other frameworks made may not be; an example, and what is sent of it:

    user   "What time is it in Oslo and Rome?"      the same
    model  call time(Oslo) c1, call time(Rome) c1   the second gets an id of its own
    user   "And in Paris?"                          after the responses
    model  call time(Paris) c2                      followed by a response that says that it was interrupted
    user   response c1, response c1                 after their calls
    user   response c9                              "[time has returned ...]", since nothing called it
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import msgspec

from greenroom.log.calls import INTERRUPTED
from greenroom.models.conversion import is_model, json_text
from greenroom.records.content import Content, FunctionCall, FunctionResponse, Part


@dataclass(frozen=True)
class IdRule:
    """Rule for ids of calls."""

    accepts: Callable[[str], object]
    """Whether the vendor takes one."""

    make: Callable[[int], str]
    """The n-th id of those that replace others."""


def are_paired(
    contents: Iterable[Content],
    ids: IdRule,
    accepts_name: Callable[[str], bool],
) -> bool:
    """Whether every call is followed at once by its one response, and all ids and names are valid
    and ids unique.
    """
    open_calls: list[tuple[str, str]] = []
    seen: set[str] = set()
    valid_names: set[str] = set()
    for content in contents:
        calls: list[tuple[str, str]] = []
        answered: list[tuple[str, str]] = []
        for part in content.parts or ():
            call = part.function_call
            if call is not None:
                call_id = call.id or ""
                name = call.name or ""

                if call_id in seen or not ids.accepts(call_id):
                    return False

                if name not in valid_names:
                    if not accepts_name(name):
                        return False
                    valid_names.add(name)

                seen.add(call_id)
                calls.append((call_id, name))
            elif part.function_response is not None:
                response = part.function_response
                answered.append((response.id or "", response.name or ""))

        if calls or answered or open_calls:
            if answered != open_calls and sorted(answered) != sorted(open_calls):
                return False
            if (calls and answered) or is_model(content) != bool(calls):
                return False
            open_calls = calls

    return not open_calls


@dataclass(eq=False)
class _SentCall:
    """A call of the history, with the id that is sent, and its newest response."""

    call: FunctionCall
    id: str = ""
    response: Part | None = None

    def call_part(self, part: Part) -> Part:
        if self.call.id == self.id:
            return part
        return msgspec.structs.replace(
            part,
            function_call=msgspec.structs.replace(self.call, id=self.id),
        )

    def response_part(self) -> Part:
        part = self.response
        response = part.function_response if part is not None else None
        if part is None or response is None:
            interrupted = FunctionResponse(id=self.id, name=self.call.name, response=dict(INTERRUPTED))
            return Part(function_response=interrupted)

        if response.id == self.id and response.name == self.call.name:
            return part

        renamed = msgspec.structs.replace(response, id=self.id, name=self.call.name)

        return msgspec.structs.replace(part, function_response=renamed)


Position = tuple[int, int]
"""Index of a content, and index of a part in it."""


def paired(contents: Sequence[Content], ids: IdRule) -> list[Content]:
    """The contents with each call followed by its response, made up where there is none, under ids
    that are valid.

    A response without a call becomes text, and so does a call that is no model's. Of several
    responses to a call, the newest counts.
    """
    ledger = _Ledger()
    for at, content in enumerate(contents):
        ledger.read(at, content)

    ledger.name_calls(ids)

    out: list[Content] = []
    for at, content in enumerate(contents):
        parts = content.parts or ()
        kept_parts = [part for index, part in enumerate(parts) for part in ledger.kept(part, (at, index))]
        if len(kept_parts) == len(parts) and all(one is other for one, other in zip(kept_parts, parts, strict=True)):
            out.append(content)
        elif kept_parts:
            out.append(Content(role=content.role, parts=kept_parts))

        calls = [ledger.calls[at, index] for index in range(len(parts)) if (at, index) in ledger.calls]
        if calls:
            out.append(Content(role="user", parts=[call.response_part() for call in calls]))

    return out


class _Ledger:
    """The calls of a history, with their responses."""

    def __init__(self) -> None:
        self.calls: dict[Position, _SentCall] = {}
        self._answering: set[Position] = set()
        self._ids: set[str] = set()
        self._newest: dict[str, _SentCall] = {}
        self._unanswered: defaultdict[str, deque[_SentCall]] = defaultdict(deque)
        self._unanswered_by_name: defaultdict[str, deque[_SentCall]] = defaultdict(deque)

    def read(self, at: int, content: Content) -> None:
        reused: set[str] = set()
        for index, part in enumerate(content.parts or ()):
            if part.function_call is not None and is_model(content):
                call = _SentCall(part.function_call)
                self.calls[at, index] = call

                call_id = part.function_call.id or ""
                if call_id not in reused:  # responses from here on are to the new call
                    self._unanswered[call_id].clear()
                    reused.add(call_id)

                self._newest[call_id] = call
                self._unanswered[call_id].append(call)
                self._unanswered_by_name[part.function_call.name or ""].append(call)
                self._ids.add(call_id)
            elif part.function_response is not None:
                call = self._called(part.function_response)
                if call is not None:
                    call.response = part
                    self._answering.add((at, index))

    def _called(self, response: FunctionResponse) -> _SentCall | None:
        """The call that a response answers."""
        name = response.name or ""

        if response.id and response.id in self._newest:
            open_calls = self._unanswered[response.id]
            if open_calls:
                return open_calls.popleft()
            return self._newest[response.id]

        named = self._unanswered_by_name[name]
        while named and named[0].response is not None:
            named.popleft()

        if named and (not response.id or not named[0].call.id):
            return named.popleft()

        return None

    def name_calls(self, ids: IdRule) -> None:
        """Keeps valid ids at their first call, and replaces the others."""
        used: set[str] = set()
        number = 0
        for call in self.calls.values():
            call_id = call.call.id or ""
            while not ids.accepts(call_id) or call_id in used or (call_id != call.call.id and call_id in self._ids):
                number += 1
                call_id = ids.make(number)
            used.add(call_id)
            call.id = call_id

    def kept(self, part: Part, position: Position) -> Iterable[Part]:
        """Returns the parts that remain in a part's place: a response is moved to its call."""
        if position in self._answering:
            return ()

        call = self.calls.get(position)
        if call is not None:
            return (call.call_part(part),)

        if part.function_call is not None:
            text = f"[{part.function_call.name} was called with {json_text(part.function_call.args or {})}]"
            return (Part(text=text),)

        if part.function_response is not None:
            return _as_text(part.function_response)

        return (part,)


def _as_text(response: FunctionResponse) -> list[Part]:
    text = f"[{response.name} has returned {json_text(response.response or {})}]"
    media = [Part(inline_data=one.inline_data, file_data=one.file_data) for one in response.parts or ()]
    return [Part(text=text), *media]
