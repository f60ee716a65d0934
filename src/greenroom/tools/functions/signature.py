"""Signature and docstring of a function, as the declaration for a model."""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import CellType, SimpleNamespace, UnionType
from typing import Annotated, Any, NamedTuple, Union, cast, get_args, get_origin, get_type_hints

from greenroom.errors import AgentConfigError, ToolDeclarationError, ToolError
from greenroom.invocation.user_context import ReadonlyContext
from greenroom.records.base import JsonObject
from greenroom.tools.value_types.plain_types import TypeSchema
from greenroom.tools.value_types.type_schema import join_definitions, type_schema

_CONTEXT_NAME = "tool_context"
_CONTEXT_TYPES = ("Context", "ToolContext", "CallbackContext", "ReadonlyContext")
_INPUT_STREAM = "input_stream"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter that the model supplies."""

    name: str
    type: TypeSchema
    schema: JsonObject
    is_required: bool
    is_positional_only: bool
    make_default: Callable[[], object] | None
    """Only for defaults that the function itself can't apply."""


@dataclass(frozen=True, slots=True)
class Signature:
    """A function as a tool: its name, its description and its parameters."""

    name: str
    description: str
    parameters: dict[str, Parameter]
    context: str | None
    """The parameter that receives the tool context."""

    input_stream: bool
    """Whether the function reads a live stream."""

    def json_schema(self) -> JsonObject | None:
        """The JSON Schema of an object with all parameters; None if there are none."""
        if not self.parameters:
            return None

        definitions: JsonObject = {}
        schema: JsonObject = {
            "type": "object",
            "properties": {p.name: join_definitions(definitions, p.schema) for p in self.parameters.values()},
            "required": [p.name for p in self.parameters.values() if p.is_required],
        }
        if definitions:
            schema["$defs"] = definitions

        return schema


def read_signature(func: Callable[..., Any], *, name: str | None = None) -> Signature:
    """`name` replaces the function's own. Raises ToolDeclarationError for an unsupported signature.

    A callable object has the name of its class, a partial that of the function it wraps. Arguments
    that a partial binds are not declared.
    """
    inner = without_partials(func)
    name = name or _name_of(inner)
    doc = divide_docstring(_doc_of(inner))

    try:
        declared = inspect.signature(func).parameters
    except (TypeError, ValueError, NameError) as error:
        raise ToolDeclarationError(name, f"its signature can't be read: {error}") from None

    fillable = {
        parameter.name: parameter
        for parameter in declared.values()
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        and parameter.name not in _bound_by_partial(func)
    }
    input_stream = fillable.pop(_INPUT_STREAM, None) is not None
    hints = _Hints(inner, name)
    context = next((p for p in fillable if hints.is_context(fillable[p])), None)
    if context is None and _CONTEXT_NAME in fillable:
        context = _CONTEXT_NAME

    parameters = {
        p.name: _parameter(p, hints.of(p), doc.parameters.get(p.name), name)
        for p in fillable.values()
        if p.name != context
    }

    return Signature(name, doc.description or name, parameters, context, input_stream)


def _parameter(
    declared: inspect.Parameter,
    hint: Any,
    described: str | None,
    tool: str,
) -> Parameter:
    default = declared.default
    make_default: Callable[[], object] | None = None
    is_required = default is inspect.Parameter.empty
    if _is_pydantic_field(default):
        hint = Annotated[hint, default]
        is_required = default.is_required()
        if not is_required:
            make_default = functools.partial(default.get_default, call_default_factory=True)

    try:
        tp = type_schema(hint)
    except AgentConfigError as error:
        raise ToolDeclarationError(tool, f"parameter {declared.name!r}: {error.detail}") from None

    schema = dict(tp.json_schema())
    description = _annotated_description(hint) or described
    if description:
        schema["description"] = description

    if not is_required and make_default is None:
        try:
            schema["default"] = tp.to_json(default)
        except (ToolError, ValueError, TypeError):
            pass  # a sentinel of the function, which means nothing to a model

    return Parameter(
        declared.name,
        tp,
        schema,
        is_required,
        declared.kind is declared.POSITIONAL_ONLY,
        make_default,
    )


class _Hints:
    """Resolves annotations one by one, so that an error can name the parameter."""

    def __init__(self, func: Callable[..., Any], tool: str) -> None:
        plain = func if inspect.isroutine(func) else type(func).__call__
        if inspect.isclass(func):
            plain = cast("Callable[..., Any]", func.__init__)
        plain = inspect.unwrap(plain.__func__ if inspect.ismethod(plain) else plain)
        self._globals: dict[str, Any] = getattr(plain, "__globals__", {})
        self._function = plain
        self._tool = tool

    def of(self, parameter: inspect.Parameter) -> Any:
        if parameter.annotation is inspect.Parameter.empty:
            return Any
        try:
            return self._resolve(parameter)
        except Exception as error:  # an annotation is any expression
            reason = f"its annotation {parameter.annotation!r} can't be resolved: {error}"
            raise ToolDeclarationError(self._tool, f"parameter {parameter.name!r}: {reason}") from None

    def is_context(self, parameter: inspect.Parameter) -> bool:
        annotation = parameter.annotation
        if isinstance(annotation, str):
            # It may be imported for type checkers only, so that it can't be resolved.
            named = annotation.replace(" ", "").replace("|None", "").removeprefix("Optional[").rstrip("]")
            if named.rpartition(".")[2].strip("'\"") in _CONTEXT_TYPES:
                return True

            try:
                annotation = self._resolve(parameter)
            except Exception:  # `of` reports it, unless it is the context
                return False

        return _is_context_type(annotation)

    def _resolve(self, parameter: inspect.Parameter) -> Any:
        holder = SimpleNamespace(__annotations__={parameter.name: parameter.annotation})
        try:
            return get_type_hints(holder, self._globals, self._closure(), include_extras=True)[parameter.name]
        except NameError:
            names = {**self._enclosing_locals(), **self._closure()}
            return get_type_hints(holder, self._globals, names, include_extras=True)[parameter.name]

    def _closure(self) -> dict[str, Any]:
        if not inspect.isfunction(self._function):
            return {}

        cells = zip(
            self._function.__code__.co_freevars,
            self._function.__closure__ or (),
            strict=False,
        )
        return {name: cell.cell_contents for name, cell in cells if _is_filled(cell)}

    def _enclosing_locals(self) -> Mapping[str, Any]:
        """Local names of the enclosing functions that are still running."""
        around, _, _ = getattr(self._function, "__qualname__", "").rpartition(".<locals>.")
        names: dict[str, Any] = {}
        frame = sys._getframe() if around else None
        while frame is not None:
            if frame.f_globals is self._globals and f"{around}.".startswith(f"{frame.f_code.co_qualname}."):
                names = {**frame.f_locals, **names}
            frame = frame.f_back

        return names


def _is_filled(cell: CellType) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True


def _is_context_type(annotation: Any) -> bool:
    if get_origin(annotation) in (Annotated, Union, UnionType):
        return any(_is_context_type(argument) for argument in get_args(annotation))
    return inspect.isclass(annotation) and issubclass(annotation, ReadonlyContext)


def _annotated_description(hint: Any) -> str | None:
    """The description in `Annotated[T, "text"]`, or metadata with a `description`, as msgspec's Meta and
    pydantic's Field have it.
    """
    if get_origin(hint) is not Annotated:
        return None
    texts = [meta if isinstance(meta, str) else getattr(meta, "description", None) for meta in get_args(hint)[1:]]
    return next((text for text in reversed(texts) if isinstance(text, str) and text), None)


def _is_pydantic_field(default: Any) -> bool:
    # Another thread may be importing pydantic, whose modules are incomplete until then.
    field_info = getattr(sys.modules.get("pydantic.fields"), "FieldInfo", None)
    return field_info is not None and isinstance(default, field_info)


def without_partials(func: Callable[..., Any]) -> Callable[..., Any]:
    """The function inside of partials."""
    while isinstance(func, functools.partial):
        func = cast("functools.partial[Any]", func).func
    return func


def _bound_by_partial(func: Callable[..., Any]) -> set[str]:
    if isinstance(func, functools.partial):
        return set(cast("functools.partial[Any]", func).keywords)
    return set()


def _name_of(func: Callable[..., Any]) -> str:
    name = getattr(func, "__name__", None) or type(func).__name__
    return "lambda" if name == "<lambda>" else name  # providers refuse angle brackets


def _doc_of(func: Callable[..., Any]) -> str:
    """Returns the docstring; for a callable object, that of its `__call__`, else that of its class."""
    if inspect.isroutine(func) or inspect.isclass(func):
        return inspect.getdoc(func) or ""
    call: Any = type(func).__call__
    return inspect.cleandoc(call.__doc__ or "") or inspect.getdoc(type(func)) or ""


_GOOGLE_HEADER = re.compile(r"(Args|Arguments|Parameters|Params|Keyword Args|Keyword Arguments):\s*$")
_NUMPY_HEADER = re.compile(r"(Other )?Parameters\s*$")
_UNDERLINE = re.compile(r"-{3,}\s*$")
_REST_FIELD = re.compile(r":(param|parameter|arg|argument|key|keyword|type)\b[^:]*:")


class Docstring(NamedTuple):
    description: str
    parameters: dict[str, str]


def divide_docstring(text: str) -> Docstring:
    """Separates the parameters from the other text of a docstring, as returned by `inspect.getdoc`.

    Google, NumPy and reST styles are read; text that isn't about parameters is kept.
    """
    remaining = _without_parameters(text)
    if remaining == text.strip():
        return Docstring(remaining, {})

    import docstring_parser  # takes 40 ms, which only documented parameters are worth

    parsed = docstring_parser.parse(text)

    return Docstring(
        remaining,
        {p.arg_name: " ".join(p.description.split()) for p in parsed.params if p.description},
    )


def _without_parameters(text: str) -> str:
    kept_lines: list[str] = []
    lines = text.splitlines()
    skips_indented = False
    skips_to_header = False
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
            kept_lines.append(line)
        elif not line.strip() and kept_lines and kept_lines[-1].strip():
            kept_lines.append("")

    return "\n".join(kept_lines).strip()
