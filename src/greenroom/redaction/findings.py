"""Places that were found in a text, and their replacement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Finding(NamedTuple):
    """A place in a text, from `start` up to `end`. label: names what was found without quoting the text."""

    start: int
    end: int
    label: str


def replacement(label: str) -> str:
    return f"[redacted: {label}]"


def merged(findings: Sequence[Finding]) -> list[Finding]:
    """The findings of several checks in order; of those that overlap, one with the first label."""
    result: list[Finding] = []
    for finding in sorted(findings):
        last = result[-1] if result else None
        if last is not None and finding.start < last.end:
            result[-1] = last._replace(end=max(last.end, finding.end))
        else:
            result.append(finding)
    return result


def redacted(text: str, findings: Sequence[Finding], start: int = 0, end: int | None = None) -> str:
    """The text from `start` to `end`, with the findings that begin in it replaced."""
    end = len(text) if end is None else end
    pieces: list[str] = []
    for finding in findings:
        if start <= finding.start < end:
            pieces += [text[start : finding.start], replacement(finding.label)]
            start = finding.end
    pieces.append(text[start:end])
    return "".join(pieces)
