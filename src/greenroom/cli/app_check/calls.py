"""Arguments that classes and functions of greenroom don't take, and what an app's classes lack: abstract methods, and
private members of ADK's agents.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
from collections.abc import Iterator
from typing import cast

from greenroom.cli.app_check.finding import Finding
from greenroom.cli.app_check.names import known_name, offered_object
from greenroom.cli.app_check.source import PythonFile
from greenroom.records.base import Record
from greenroom.records.declarative import Declarative

_REFUSED = {
    ("Gemini", "use_interactions_api"): "Gemini(use_interactions_api=True) is not offered: leave it out",
}
"""Arguments that are there and whose value True is refused."""


def find_unknown_arguments(source: PythonFile) -> Iterator[Finding]:
    for call in source.calls():
        adk_name = known_name(call.origin)
        taken = _parameters_of(offered_object(call.origin))
        if adk_name is None or taken is None or call.is_optional:
            continue

        for keyword in call.node.keywords:
            if keyword.arg is not None and keyword.arg not in taken and _snake(keyword.arg) not in taken:
                yield Finding(source.path, keyword.lineno, f"{adk_name.name} has no argument {keyword.arg!r}")
            refusal = _REFUSED.get((adk_name.name, keyword.arg or ""))
            if refusal is not None and isinstance(keyword.value, ast.Constant) and keyword.value.value is True:
                yield Finding(source.path, keyword.lineno, refusal)


def _parameters_of(called: object) -> set[str] | None:
    """None if any argument is accepted, or if the object is neither a function nor a class."""
    if isinstance(called, type):
        called = cast("type[object]", called)
        if issubclass(called, Declarative) and called.__init__ is Declarative.__init__:
            return {field.name for field in dataclasses.fields(called) if field.init}  # pyright: ignore[reportArgumentType]
        if issubclass(called, Record) and "from_shorthands" in vars(called.__mro__[1]):
            return None  # it has arguments that are no fields
    if not callable(called):
        return None

    try:
        parameters = inspect.signature(called).parameters.values()
    except (TypeError, ValueError):  # a class of an SDK that hides its signature
        return None
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return {parameter.name for parameter in parameters}


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


_PRIVATE = {
    "_llm_flow.run_async": "call `super()._run_async_impl(ctx)`",
    "_llm_flow.run_live": "call `super()._run_live_impl(ctx)`",
}
"""Private members of ADK's agents that classes of apps use, with the code to write instead."""


def find_private_members(source: PythonFile) -> Iterator[Finding]:
    for node in source.attributes():
        name = ast.unparse(node).removeprefix("self.")
        if name in _PRIVATE:
            yield Finding(
                source.path, node.lineno, f"ADK's {name} is private, and greenroom has none: {_PRIVATE[name]}"
            )


def find_abstract_methods(source: PythonFile) -> Iterator[Finding]:
    """Finds classes that lack abstract methods. Classes with subclasses in the file are skipped, since those may have
    the methods.
    """
    classes = {node.name: node for node in source.classes()}
    bases = {base.id for node in classes.values() for base in node.bases if isinstance(base, ast.Name)}
    for node in classes.values():
        if node.name in bases or _is_abstract(node):
            continue
        lacking = _lacking(source, node, classes)
        if lacking:
            methods = ", ".join(sorted(lacking))
            base = " and ".join(ast.unparse(one) for one in node.bases)
            yield Finding(source.path, node.lineno, f"class {node.name} has no {methods}, which {base} requires here")


def _lacking(source: PythonFile, node: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> frozenset[str]:
    required: set[str] = set()
    defined = set(_members(node))
    waiting = list(node.bases)
    seen: set[str] = set()
    while waiting:
        base = waiting.pop()
        own = classes.get(base.id) if isinstance(base, ast.Name) else None
        if own is not None and own.name not in seen:
            seen.add(own.name)
            defined |= set(_members(own))
            waiting += own.bases
            continue
        origin = source.resolve(base)
        offered = offered_object(origin) if origin is not None else None
        if not isinstance(offered, type):
            return frozenset()  # a class that isn't known may have the methods
        required |= getattr(offered, "__abstractmethods__", frozenset[str]())
    return frozenset(required - defined)


def _members(node: ast.ClassDef) -> Iterator[str]:
    for statement in node.body:
        match statement:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.Assign(targets=targets):
                yield from (target.id for target in targets if isinstance(target, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case _:
                pass


def _is_abstract(node: ast.ClassDef) -> bool:
    return any("abstractmethod" in ast.unparse(decorator) for one in ast.walk(node) for decorator in _decorators(one))


def _decorators(node: ast.AST) -> list[ast.expr]:
    return node.decorator_list if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else []
