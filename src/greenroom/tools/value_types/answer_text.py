"""Reads values of a declared type from the texts that models write."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from greenroom.records.base import JsonValue
from greenroom.tools.value_types.plain_types import InvalidValue, TypeSchema

_REASONING = re.compile(
    r"\s*(<(think|thinking|thought|reasoning)>.*?</\2>|((?!<think).)*?</think>)",
    re.DOTALL,
)
"""Reasoning before an answer; some templates write its first tag into the prompt."""
_FENCES = (
    re.compile(r"```[^\S\n]*\w*[^\S\n]*\n(.*)```", re.DOTALL),  # fences within the JSON's own strings are kept
    re.compile(r"```[^\S\n]*\w*[^\S\n]*\n?(.*?)```", re.DOTALL),
)


def value_in(text: str, output_type: TypeSchema) -> JsonValue:
    """The JSON value of a model's answer, without code fences and reasoning around it. Raises
    InvalidValue.
    """
    error: InvalidValue | None = None
    for candidate in _candidates(text):
        try:
            value = msgspec.json.decode(candidate)
        except (msgspec.DecodeError, UnicodeEncodeError) as failed:
            error = error or InvalidValue(f"Not JSON: {failed}")
            continue

        try:
            return output_type.to_json(output_type.convert(value))
        except InvalidValue as failed:
            error = failed

    if output_type.json_schema().get("type") == "string":
        return output_type.to_json(output_type.convert(text))  # a text needs no quotes

    raise error or InvalidValue("Nothing but reasoning")


def _candidates(text: str) -> Iterator[str]:
    """The whole text first, which is nearly always right."""
    yield text

    if (match := _REASONING.match(text)) is not None:
        answer = text[match.end() :]
    else:
        answer = text

    if answer.strip() and answer is not text:
        yield answer

    for fence in _FENCES:
        yield from reversed(fence.findall(answer))
