"""Converts tool names to a vendor's format.

MCP allows `calendar.list`, `a/b` and names of any length; a vendor refuses the whole request for a single such name.
Names are replaced in requests and restored in replies, so that all other code uses the tool's own names.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import cast

from greenroom.models.requests.schemas import renamed_keys
from greenroom.records.base import JsonObject
from greenroom.records.model_exchange import LlmResponse

_HASH_LENGTH = 8


class NameRule:
    """Rule of a vendor for names.

    allowed: the characters, as in a class of a regular expression.
    first: those that a name may begin with.
    """

    def __init__(self, allowed: str, *, max_length: int, first: str | None = None) -> None:
        self._max_length = max_length
        self._first = re.compile(f"[{first or allowed}]")
        self._valid = re.compile(f"[{first or allowed}][{allowed}]{{0,{max_length - 1}}}")
        self._invalid = re.compile(f"[^{allowed}]")

    def accepts(self, name: str) -> bool:
        return self._valid.fullmatch(name) is not None

    def fitted(self, name: str) -> str:
        """Returns the valid name that is most similar to the given one."""
        readable = self._invalid.sub("_", name)
        if not self._first.match(readable):
            readable = f"_{readable}"
        if len(readable) <= self._max_length:
            return readable
        return self.marked(readable, name)

    def marked(self, readable: str, name: str) -> str:
        """The readable name with a suffix that distinguishes it from names with the same beginning."""
        mark = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_LENGTH]
        return f"{readable[: self._max_length - _HASH_LENGTH - 1]}_{mark}"


class ToolNames:
    """The tool names of a request. Two names are never sent as the same name; a valid name is sent unchanged."""

    def __init__(self, rule: NameRule, declared: Iterable[str]) -> None:
        self._rule = rule
        self._sent: dict[str, str] = {}
        self._own: dict[str, str] = {}
        self._own_properties: dict[str, Mapping[str, str]] = {}
        self._sent_properties: dict[str, Mapping[str, str]] = {}
        names = sorted(set(declared), key=lambda name: (not rule.accepts(name), name))
        for name in names:  # valid ones first: they keep theirs
            self.sent(name)

    def rename_properties(self, name: str, own: Mapping[str, str]) -> None:
        """Records a tool's renamed parameters.

        own: the tool's own parameter names, by the names that are sent.
        """
        self._own_properties[name] = own
        self._sent_properties[name] = {own_name: sent for sent, own_name in own.items()}

    def sent(self, name: str) -> str:
        """The name that the vendor is sent."""
        sent_name = self._sent.get(name)
        if sent_name is not None:
            return sent_name

        if self._rule.accepts(name):
            sent = name
        else:
            sent = self._rule.fitted(name)

        number = 0
        while sent in self._own:
            sent = self._rule.marked(sent, f"{name}{number or ''}")
            number += 1

        self._sent[name] = sent
        self._own[sent] = name

        return sent

    def own(self, sent: str) -> str:
        """The tool's own name of a name that the vendor sent."""
        return self._own.get(sent, sent)

    def sent_arguments(self, name: str, args: JsonObject | None) -> JsonObject | None:
        """Arguments of a tool's call, as the vendor knows its parameters."""
        renamed = self._sent_properties.get(name)
        if renamed and args:
            return cast("JsonObject", renamed_keys(args, renamed))
        return args

    def restore(self, reply: LlmResponse) -> None:
        """Gives calls of a reply, and their arguments, the tools' own names."""
        for call in reply.get_function_calls():
            call.name = self.own(call.name or "")
            renamed = self._own_properties.get(call.name)
            if renamed and call.args:
                call.args = cast("JsonObject", renamed_keys(call.args, renamed))
