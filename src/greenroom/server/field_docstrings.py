"""The docstrings below the fields of classes, read from the source.

Each module is parsed once, however many classes it has: `inspect.getsource(cls)` would parse it for each of them.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import sys
from functools import cache

_PARSE_ATTEMPTS = 5


def field_docstrings(cls: type) -> dict[str, str]:
    """Returns the docstrings by field, as one line each, without those of base classes.

    Empty if the source can't be read.
    """
    return _of_module(cls.__module__).get(cls.__qualname__, {})


@cache
def _of_module(name: str) -> dict[str, dict[str, str]]:
    """The docstrings of a module's classes, by qualified name and field."""
    try:
        source = inspect.getsource(sys.modules[name])
    except (KeyError, OSError, TypeError):
        return {}

    found: dict[str, dict[str, str]] = {}
    _add_classes(_parse(source), "", found)
    return found


def _parse(source: str) -> ast.Module:
    """Calls `ast.parse`, again if another call of it interfered.

    CPython before 3.11.8 raises SystemError when a second call comes before the first returns: from
    another thread, or from a finalizer that formats a traceback
    (https://github.com/python/cpython/issues/106905).
    """
    for _ in range(_PARSE_ATTEMPTS - 1):
        try:
            return ast.parse(source)
        except SystemError:
            continue
    return ast.parse(source)


def _add_classes(parent: ast.AST, prefix: str, docstrings: dict[str, dict[str, str]]) -> None:
    """Adds the classes within `parent`. prefix: the beginning of their qualified names."""
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, ast.ClassDef):
            docstrings[prefix + node.name] = _in_body(node.body)
            _add_classes(node, f"{prefix}{node.name}.", docstrings)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            _add_classes(node, f"{prefix}{node.name}.<locals>.", docstrings)
        elif isinstance(node, ast.stmt):
            _add_classes(node, prefix, docstrings)


def _in_body(body: list[ast.stmt]) -> dict[str, str]:
    """The docstrings below the fields in the body of a class, and in an `if` of the body."""
    docstrings: dict[str, str] = {}
    for statement, below in itertools.zip_longest(body, body[1:]):
        if isinstance(statement, ast.If):
            docstrings |= _in_body(statement.body) | _in_body(statement.orelse)
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            text = _docstring(below)
            if text is not None:
                docstrings[statement.target.id] = " ".join(inspect.cleandoc(text).split())
    return docstrings


def _docstring(statement: ast.stmt | None) -> str | None:
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Constant):
        return None
    text = statement.value.value
    return text if isinstance(text, str) else None
