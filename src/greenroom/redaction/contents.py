"""Replaces what was found in contents and in JSON."""

from __future__ import annotations

import operator
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias, cast

import msgspec

from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.content import Part
from greenroom.redaction.findings import Finding, redacted, replacement

Find: TypeAlias = Callable[[str], Awaitable[Sequence[Finding]]]
"""Finds the violations in a text that are to be replaced."""

_SHORTEST_NUMBER = 6
"""Digits of the shortest number in JSON that is read as text."""


async def redact_parts(parts: Sequence[Part], find: Find) -> list[Part] | None:
    """The parts with the violations in their texts replaced; None if there are none.

    The texts of a message are read as one, and so are its thoughts: a violation may begin in one part and end in
    another.
    """
    changed = list(parts)
    for is_thought in (False, True):
        indexes = [index for index, part in enumerate(parts) if part.text and bool(part.thought) == is_thought]
        texts = [parts[index].text or "" for index in indexes]
        findings = await find("".join(texts)) if texts else ()
        if not findings:
            continue

        for index, text in zip(indexes, _redacted_texts(texts, findings), strict=True):
            changed[index] = msgspec.structs.replace(parts[index], text=text)

    for index, part in enumerate(parts):
        code = part.executable_code
        if code is not None and code.code and (findings := await find(code.code)):
            clean_code = msgspec.structs.replace(code, code=redacted(code.code, findings))
            changed[index] = msgspec.structs.replace(part, executable_code=clean_code)

        outcome = part.code_execution_result
        if outcome is not None and outcome.output and (findings := await find(outcome.output)):
            clean_outcome = msgspec.structs.replace(outcome, output=redacted(outcome.output, findings))
            changed[index] = msgspec.structs.replace(part, code_execution_result=clean_outcome)

    return changed if any(map(operator.is_not, changed, parts)) else None


def _redacted_texts(texts: Sequence[str], findings: Sequence[Finding]) -> list[str]:
    """The replacement of a violation is in the text in which it begins."""
    results: list[str] = []
    begin = 0
    for text in texts:
        end = begin + len(text)
        pieces: list[str] = []
        position = begin
        for finding in findings:
            if finding.end <= begin or finding.start >= end:
                continue
            if finding.start >= begin:
                pieces += [text[position - begin : finding.start - begin], replacement(finding.label)]
            position = min(finding.end, end)
        pieces.append(text[position - begin :])
        results.append("".join(pieces))
        begin = end
    return results


async def redact_json(value: Any, find: Find) -> Any:
    """The value itself if it has no violations, else a copy with them replaced: in texts, keys and long numbers."""
    if isinstance(value, str):
        findings = await find(value) if value else ()
        return redacted(value, findings) if findings else value

    if isinstance(value, (int, float)) and not isinstance(value, bool):
        text = str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
        if len(text) < _SHORTEST_NUMBER:
            return value
        findings = await find(text)
        return redacted(text, findings) if findings else value

    if isinstance(value, list):
        items = cast("list[JsonValue]", value)
        clean_items: list[JsonValue] = [await redact_json(item, find) for item in items]
        return clean_items if any(map(operator.is_not, clean_items, items)) else items

    if isinstance(value, dict):
        fields = cast("JsonObject", value)
        clean: JsonObject = {}
        is_changed = False
        for key, item in fields.items():
            new_key: str = await redact_json(key, find)
            clean[new_key] = await redact_json(item, find)
            is_changed = is_changed or new_key is not key or clean[new_key] is not item
        return clean if is_changed else fields

    return value
