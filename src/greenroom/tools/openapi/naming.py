"""Names that models and Python can both use."""

from __future__ import annotations

import keyword
import re
from collections.abc import Container

MAX_TOOL_NAME = 60

_FOR_NAMELESS = {
    "body": "body",
    "query": "query_param",
    "path": "path_param",
    "header": "header_param",
    "cookie": "cookie_param",
}


def snake_case(text: str) -> str:
    """Lower-case ASCII words joined by single underscores; empty when the text has none."""
    text = re.sub(r"[^A-Za-z0-9]+", "_", text)
    text = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", text)
    text = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", text)
    return re.sub(r"_+", "_", text).strip("_").lower()


def parameter_name(original: str, place: str, *, keep: bool = False) -> str:
    name = original if keep else snake_case(original)
    if not name:
        return _FOR_NAMELESS.get(place, "value")
    return f"param_{name}" if keyword.iskeyword(name) else name


def tool_name(operation_id: str | None, method: str, path: str) -> str:
    name = snake_case(operation_id or "") or snake_case(f"{path}_{method}")
    if name[0].isdigit():
        name = f"_{name}"
    return name[:MAX_TOOL_NAME].rstrip("_")


def free_name(name: str, taken: Container[str], *, first: int, longest: int | None = None) -> str:
    """The name, or the first of `name_<first>`, `name_<first + 1>`, … that is not taken."""
    candidate, number = name, first
    while candidate in taken:
        ending = f"_{number}"
        candidate = (name if longest is None else name[: longest - len(ending)]) + ending
        number += 1
    return candidate
