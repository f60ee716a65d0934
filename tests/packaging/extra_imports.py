"""Imports what an extra is for, and prints one line for each module that can't be imported.

The Python of an installation runs it: `python -I extra_imports.py EXTRA MODULE …`, with the modules and packages of
greenroom that need the extra. Of these, all imports are executed, those in functions too; of all other modules, those
that raise `MissingExtra` with this extra if they fail. Left out are imports that may fail, or that name another extra,
and further imports of the same package in that module.
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import greenroom

_FOLDER = Path(greenroom.__file__ or "").parent


def main(extra: str, names: list[str]) -> None:
    wanted: set[str] = set()
    for file in sorted(_FOLDER.rglob("*.py")):
        if "templates" in file.parts:
            continue
        module = ".".join(file.relative_to(_FOLDER.parent).with_suffix("").parts).removesuffix(".__init__")
        needs_extra = any(f"{module}.".startswith(f"{name}.") for name in names)
        if needs_extra:
            wanted.add(module)
        imports = list(_imports(ast.parse(file.read_text(encoding="utf-8"))))
        optional = {imported.partition(".")[0] for imported, guard in imports if guard not in (extra, None)}
        for imported, guard in imports:
            is_needed = needs_extra and guard is None and imported.partition(".")[0] not in optional
            if guard == extra or is_needed:
                wanted.add(imported)

    for module in sorted(wanted):
        try:
            importlib.import_module(module)
        except ImportError as error:
            print(f"{module}: {error}")


def _imports(tree: ast.AST, guard: str | None = None) -> Iterator[tuple[str, str | None]]:
    """Yields modules of others, each with the extra that its failure names; "" if it may fail; None if it may not."""
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.Import():
                yield from ((alias.name, guard) for alias in node.names if _is_of_others(alias.name))
            case ast.ImportFrom(module=str(module), level=0):
                if _is_of_others(module):
                    yield module, guard
            case ast.Try() if any(_handles_imports(handler) for handler in node.handlers):
                inner = next((extra for handler in node.handlers for extra in _extras_in(handler)), "")
                for part in node.body:
                    yield from _imports(ast.Module([part], []), inner)
                for part in (*node.handlers, *node.orelse, *node.finalbody):
                    yield from _imports(part, guard)
            case _:
                yield from _imports(node, guard)


def _is_of_others(module: str) -> bool:
    top = module.partition(".")[0]
    return top != "greenroom" and top not in sys.stdlib_module_names


def _handles_imports(handler: ast.ExceptHandler) -> bool:
    return handler.type is not None and "ImportError" in ast.unparse(handler.type).replace(
        "ModuleNotFoundError", "ImportError"
    )


def _extras_in(handler: ast.ExceptHandler) -> Iterator[str]:
    for node in ast.walk(handler):
        match node:
            case ast.Call(func=ast.Name("MissingExtra"), args=[ast.Constant(str(extra)), *_]):
                yield extra
            case _:
                pass


main(sys.argv[1], sys.argv[2:])
