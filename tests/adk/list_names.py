"""Prints the public names of the installed google-adk by module, and the packages that it requires, as JSON.

Reads the source and imports nothing, so that the result is the same without google-adk's extras.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path

_NO_NAMES_OF_ADK = frozenset({"logger", "annotations", "args", "parser", "source_url", "T", "client", "config"})


def public_names() -> dict[str, list[str]]:
    """A name counts for a module without `_` in front that defines it, lists it in `__all__`, loads it lazily, or
    imports it as a class from a module of the same package with `_` in front."""
    found: dict[str, list[str]] = {}
    for module, file in _public_modules():
        names = set(_names(ast.parse(file.read_bytes())))
        names = {name for name in names if not name.startswith("_") and name not in _NO_NAMES_OF_ADK}
        if file.name == "__init__.py":
            names = {name for name in names if not _is_module(file.parent / name)}
        if names:
            found[module] = sorted(names)
    return found


def requirements() -> dict[str, list[str]]:
    """Distributions by extra; those of google-adk itself under an empty name."""
    found: dict[str, list[str]] = {}
    for requirement in distribution("google-adk").requires or ():
        name = re.match(r"[\w.-]+", requirement)
        extra = re.search(r"extra == [\"']([\w-]+)[\"']", requirement)
        assert name is not None
        found.setdefault(extra[1] if extra else "", []).append(name[0].lower())
    return {extra: sorted(set(names)) for extra, names in sorted(found.items())}


def _public_modules() -> Iterator[tuple[str, Path]]:
    spec = find_spec("google.adk")
    assert spec is not None
    assert spec.origin is not None
    root = Path(spec.origin).parent

    for file in sorted(root.rglob("*.py")):
        parts = ["google", "adk", *file.relative_to(root).with_suffix("").parts]
        if parts[-1] == "__init__":
            parts.pop()
        if not any(part.startswith("_") for part in parts):
            yield ".".join(parts), file


def _is_module(path: Path) -> bool:
    return path.is_dir() or path.with_suffix(".py").is_file()


def _names(tree: ast.Module) -> Iterator[str]:
    for statement in _statements(tree.body):
        match statement:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.ImportFrom(module=module, names=aliases, level=level):
                of_adk = level > 0 or (module or "").startswith("google.adk.")
                is_sibling = level == 1 and (module or "").startswith("_")
                for alias in aliases:
                    is_reexported = of_adk and alias.asname == alias.name
                    if is_reexported or (is_sibling and alias.name[0].isupper() and not alias.name.isupper()):
                        yield alias.asname or alias.name
            case ast.Assign(targets=[ast.Name(id=target)], value=value):
                yield from _assigned(target, value)
            case ast.AnnAssign(target=ast.Name(id=target), value=ast.expr() as value):
                yield from _assigned(target, value)
            case ast.AugAssign(target=ast.Name(id="__all__"), value=value):
                yield from _strings_of(value)
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id="__all__")), args=[value])):
                yield from _strings_of(value)
            case _:
                pass


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """With those in `try`, its handlers and `if`, where optional packages are imported."""
    for statement in body:
        if isinstance(statement, ast.Try):
            yield from _statements(statement.body)
            yield from _statements(statement.orelse)
            for handler in statement.handlers:
                yield from _statements(handler.body)
        elif isinstance(statement, ast.If):
            yield from _statements(statement.body)
            yield from _statements(statement.orelse)
        else:
            yield statement


def _assigned(target: str, value: ast.expr) -> Iterator[str]:
    if isinstance(value, ast.Constant) and value.value is None:
        return  # in place of a package that isn't installed
    if target == "__all__" or "LAZY" in target or "FORWARDED" in target:
        yield from _strings_of(value)
    elif not (isinstance(value, ast.Call) and getattr(value.func, "id", getattr(value.func, "attr", "")) == "TypeVar"):
        yield target


def _strings_of(value: ast.expr | None) -> Iterator[str]:
    match value:
        case ast.Constant(value=str(text)):
            yield text
        case ast.Dict(keys=items) | ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
            for item in items:
                if isinstance(item, ast.Constant) and isinstance(item.value, str):
                    yield item.value
        case _:
            return


if __name__ == "__main__":
    print(json.dumps({"names": public_names(), "requirements": requirements()}, indent=1))
