"""A Python file: its imports and their uses. Names are resolved by the file's import statements."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_IMPORT_ERRORS = frozenset({"ImportError", "ModuleNotFoundError", "AttributeError", "Exception", "BaseException"})
_TYPE_CHECKS = frozenset({"isinstance", "issubclass"})


class Import(NamedTuple):
    """`import module`, or `from module import name`."""

    line: int
    module: str
    """With dots in front, as many as a relative import has."""
    name: str
    """Empty for `import module`."""
    bound_as: str
    is_at_load: bool
    """Executed when the file is imported."""
    is_optional: bool
    """In a `try` that catches its failure, or for type checkers only."""


class Reference(NamedTuple):
    """A use of an imported name: `types.Part` where `from google.genai import types` is above."""

    line: int
    origin: str
    """Dotted: `google.genai.types.Part`."""
    root: str
    """The name in the file that it begins with: `types`."""
    is_mention: bool
    """In an annotation, an `isinstance` or an `except`, where a stand-in for a missing name does no harm."""
    is_optional: bool


class Call(NamedTuple):
    origin: str
    node: ast.Call
    is_optional: bool


class PythonFile:
    """Raises SyntaxError and ValueError if it isn't valid for this version of Python."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tree = ast.parse(path.read_bytes(), str(path))
        reader = _Reader()
        reader.visit(self.tree)
        self.imports = reader.imports
        required = {one.bound_as for one in reader.imports if not one.is_optional}
        self._optional_names = {one.bound_as for one in reader.imports} - required
        self._bindings = {one.bound_as: _origin_of(one) for one in reader.imports if one.bound_as}
        self._found = reader

    def references(self) -> Iterator[Reference]:
        for node, is_mention, is_optional in self._found.references:
            origin = self.resolve(node)
            if origin is not None:
                root = _root_of(node)
                yield Reference(node.lineno, origin, root, is_mention, is_optional or root in self._optional_names)

    def attributes(self) -> Iterator[ast.Attribute]:
        """The dotted names of the file, each as long as it is."""
        for node, _, _ in self._found.references:
            if isinstance(node, ast.Attribute):
                yield node

    def calls(self) -> Iterator[Call]:
        for node, is_optional in self._found.calls:
            origin = self.resolve(node.func)
            if origin is not None:
                yield Call(origin, node, is_optional or _root_of(node.func) in self._optional_names)

    def classes(self) -> list[ast.ClassDef]:
        return self._found.classes

    def constant(self, name: str) -> ast.expr | None:
        """The value that the module gives a name, if it does so once."""
        values = self._found.constants.get(name, [])
        return values[0] if len(values) == 1 else None

    def resolve(self, node: ast.expr) -> str | None:
        """The dotted origin of a name or attribute that leads to an import."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self._bindings:
            return None
        return ".".join([self._bindings[node.id], *reversed(parts)])


def _root_of(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _origin_of(statement: Import) -> str:
    if statement.name:
        return f"{statement.module}{'' if statement.module.endswith('.') else '.'}{statement.name}"
    return statement.module if statement.bound_as != statement.module.partition(".")[0] else statement.bound_as


class _Reader(ast.NodeVisitor):
    def __init__(self) -> None:
        self.imports: list[Import] = []
        self.references: list[tuple[ast.Name | ast.Attribute, bool, bool]] = []
        self.calls: list[tuple[ast.Call, bool]] = []
        self.classes: list[ast.ClassDef] = []
        self.constants: dict[str, list[ast.expr]] = {}
        self._functions = 0
        self._optional = 0
        self._mentions = 0

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._add(node.lineno, alias.name, "", alias.asname or alias.name.partition(".")[0])

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = "." * node.level + (node.module or "")
        for alias in node.names:
            bound_as = "" if alias.name == "*" else alias.asname or alias.name
            self._add(node.lineno, module, alias.name, bound_as)

    def _add(self, line: int, module: str, name: str, bound_as: str) -> None:
        self.imports.append(Import(line, module, name, bound_as, self._functions == 0, self._optional > 0))

    def visit_Try(self, node: ast.Try) -> None:
        is_guarded = any(_catches_failed_imports(handler) for handler in node.handlers)
        self._optional += is_guarded
        for statement in node.body:
            self.visit(statement)
        self._optional -= is_guarded

        for handler in node.handlers:
            if handler.type is not None:
                self._visit_mention(handler.type)
            for statement in handler.body:
                self.visit(statement)
        for statement in [*node.orelse, *node.finalbody]:
            self.visit(statement)

    def visit_If(self, node: ast.If) -> None:
        is_for_checkers = "TYPE_CHECKING" in ast.unparse(node.test)
        is_script = "__name__" in ast.unparse(node.test)
        self.visit(node.test)
        self._optional += is_for_checkers
        self._functions += is_script
        for statement in node.body:
            self.visit(statement)
        self._optional -= is_for_checkers
        self._functions -= is_script
        for statement in node.orelse:
            self.visit(statement)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._visit_function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._visit_function(node)

    def _visit_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for decorator in node.decorator_list:
            self.visit(decorator)
        self.visit(node.args)
        if node.returns is not None:
            self._visit_mention(node.returns)
        self._functions += 1
        for statement in node.body:
            self.visit(statement)
        self._functions -= 1

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> None:
        if node.annotation is not None:
            self._visit_mention(node.annotation)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self._visit_mention(node.annotation)
        if node.value is not None:
            self.visit(node.value)
            self._add_constant(node.target, node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        for target in node.targets:
            self._add_constant(target, node.value)

    def _add_constant(self, target: ast.expr, value: ast.expr) -> None:
        if self._functions == 0 and isinstance(target, ast.Name):
            self.constants.setdefault(target.id, []).append(value)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.classes.append(node)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        self.calls.append((node, self._optional > 0))
        if isinstance(node.func, ast.Name) and node.func.id in _TYPE_CHECKS and len(node.args) == 2:
            self.visit(node.args[0])
            self._visit_mention(node.args[1])
        else:
            self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self.references.append((node, self._mentions > 0, self._optional > 0))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        """The whole chain is one reference; a call or an index in it begins another."""
        self.references.append((node, self._mentions > 0, self._optional > 0))
        value = node.value
        while isinstance(value, ast.Attribute):
            value = value.value
        if not isinstance(value, ast.Name):
            self.visit(value)

    def _visit_mention(self, node: ast.expr) -> None:
        self._mentions += 1
        self.visit(node)
        self._mentions -= 1


def _catches_failed_imports(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(isinstance(one, ast.Name) and one.id in _IMPORT_ERRORS for one in caught)
