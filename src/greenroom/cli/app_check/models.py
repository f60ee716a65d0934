"""Names of models in agents whose package, key or file is missing."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator

from greenroom.cli.app_check.app_files import AppFiles
from greenroom.cli.app_check.finding import Finding
from greenroom.cli.app_check.source import PythonFile
from greenroom.models.by_name import LLMRegistry

_WRAPPERS = ("FallbackModel", "RetryingLlm")
_READS_ENVIRONMENT = frozenset({"os.getenv", "os.environ.get", "getenv", "environ.get"})
_MAX_STEPS = 10
"""Constants that are named after other constants."""


def find_models(source: PythonFile, files: AppFiles) -> Iterator[Finding]:
    """Finds wrong model names in agents' `model=` and in wrappers of models. Models that an app registers by itself
    aren't known here.
    """
    registers = registers_models(files)
    for name, line in _names_in(source, files):
        fault = model_fault(name, registers=registers)
        if fault is not None:
            yield Finding(source.path, line, fault)


def models_in(source: PythonFile, files: AppFiles) -> set[str]:
    """Returns the names of models in agents' `model=` and in wrappers of models."""
    return {name for name, _ in _names_in(source, files)}


def _names_in(source: PythonFile, files: AppFiles) -> Iterator[tuple[str, int]]:
    """Yields the names of models, with their lines."""
    for argument in _model_arguments(source):
        elements = argument.elts if isinstance(argument, ast.List | ast.Tuple) else [argument]
        for element in elements:
            name = _text_of(source, element, files)
            if name:
                yield name, element.lineno


def registers_models(files: AppFiles) -> bool:
    return any(one.name == "LLMRegistry" for source in files.sources.values() for one in source.imports)


def model_fault(name: str, *, registers: bool) -> str | None:
    """Returns what is wrong with a model's name, or None. An unknown name is accepted if the app registers models of
    its own.
    """
    if registers and not LLMRegistry.knows(name):
        return None
    return LLMRegistry.fault(name)


def _model_arguments(source: PythonFile) -> Iterator[ast.expr]:
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Call):
            continue
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        origin = source.resolve(node.func) or called
        if origin.rpartition(".")[2] in _WRAPPERS:
            yield from node.args[:1]
            yield from (one.value for one in node.keywords if one.arg in ("model", "models"))
        elif origin.endswith("Agent") or called.endswith("Agent"):
            yield from (one.value for one in node.keywords if one.arg == "model")


def _text_of(source: PythonFile, node: ast.expr, files: AppFiles, steps: int = 0) -> str | None:
    """The text of an expression: a literal, a constant of this or another module of the app, or a variable of the
    environment with a default."""
    if steps > _MAX_STEPS:
        return None
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.Name(id=name):
            constant = source.constant(name)
            if constant is not None:
                return _text_of(source, constant, files, steps + 1)
            return _imported_text(source, name, "", files, steps)
        case ast.Attribute(value=ast.Name(id=module), attr=name):
            return _imported_text(source, module, name, files, steps)
        case ast.BoolOp(op=ast.Or(), values=[first, second]):
            return _text_of(source, first, files, steps + 1) or _text_of(source, second, files, steps + 1)
        case ast.Call(func=func, args=[ast.Constant(value=str(variable)), *rest]):
            if ast.unparse(func) not in _READS_ENVIRONMENT:
                return None
            default = _text_of(source, rest[0], files, steps + 1) if rest else None
            return os.environ.get(variable) or default
        case ast.Subscript(value=value, slice=ast.Constant(value=str(variable))):
            return os.environ.get(variable) if ast.unparse(value).endswith("environ") else None
        case _:
            return None


def _imported_text(source: PythonFile, bound_as: str, attribute: str, files: AppFiles, steps: int) -> str | None:
    for statement in source.imports:
        if statement.bound_as != bound_as or not statement.name:
            continue
        if attribute:  # from . import config; config.MODEL
            module = statement._replace(
                module=f"{statement.module}{'' if statement.module.endswith('.') else '.'}{statement.name}"
            )
            name = attribute
        else:
            module = statement
            name = statement.name
        home = files.source_of(source.path, module)
        constant = home.constant(name) if home is not None else None
        if home is not None and constant is not None:
            return _text_of(home, constant, files, steps + 1)
    return None
