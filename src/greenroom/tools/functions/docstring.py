"""A function's docstring, divided between the description of the tool and those of its parameters."""

from __future__ import annotations

import re
from typing import NamedTuple

_GOOGLE_HEADER = re.compile(r"(Args|Arguments|Parameters|Params|Keyword Args|Keyword Arguments):\s*$")
_NUMPY_HEADER = re.compile(r"(Other )?Parameters\s*$")
_UNDERLINE = re.compile(r"-{3,}\s*$")
_REST_FIELD = re.compile(r":(param|parameter|arg|argument|key|keyword|type)\b[^:]*:")


class Docstring(NamedTuple):
    description: str
    parameters: dict[str, str]


def divide(text: str) -> Docstring:
    """`text`: as `inspect.getdoc` gives it. Google, NumPy and reST styles; what isn't about parameters stays."""
    remaining = _without_parameters(text)
    if remaining == text.strip():
        return Docstring(remaining, {})
    import docstring_parser  # takes 40 ms, which only documented parameters are worth

    parsed = docstring_parser.parse(text)
    return Docstring(remaining, {p.arg_name: _joined(p.description) for p in parsed.params if p.description})


def _without_parameters(text: str) -> str:
    kept: list[str] = []
    lines = text.splitlines()
    skips_indented = skips_to_header = False
    for number, line in enumerate(lines):
        next_line = lines[number + 1] if number + 1 < len(lines) else ""
        is_header = _UNDERLINE.match(next_line) is not None and bool(line.strip())
        if is_header:
            skips_to_header = _NUMPY_HEADER.match(line) is not None
            skips_indented = False
        elif _GOOGLE_HEADER.match(line) or _REST_FIELD.match(line):
            skips_indented = True
        elif line and not line[0].isspace():
            skips_indented = False
        if not skips_indented and not skips_to_header:
            kept.append(line)
        elif not line.strip() and kept and kept[-1].strip():
            kept.append("")
    return "\n".join(kept).strip()


def _joined(text: str) -> str:
    """One line: the breaks only served the source's width."""
    return " ".join(text.split())
