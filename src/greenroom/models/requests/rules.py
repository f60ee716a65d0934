"""Rules of a vendor for its requests, and requests made to fit.

A request that fits is passed on as it is: the check of a plain history costs one look at each part.
"""

from __future__ import annotations

import logging
from collections.abc import MutableSequence, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import msgspec

from greenroom.models.requests.calls import IdRule, are_paired, paired
from greenroom.models.requests.schemas import Dialect, FittedSchema, fit_parameters, fit_value
from greenroom.models.requests.tool_names import NameRule, ToolNames
from greenroom.records.base import JsonObject
from greenroom.records.content import Content, Part
from greenroom.records.generation import FunctionCallingConfig, GenerateContentConfig, ToolConfig
from greenroom.records.model_exchange import LlmRequest
from greenroom.records.tool_declaration import FunctionDeclaration, Tool

_log = logging.getLogger("greenroom.models")


class VendorRequest(NamedTuple):
    """A request as the vendor takes it."""

    request: LlmRequest
    names: ToolNames | None
    """Maps the names in its replies back; None if every name is sent as it is."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RequestRules:
    """Rules of a vendor."""

    vendor: str
    """As messages name it."""

    names: NameRule
    """Of tools."""

    ids: IdRule
    """Of calls."""

    dialect: Dialect
    """Of schemas."""

    max_description: int | None = None
    """Characters of a tool's description; a longer one is continued in the system instruction."""

    keeps_gemini_schemas: bool = False
    """Whether parameters in Gemini's own form are sent as they are."""

    declares_used_tools: bool = False
    """Whether a history with calls is refused without tools."""

    _fitting: set[tuple[str, bytes]] = field(
        default_factory=set[tuple[str, bytes]],
        init=False,
        repr=False,
    )
    """Names with schemas that are sent as they are, so that the tools of most requests need one
    look-up each.
    """

    def prepare(self, request: LlmRequest) -> VendorRequest:
        """The request with names, ids, schemas and the order of calls that the vendor takes; itself
        if it fits.
        """
        names: ToolNames | None = None
        config = request.config
        if self.declares_used_tools and not config.tools:
            config = _with_used_tools(config, request.contents)

        if config.tools and not self._fit_unchanged(config.tools):
            tools = _FittedTools(self, config)
            names = tools.names
            config = tools.config

        contents = request.contents
        if names is not None or not are_paired(contents, self.ids, self.names.accepts):
            names = names or ToolNames(self.names, [d.name for d in request.function_declarations() if d.name])
            contents = self.fit_contents(contents, names)

        if config is request.config and contents is request.contents:
            return VendorRequest(request, None)

        return VendorRequest(msgspec.structs.replace(request, config=config, contents=contents), names)

    def fit_contents(self, contents: Sequence[Content], names: ToolNames | None) -> MutableSequence[Content]:
        """Fits a history, with `names` for its tools."""
        if are_paired(contents, self.ids, self.names.accepts):
            fitted = list(contents)
        else:
            fitted = paired(contents, self.ids)
        naming = names or ToolNames(self.names, ())
        return [_with_names(content, naming) for content in fitted]

    def _fit_unchanged(self, tools: Sequence[Tool]) -> bool:
        """True if all tools are known to fit, and their names are unique."""
        limit = self.max_description
        names: set[str] = set()
        count = 0
        for entry in tools:
            for declaration in entry.function_declarations or ():
                if declaration.parameters_json_schema is None or not declaration.name:
                    return False
                if limit is not None and declaration.description and len(declaration.description) > limit:
                    return False
                if (declaration.name, msgspec.json.encode(declaration.parameters_json_schema)) not in self._fitting:
                    return False

                names.add(declaration.name)
                count += 1

        return len(names) == count

    def note_fitting(self, declaration: FunctionDeclaration) -> None:
        """Remembers a declaration whose name and schema are sent as they are."""
        if len(self._fitting) >= _MAX_REMEMBERED:
            self._fitting.clear()
        self._fitting.add((declaration.name or "", msgspec.json.encode(declaration.parameters_json_schema)))

    def check(self, declarations: Sequence[FunctionDeclaration]) -> None:
        """Logs the properties of the tools that the vendor can't express."""
        _FittedTools(
            self,
            GenerateContentConfig(tools=[Tool(function_declarations=list(declarations))]),
        )


class _FittedTools:
    """The tools of a request as the vendor takes them. names: None if all are sent as they are."""

    def __init__(self, rules: RequestRules, config: GenerateContentConfig) -> None:
        self._rules = rules
        self.config = config
        self.names: ToolNames | None = None
        self._continued: list[str] = []
        self._properties: dict[str, FittedSchema] = {}

        declarations = [d for entry in config.tools or () for d in entry.function_declarations or ()]

        fitted = [self._fitted(declaration) for declaration in declarations]
        declared = [d.name for d in declarations if d.name]
        if self._properties or not all(map(rules.names.accepts, declared)):
            self.names = ToolNames(rules.names, declared)
            for name, schema in self._properties.items():
                self.names.rename_properties(name, schema.properties)
            fitted = [_renamed(declaration, self.names) for declaration in fitted]

        for one, other in zip(declarations, fitted, strict=True):
            if one is other and one.parameters_json_schema is not None:
                rules.note_fitting(one)

        is_same = all(one is other for one, other in zip(declarations, fitted, strict=True))
        if not is_same or len(set(declared)) < len(declared):
            self._replace(fitted)

    def _fitted(self, declaration: FunctionDeclaration) -> FunctionDeclaration:
        rules = self._rules
        name = declaration.name or ""
        description = declaration.description
        if rules.max_description is not None and description and len(description) > rules.max_description:
            short = f"{description[: rules.max_description - len(_CONTINUED)].rstrip()}{_CONTINUED}"
            self._continued.append(f"The function {name} in full:\n{description}")
            declaration = msgspec.structs.replace(declaration, description=short)

        schema = declaration.parameters_json_schema
        if schema is None and declaration.parameters is None:
            return declaration

        own_schema = declaration.json_schema()
        fitted = _fitted_schema(rules.dialect, msgspec.json.encode(own_schema))
        for path, problem in fitted.notes:
            _warn(rules.vendor, name, path, problem)

        if fitted.properties:
            self._properties[name] = fitted

        if fitted.is_same and (schema is not None or rules.keeps_gemini_schemas):
            return declaration

        sent = own_schema if fitted.is_same else fitted.schema

        return msgspec.structs.replace(declaration, parameters=None, parameters_json_schema=sent)

    def _replace(self, declarations: Sequence[FunctionDeclaration]) -> None:
        """Replaces declarations by name; of several of one name, the last counts."""
        newest = {declaration.name: declaration for declaration in declarations}
        waiting = iter(declarations)
        tools: list[Tool] = []
        for entry in self.config.tools or ():
            if entry.function_declarations is not None:
                own = [next(waiting) for _ in entry.function_declarations]
                own = [one for one in own if newest.get(one.name) is one]
                entry = msgspec.structs.replace(entry, function_declarations=own)
            tools.append(entry)

        self.config = msgspec.structs.replace(self.config, tools=tools)
        for text in self._continued:
            self.config.append_system_text(text)

        if self.names is not None:
            _rename_allowed(self.config, self.names)


def _with_used_tools(
    config: GenerateContentConfig,
    contents: Sequence[Content],
) -> GenerateContentConfig:
    """Declares the functions that were called, and that none may be called now."""
    calls = [part.function_call for content in contents for part in content.parts or () if part.function_call]

    used = dict.fromkeys(call.name for call in calls if call.name)
    if not used:
        return config

    declarations = [FunctionDeclaration(name=name, description="Not available any more.") for name in used]
    none = ToolConfig(function_calling_config=FunctionCallingConfig(mode="NONE"))
    tools = [Tool(function_declarations=declarations)]

    return msgspec.structs.replace(config, tools=tools, tool_config=none)


_MAX_REMEMBERED = 4096
_CONTINUED = "… (continued in the instructions)"


@lru_cache(maxsize=1024)
def _fitted_schema(dialect: Dialect, encoded: bytes) -> FittedSchema:
    """Caches by the text of the schema, since its owner may change the object."""
    return fit_parameters(msgspec.json.decode(encoded), dialect)


@lru_cache(maxsize=256)
def _fitted_value(dialect: Dialect, encoded: bytes) -> FittedSchema:
    return fit_value(msgspec.json.decode(encoded), dialect)


def fitted_value(dialect: Dialect, schema: JsonObject) -> JsonObject:
    """The schema of an answer as the vendor takes it; not to be changed."""
    fitted = _fitted_value(dialect, msgspec.json.encode(schema))
    return schema if fitted.is_same else fitted.schema


def _renamed(declaration: FunctionDeclaration, names: ToolNames) -> FunctionDeclaration:
    own = declaration.name or ""
    sent = names.sent(own) if own else own
    if sent == own:
        return declaration
    return msgspec.structs.replace(declaration, name=sent)


def _rename_allowed(config: GenerateContentConfig, names: ToolNames) -> None:
    tool_config = config.tool_config
    if tool_config is not None:
        calling = tool_config.function_calling_config
    else:
        calling = None

    if tool_config is None or calling is None or not calling.allowed_function_names:
        return

    allowed = [names.sent(name) for name in calling.allowed_function_names]
    calling = msgspec.structs.replace(calling, allowed_function_names=allowed)
    config.tool_config = msgspec.structs.replace(tool_config, function_calling_config=calling)


def _with_names(content: Content, names: ToolNames) -> Content:
    """Returns the content with the names that are sent; the same object if nothing changes."""
    parts = [_part_with_names(part, names) for part in content.parts or ()]
    if all(one is other for one, other in zip(parts, content.parts or (), strict=True)):
        return content
    return Content(role=content.role, parts=parts)


def _part_with_names(part: Part, names: ToolNames) -> Part:
    call = part.function_call
    if call is not None:
        sent = names.sent(call.name or "")
        args = names.sent_arguments(call.name or "", call.args)
        if sent == call.name and args is call.args:
            return part

        return msgspec.structs.replace(
            part,
            function_call=msgspec.structs.replace(call, name=sent, args=args),
        )

    response = part.function_response
    if response is not None:
        sent = names.sent(response.name or "")
        if sent != response.name:
            return msgspec.structs.replace(
                part,
                function_response=msgspec.structs.replace(response, name=sent),
            )

    return part


_warned: set[tuple[str, str, str, str]] = set()


def _warn(vendor: str, tool: str, path: str, problem: str) -> None:
    key = (vendor, tool, path, problem)
    if key not in _warned:
        _warned.add(key)
        _log.warning("%s can't be given all of the tool %r: %s: %s", vendor, tool, path, problem)
