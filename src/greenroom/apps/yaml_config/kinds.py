"""What kind of value a type is written as."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec

from greenroom.apps.yaml_config.document import Node

SCALARS = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}


def is_list(tp: Any) -> bool:
    kind = get_origin(tp) or tp
    if kind in (list, tuple, set, frozenset):
        return True
    return getattr(kind, "__module__", "") == "collections.abc" and kind.__name__ in (
        "Sequence", "MutableSequence", "Iterable", "Collection", "Set", "MutableSet",
    )  # fmt: skip


def is_map(tp: Any) -> bool:
    kind = get_origin(tp) or tp
    if kind is dict:
        return True
    return getattr(kind, "__module__", "") == "collections.abc" and kind.__name__ in ("Mapping", "MutableMapping")


def is_callable(tp: Any) -> bool:
    kind = get_origin(tp) or tp
    return getattr(kind, "__module__", "") == "collections.abc" and kind.__name__ == "Callable"


def fits(node: Node, tp: Any) -> bool:
    """Whether the value is of a kind that the type can be read from."""
    while get_origin(tp) is Annotated:
        tp = get_args(tp)[0]
    value = node.value
    if tp in (Any, object, Node):
        return True
    if tp is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if tp in SCALARS:
        return isinstance(value, tp) and (tp is bool or not isinstance(value, bool))
    if is_list(tp):
        return isinstance(value, list)
    if is_map(tp):
        return isinstance(value, dict)
    if get_origin(tp) is Literal:
        return str(value).lower() in [str(choice).lower() for choice in get_args(tp)]
    if isinstance(tp, type) and issubclass(tp, msgspec.Struct):
        return isinstance(value, dict)
    return isinstance(value, (str, dict))


def described(tp: Any) -> str:
    while get_origin(tp) is Annotated:
        tp = get_args(tp)[0]
    if tp in SCALARS:
        return SCALARS[tp]
    if is_list(tp):
        return "a list"
    return "a map" if is_map(tp) or isinstance(tp, type) else "the name of something in code"
