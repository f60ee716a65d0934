"""Schemas of parameters as a vendor takes them.

Schemas come from MCP servers, OpenAPI documents, pydantic and by hand, in every draft of JSON Schema and with its
mistakes. The sent schema has the same meaning if the vendor can express it; if not, it is the nearest wider schema,
with a note for the developer. A tool checks its arguments itself, so a wider schema is safe.

Whatever the vendor, the result is an object at its root, is valid as JSON Schema 2020-12, and
refers to `$defs` only:

    {"$ref": "#/definitions/A", "definitions": {...}}          A itself, with what it refers to under `$defs`
    {"anyOf": [{"properties": {"a": ...}}, {"properties": {"b": ...}}]}     one object with a and b, both optional
    {"type": "array"}, {"type": "array", "items": [S, T]}      with "items": {}, or one schema that takes S and T
    {"type": "string", "nullable": true}                       {"type": ["string", "null"]}
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast
from urllib.parse import unquote

from greenroom.records.base import JsonObject, JsonValue

_MAX_DEPTH = 60
_MAX_NODES = 20_000
"""Limit of a schema's size with its references followed: it must fit into a prompt."""

_MAX_INLINED = 2_000
_NOWHERE = 1_000_000

PORTABLE_NAME = r"[a-zA-Z0-9_.-]{1,64}"
"""Names of properties that every vendor takes."""

_TYPES = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})
_MISNAMED = {
    "str": "string", "text": "string", "file": "string", "date": "string", "datetime": "string", "enum": "string",
    "int": "integer", "long": "integer", "float": "number", "double": "number", "decimal": "number", "bool": "boolean",
    "dict": "object", "map": "object", "list": "array", "tuple": "array", "set": "array", "none": "null",
}  # fmt: skip
_ANYTHING = frozenset({"any", "mixed", "type_unspecified", ""})

_ONE_SCHEMA = frozenset({
    "items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames", "unevaluatedItems",
    "unevaluatedProperties", "contentSchema",
})  # fmt: skip
_SCHEMA_LISTS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_SCHEMA_MAPS = frozenset({"properties", "patternProperties", "dependentSchemas"})
_NUMBERS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
_COUNTS = frozenset({
    "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "minContains", "maxContains",
})  # fmt: skip
_TEXTS = frozenset({"title", "description", "format", "contentEncoding", "contentMediaType"})
_FLAGS = frozenset({"uniqueItems", "deprecated", "readOnly", "writeOnly"})
_ANNOTATIONS = frozenset({"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"})
_BOUNDS = (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum"))
_NOT_AT_ROOT = ("not", "if", "then", "else", "enum", "const", "dependentSchemas", "dependentRequired", "dependencies")
_OBJECT_ONLY = frozenset({"properties", "required", "additionalProperties", "minProperties", "maxProperties"})
_ARRAY_ONLY = frozenset({"items", "prefixItems", "minItems", "maxItems", "uniqueItems"})


@dataclass(frozen=True, kw_only=True, eq=False)
class Dialect:
    """The part of JSON Schema that a vendor takes."""

    keywords: frozenset[str] | None = None
    """Those that it takes, None if all."""

    has_tuples: bool = False
    """`prefixItems`."""

    bare_references: bool = False
    """Nothing may stand beside a `$ref`."""

    acyclic_when_required: bool = False
    """A property that is required may not lead back to its own schema."""

    property_name: str | None = None
    """A pattern for the names of properties."""

    def takes(self, keyword: str) -> bool:
        return self.keywords is None or keyword in self.keywords


class SchemaNote(NamedTuple):
    """A demand of a schema that a vendor can't express."""

    path: str
    """As `parameters.city.items`."""

    problem: str


@dataclass(frozen=True)
class FittedSchema:
    """A schema as it is sent."""

    schema: JsonObject
    is_same: bool
    """Whether it is equal to the given one."""

    notes: tuple[SchemaNote, ...] = ()
    """Constraints that it does not express any more."""

    properties: Mapping[str, str] = field(default_factory=dict[str, str])
    """By the names that are sent, the own names of properties that were renamed."""


def fit_parameters(schema: JsonObject, dialect: Dialect) -> FittedSchema:
    """The schema of a function's parameters."""
    reader = _SchemaReader(schema, dialect)
    root = reader.read(reader.as_object(schema, "parameters"), "parameters")
    root["type"] = "object"
    root.setdefault("properties", {})
    return reader.fitted(root)


def fit_value(schema: JsonObject, dialect: Dialect) -> FittedSchema:
    """The schema of any value, as of a model's answer."""
    reader = _SchemaReader(schema, dialect)
    root = schema
    if isinstance(schema.get("$ref"), str):
        if reader.is_object(schema):
            root = reader.as_object(schema, "schema")
        else:
            root = reader.followed(schema, "schema")

    return reader.fitted(reader.read(root, "schema"))


def renamed_keys(value: JsonValue, names: Mapping[str, str]) -> JsonValue:
    """The value with keys renamed at every level."""
    if isinstance(value, dict):
        items = cast("JsonObject", value).items()
        return {names.get(key, key): renamed_keys(one, names) for key, one in items}
    if isinstance(value, list):
        return [renamed_keys(one, names) for one in cast("list[JsonValue]", value)]
    return value


class _SchemaReader:
    """Reads a schema, and each schema that it refers to once."""

    def __init__(self, root: JsonObject, dialect: Dialect) -> None:
        self._root = root
        self._dialect = dialect
        self._notes: dict[SchemaNote, None] = {}
        self._definitions: JsonObject = {}
        self._names: dict[int, str] = {}
        # The schemas being read, outermost first, and the outermost to which a nested one refers.
        self._open = [id(root)]
        self._led_back_to = _NOWHERE
        self._leads_back: dict[str, set[int]] = {}
        self._cyclic: set[tuple[str, str]] = set()
        self._nodes = 0
        self._by_id: dict[str, JsonObject] | None = None
        self._sent: dict[str, str] = {}
        self._own: dict[str, str] = {}
        self._all_names: set[str] | None = None

    def fitted(self, root: JsonObject) -> FittedSchema:
        if self._definitions:
            root = {**root, "$defs": self._definitions}
        renamed = {sent: own for sent, own in self._own.items() if sent != own}
        return FittedSchema(root, root == self._root, tuple(self._notes), renamed)

    def _note(self, path: str, problem: str) -> None:
        self._notes[SchemaNote(path, problem)] = None

    # References

    def followed(self, node: JsonObject, path: str) -> JsonObject:
        """Returns the schema that a reference names; empty for an unresolvable reference."""
        seen: set[int] = set()
        while isinstance(node.get("$ref"), str):
            reference: str = node["$ref"]
            target = self._target(reference)
            if target is None or id(node) in seen:
                self._note(path, f"the reference {reference!r} leads nowhere")
                return {}

            seen.add(id(node))

            if len(node) > 1 and "$ref" in target:
                return target

            node = target

        return node

    def _target(self, reference: str) -> JsonObject | None:
        base, _, fragment = reference.partition("#")
        start: JsonValue = self._root
        if base and base != self._root.get("$id", self._root.get("id")):
            start = self._identified().get(base)

        if fragment and not fragment.startswith("/"):
            start = self._identified().get(f"#{fragment}")
            fragment = ""

        for step in fragment.split("/")[1:]:
            start = _child(start, unquote(step).replace("~1", "/").replace("~0", "~"))

        if start is True:
            return {}
        if isinstance(start, dict):
            return cast("JsonObject", start)

        return None

    def _identified(self) -> dict[str, JsonObject]:
        """Schemas by their `$id`, and by their `$anchor` after a `#`."""
        if self._by_id is None:
            self._by_id = {}
            for node in _nodes(self._root):
                for keyword, prefix in (("$anchor", "#"), ("$id", ""), ("id", "")):
                    name = node.get(keyword)
                    if isinstance(name, str):
                        self._by_id.setdefault(f"{prefix}{name}", node)

        return self._by_id

    def _reference(self, node: JsonObject, path: str, depth: int) -> JsonObject:
        """A reference to an entry of `$defs`, with the keywords that are allowed beside it."""
        beside = {key: value for key, value in node.items() if key not in ("$ref", "$defs", "definitions")}
        target = self.followed(node, path)
        if "$ref" in target:
            beside = {**{key: value for key, value in target.items() if key != "$ref"}, **beside}
            target = self.followed(target, path)

        if not target:
            return self.read(beside, path, depth)

        inlines = self._dialect.bare_references and beside and id(target) not in self._open
        if inlines and self._nodes < _MAX_INLINED:
            if beside.keys() <= _ANNOTATIONS:
                merged = {**target, **beside}
            else:
                merged = {"allOf": [target, beside]}

            self._open.append(id(target))
            inlined = self.read(merged, path, depth)
            self._open.pop()

            return inlined

        name = self._define(target, str(node["$ref"]), path)
        bare: JsonObject = {"$ref": f"#/$defs/{name}"}

        if self._dialect.bare_references:
            return bare
        if beside:
            return {**bare, **self.read(beside, path, depth)}

        return bare

    def _define(self, target: JsonObject, reference: str, path: str) -> str:
        """The name of a schema among `$defs`, where it is read when it is first referred to."""
        name = self._names.get(id(target))
        if name is None:
            name = self._free_name(reference)
            self._names[id(target)] = name
            outside = self._led_back_to
            self._led_back_to = _NOWHERE
            self._definitions[name] = {}
            self._open.append(id(target))

            if target is self._root:
                body = self.as_object(target, path)
            else:
                body = target

            self._definitions[name] = self.read(body, f"$defs.{name}")
            self._open.pop()
            self._leads_back[name] = set(self._open[self._led_back_to :])
            self._led_back_to = min(outside, self._led_back_to)

        for back in (id(target), *self._leads_back.get(name, ())):
            if back in self._open:
                self._led_back_to = min(self._led_back_to, self._open.index(back))

        return name

    def _free_name(self, reference: str) -> str:
        wanted = re.sub(r"[^\w.-]", "_", reference.rpartition("/")[2].strip("#"), flags=re.ASCII) or "Root"
        name = wanted
        number = 2
        while name in self._definitions:
            name = f"{wanted}_{number}"
            number += 1
        return name

    # The root, which must be an object by itself

    def is_object(self, node: JsonValue, depth: int = 0) -> bool:
        """True if the schema accepts objects, alone or among other values."""
        if not isinstance(node, dict) or depth > _MAX_DEPTH:
            return False

        schema = cast("JsonObject", node)
        if isinstance(schema.get("$ref"), str):
            return self.is_object(self.followed(schema, ""), depth + 1)
        if "type" in schema:
            return "object" in _type_names(schema["type"])

        options = [option for keyword in ("anyOf", "oneOf") for option in _list(schema.get(keyword))]

        return not options or any(self.is_object(option, depth + 1) for option in options)

    def as_object(self, node: JsonObject, path: str, depth: int = 0) -> JsonObject:
        """Returns the schema as one object, merged from its references, `allOf`, `anyOf` and `oneOf`."""
        if not any(keyword in node for keyword in ("$ref", "allOf", "anyOf", "oneOf", *_NOT_AT_ROOT)):
            return node

        if depth > _MAX_DEPTH:
            self._note(path, "it is nested too deeply")
            return {}

        left_out = ("$ref", "allOf", "anyOf", "oneOf", "$defs", "definitions", *_NOT_AT_ROOT)
        merged = {key: value for key, value in node.items() if key not in left_out}

        for keyword in _NOT_AT_ROOT:
            if keyword in node:
                self._note(path, f"{keyword!r} is left out")

        parts = _list(node.get("allOf"))
        if isinstance(node.get("$ref"), str):
            parts = [self.followed(node, path), *parts]

        for part in parts:
            if isinstance(part, dict):
                _add_all(merged, self.as_object(cast("JsonObject", part), path, depth + 1))

        for keyword in ("anyOf", "oneOf"):
            alternatives = _list(node.get(keyword))
            options = [
                self.as_object(cast("JsonObject", alternative), path, depth + 1)
                for alternative in alternatives
                if self.is_object(alternative)
            ]
            if options:
                self._add_options(merged, options, keyword, path)
            elif alternatives:
                self._note(path, f"{keyword!r} without an object is left out")

        return merged

    def _add_options(
        self,
        merged: JsonObject,
        options: list[JsonObject],
        keyword: str,
        path: str,
    ) -> None:
        """Merges the properties of the options. A property is required if every option requires it."""
        if len(options) == 1:
            _add_all(merged, options[0])
            return

        self._note(path, f"the options of {keyword!r} are merged to one object")

        properties: dict[str, list[JsonValue]] = {}
        for option in options:
            for name, schema in _map(option.get("properties")).items():
                schemas = properties.setdefault(name, [])
                if schema not in schemas:
                    schemas.append(schema)

        united = {name: schemas[0] if len(schemas) == 1 else {"anyOf": schemas} for name, schemas in properties.items()}
        required = [_names(option.get("required")) for option in options]
        common = [name for name in required[0] if all(name in names for names in required)]
        _add_all(merged, {"properties": united, "required": common})

        choices = [
            ", ".join(names or _map(option.get("properties"))) for names, option in zip(required, options, strict=True)
        ]

        hint = f"Give one of these sets of arguments: {'; or '.join(filter(None, choices))}."
        if merged.get("description"):
            merged["description"] = f"{merged['description']}\n{hint}"
        else:
            merged["description"] = hint

    # Any schema

    def read(self, node: JsonValue, path: str, depth: int = 0) -> JsonObject:
        self._nodes += 1

        if not isinstance(node, dict):
            if node is False:
                self._note(path, "that nothing is allowed here is left out")
            return {}

        if depth > _MAX_DEPTH or self._nodes > _MAX_NODES:
            self._note(path, "it is nested too deeply, or too large")
            return {}

        schema = cast("JsonObject", node)
        if isinstance(schema.get("$ref"), str):
            return self._reference(schema, path, depth)

        if "allOf" in schema and (not self._dialect.takes("allOf") or len(_list(schema["allOf"])) == 1):
            schema = self._without_all_of(schema, path)
            if isinstance(schema.get("$ref"), str):
                return self._reference(schema, path, depth)

        out: JsonObject = {}
        for keyword, value in schema.items():
            converted = self._keyword(keyword, value, path, depth)
            if converted is not None:
                out[keyword] = converted

        self._amend(out, schema, path, depth)

        return out

    def _without_all_of(self, schema: JsonObject, path: str) -> JsonObject:
        rest = {key: value for key, value in schema.items() if key != "allOf"}
        parts = [cast("JsonObject", part) for part in _list(schema["allOf"]) if isinstance(part, dict)]
        if len(parts) == 1 and not rest.keys() & parts[0].keys():
            return {**parts[0], **rest}

        for part in parts:
            opened = part
            if isinstance(part.get("$ref"), str):
                target = self.followed(part, path)
                if id(target) in self._open or "$ref" in target:
                    self._note(path, "a part of 'allOf' that leads back here is left out")
                    continue
                opened = target

            if "allOf" in opened:
                if opened is not schema:
                    opened = self._without_all_of(opened, path)
                else:
                    opened = {}

            _add_all(rest, opened)

        return rest

    def _keyword(self, keyword: str, value: JsonValue, path: str, depth: int) -> JsonValue:
        """Returns the value that is sent for a keyword, or None. `_amend` adds values that depend on other keywords."""
        below = f"{path}.{keyword}"
        if keyword == "type":
            return self._type(value, path)

        if keyword in _SCHEMA_MAPS:
            if not self._dialect.takes(keyword):
                self._note(below, f"{keyword!r} is left out")
                return None
            return self._map(keyword, _map(value), path, depth)

        if keyword in _SCHEMA_LISTS:
            return self._list(keyword, _list(value), path, depth)

        if keyword in _ONE_SCHEMA:
            if keyword == "items" and isinstance(value, list):
                return None
            if not self._dialect.takes(keyword):
                self._note(below, f"{keyword!r} is left out")
                return None
            is_open = keyword in ("additionalProperties", "unevaluatedProperties") and isinstance(value, bool)
            return value if is_open else self.read(value, below, depth + 1)

        return self._plain(keyword, value, path)

    def _map(self, keyword: str, schemas: JsonObject, path: str, depth: int) -> JsonObject:
        out: JsonObject = {}
        for name, schema in schemas.items():
            if schema is False:  # it can't be given
                continue

            if keyword == "properties":
                sent = self._property(name)
            else:
                sent = name

            outside = self._led_back_to
            self._led_back_to = _NOWHERE
            out[sent] = self.read(schema, f"{path}.{name}", depth + 1)
            if self._led_back_to < len(self._open):
                self._cyclic.add((path, name))

            self._led_back_to = min(outside, self._led_back_to)

        return out

    def _property(self, name: str) -> str:
        """The name of a property as the vendor takes it."""
        pattern = self._dialect.property_name
        if pattern is None:
            return name

        if name not in self._sent:
            if re.fullmatch(pattern, name):
                wanted = name
            else:
                wanted = re.sub(r"[^a-zA-Z0-9_.-]", "_", name)[:56] or "_"

            sent = wanted
            number = 2
            while sent in self._own or (sent != name and sent in self._property_names()):
                sent = f"{wanted}_{number}"
                number += 1

            self._sent[name] = sent
            self._own[sent] = name

        return self._sent[name]

    def _property_names(self) -> set[str]:
        if self._all_names is None:
            self._all_names = {name for node in _nodes(self._root) for name in _map(node.get("properties"))}
        return self._all_names

    def _list(self, keyword: str, schemas: Sequence[JsonValue], path: str, depth: int) -> JsonValue:
        if not schemas or (keyword == "prefixItems" and not self._dialect.has_tuples):
            return None
        if keyword == "oneOf" and not self._dialect.takes("oneOf"):
            return None
        if keyword != "prefixItems":
            schemas = [one for one in schemas if one is not False]
        return [self.read(one, f"{path}.{keyword}[{at}]", depth + 1) for at, one in enumerate(schemas)] or None

    def _type(self, value: JsonValue, path: str) -> JsonValue:
        names = _type_names(value)
        for name in names:
            if name not in _TYPES and name not in _ANYTHING:
                self._note(path, f"the type {name!r} is none of JSON Schema's")

        known_names = [name for name in names if name in _TYPES]
        if not known_names or len(known_names) < len(names):
            return None

        return known_names[0] if len(known_names) == 1 else known_names

    def _plain(self, keyword: str, value: JsonValue, path: str) -> JsonValue:
        """The value of a keyword that holds no schemas, if it is of the keyword's type."""
        is_number = isinstance(value, int | float) and not isinstance(value, bool)

        if keyword.startswith("$") or keyword in ("definitions", "id", "dependencies", "nullable"):
            if keyword == "dependencies":
                self._note(path, "'dependencies' is left out")
            return None

        if keyword in _NUMBERS:
            valid = is_number and (keyword != "multipleOf" or cast("float", value) > 0)
        elif keyword in _COUNTS:
            valid = is_number and cast("float", value) >= 0 and float(cast("float", value)).is_integer()
        elif keyword in _TEXTS:
            valid = isinstance(value, str)
        elif keyword in _FLAGS:
            valid = isinstance(value, bool)
        elif keyword == "pattern":
            valid = isinstance(value, str) and _is_pattern(value)
        elif keyword in ("enum", "examples"):
            valid = isinstance(value, list) and (value != [] or keyword == "examples")
        elif keyword == "required":
            return list(dict.fromkeys(_names(value))) or ([] if isinstance(value, list) else None)
        elif keyword == "dependentRequired":
            valid = isinstance(value, dict) and all(isinstance(one, list) for one in _map(value).values())
        else:
            valid = True

        if not self._dialect.takes(keyword):
            return None
        if valid and keyword == "enum":
            return _unique(cast("list[JsonValue]", value))

        return cast("JsonValue", value) if valid else None

    def _amend(self, out: JsonObject, schema: JsonObject, path: str, depth: int) -> None:
        """Adds keywords that depend on several others."""
        self._amend_bounds(out, schema)

        if not self._dialect.takes("oneOf") and "oneOf" in schema and "anyOf" not in out:
            options = [one for one in _list(schema["oneOf"]) if one is not False]
            out["anyOf"] = [self.read(one, f"{path}.oneOf[{at}]", depth + 1) for at, one in enumerate(options)]
            if not options:
                del out["anyOf"]

        if "const" in schema and not self._dialect.takes("const"):
            out["enum"] = [schema["const"]]

        for keyword in ("not", "if", "contains", "propertyNames", "patternProperties", "dependentSchemas"):
            if keyword in schema and keyword not in out:
                out.pop("then" if keyword == "if" else keyword, None)

        self._amend_array(out, schema, path, depth)
        self._amend_object(out, schema, path)
        if schema.get("nullable") is True:
            _allow_null(out)

        if self._dialect.keywords is not None:
            _simplify(out)

    def _amend_bounds(self, out: JsonObject, schema: JsonObject) -> None:
        """Draft 4 has `exclusiveMinimum: true` beside `minimum`; some vendors have no exclusive limits."""
        for exclusive, limit in _BOUNDS:
            if schema.get(exclusive) is True and limit in out and self._dialect.takes(exclusive):
                out[exclusive] = out.pop(limit)
            elif exclusive in schema and not self._dialect.takes(exclusive) and limit not in out:
                value = schema[exclusive]
                if isinstance(value, int | float) and not isinstance(value, bool):
                    step = 1 if exclusive == "exclusiveMinimum" else -1
                    is_whole = schema.get("type") == "integer" and float(value).is_integer()
                    out[limit] = value + step if is_whole else value

    def _amend_array(self, out: JsonObject, schema: JsonObject, path: str, depth: int) -> None:
        """Gives every array a single schema as `items`. Without tuples, it accepts each of a tuple's items."""
        is_array = "array" in _type_names(out.get("type")) or "items" in schema or "prefixItems" in schema
        if not is_array or ("prefixItems" in out and "items" not in out):
            return

        items = schema.get("items")
        tuple_of = _list(schema.get("prefixItems")) or (_list(items) if isinstance(items, list) else [])

        if "prefixItems" in out:
            if items is False:
                out["items"] = False
            return

        if not tuple_of:
            out.setdefault("items", {})
            return

        if self._dialect.has_tuples and isinstance(items, list):
            out["prefixItems"] = [self.read(one, f"{path}.items[{at}]", depth + 1) for at, one in enumerate(tuple_of)]
            return

        read = _unique([self.read(one, f"{path}.items[{at}]", depth + 1) for at, one in enumerate(tuple_of)])
        if isinstance(items, dict):
            read = _unique([*read, out.get("items", {})])

        out["items"] = read[0] if len(read) == 1 else {"anyOf": read}

    def _amend_object(self, out: JsonObject, schema: JsonObject, path: str) -> None:
        """Gives each required property a schema. A draft 3 property may be marked as required itself."""
        declared = _map(schema.get("properties"))
        itself = [name for name, one in declared.items() if _map(one).get("required") is True]

        required = [*cast("list[str]", out.get("required") or []), *itself]
        if not required:
            if "required" in out and schema.get("required") != []:
                del out["required"]
            return

        required_names: list[str] = []
        for name in dict.fromkeys(required):
            if declared.get(name) is False:
                continue

            if self._dialect.acyclic_when_required and (path, name) in self._cyclic:
                self._note(
                    f"{path}.{name}",
                    "that it is required is left out, as it leads back to its own schema",
                )
                continue

            sent = self._property(name)
            if self._dialect.keywords is not None and sent not in out.get("properties", {}):
                out["properties"] = {**out.get("properties", {}), sent: {}}

            required_names.append(sent)

        out["required"] = required_names
        if not required_names:
            del out["required"]


def _simplify(out: JsonObject) -> None:
    """Expresses the same with fewer kinds of keywords: alternatives without siblings, enumerations of one type."""
    _simplify_enum(out)

    options = _list(out.get("anyOf"))
    null = {"type": "null"}
    if null in options:
        others = [cast("JsonObject", one) for one in options if one != null]
        if len(others) == 1 and isinstance(others[0].get("type"), str) and "enum" not in others[0]:
            beside = {key: value for key, value in out.items() if key != "anyOf"}
            out.clear()
            out.update({**others[0], **beside})
            out["type"] = [others[0]["type"], "null"]

    if "type" not in out and "anyOf" not in out and "$ref" not in out:
        if "properties" in out:
            out["type"] = "object"
        elif "items" in out:
            out["type"] = "array"

    types = _type_names(out.get("type"))
    if len([name for name in types if name != "null"]) > 1 and "anyOf" not in out:
        of_types = {key: value for key, value in out.items() if key not in _ANNOTATIONS and key != "type"}
        out["anyOf"] = [_of_type(name, of_types) for name in types]
        for key in ("type", *of_types):
            del out[key]


def _of_type(name: str, keywords: JsonObject) -> JsonObject:
    foreign = (_OBJECT_ONLY if name != "object" else frozenset[str]()) | (
        _ARRAY_ONLY if name != "array" else frozenset[str]()
    )
    return {"type": name, **{key: value for key, value in keywords.items() if key not in foreign}}


def _simplify_enum(out: JsonObject) -> None:
    """Keeps an enum of texts only or of numbers only. For other enums, only the types of the values are kept."""
    if "enum" not in out:
        return

    all_values = cast("list[JsonValue]", out["enum"])
    values = [value for value in all_values if value is not None]
    is_nullable = len(values) < len(all_values)
    kinds = list(dict.fromkeys(map(_kind, values)))
    out["enum"] = values

    if not values:
        out["type"] = "null"
        del out["enum"]
        return

    if len(kinds) == 1 and kinds[0] in ("string", "number"):
        if not _type_names(out.get("type")):
            out["type"] = kinds[0]
    else:
        del out["enum"]
        out["type"] = kinds[0] if len(kinds) == 1 else kinds

    if is_nullable:
        types = _type_names(out["type"])
        out["type"] = [*types, "null"] if "null" not in types else types


def _kind(value: JsonValue) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"

    return "array" if isinstance(value, list) else "object"


def _allow_null(out: JsonObject) -> None:
    types = _type_names(out.get("type"))
    if types and "null" not in types:
        out["type"] = [*types, "null"]
        if isinstance(out.get("enum"), list) and None not in out["enum"]:
            out["enum"] = [*out["enum"], None]
    elif isinstance(out.get("anyOf"), list) and {"type": "null"} not in out["anyOf"]:
        out["anyOf"] = [*out["anyOf"], {"type": "null"}]


def _add_all(merged: JsonObject, other: JsonObject) -> None:
    """Adds the demands of another schema."""
    for keyword, value in other.items():
        if keyword == "properties":
            properties: JsonObject = dict(_map(merged.get("properties")))
            for name, schema in _map(value).items():
                earlier = properties.get(name, schema)
                if earlier == schema:
                    properties[name] = schema
                else:
                    properties[name] = {"allOf": [earlier, schema]}

            merged["properties"] = properties
        elif keyword == "required":
            required = list(dict.fromkeys([*_names(merged.get("required")), *_names(value)]))
            if required:
                merged["required"] = required
        elif keyword not in ("$defs", "definitions"):
            merged.setdefault(keyword, value)


def _child(node: JsonValue, step: str) -> JsonValue:
    if isinstance(node, dict):
        return cast("JsonObject", node).get(step)
    if isinstance(node, list) and step.isdigit() and int(step) < len(cast("list[JsonValue]", node)):
        return cast("list[JsonValue]", node)[int(step)]
    return None


def _nodes(root: JsonValue) -> Iterator[JsonObject]:
    """Yields all objects in a JSON value."""
    waiting: list[JsonValue] = [root]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            json_object = cast("JsonObject", node)
            yield json_object
            waiting.extend(json_object.values())
        elif isinstance(node, list):
            waiting.extend(cast("list[JsonValue]", node))


def _list(value: Any) -> list[JsonValue]:
    if isinstance(value, list):
        return cast("list[JsonValue]", value)
    return []


def _map(value: Any) -> JsonObject:
    return cast("JsonObject", value) if isinstance(value, dict) else {}


def _names(value: Any) -> list[str]:
    return [name for name in _list(value) if isinstance(name, str)]


def _type_names(value: Any) -> list[str]:
    """Converts type names to those of JSON Schema."""
    if isinstance(value, list):
        names = _names(value)
    elif isinstance(value, str):
        names = [value]
    else:
        names = []

    lower = [name.lower() for name in names]
    return list(dict.fromkeys(_MISNAMED.get(name, name) for name in lower))


def _unique(values: list[JsonValue]) -> list[JsonValue]:
    """1 and True are different here, as in JSON."""
    out: list[JsonValue] = []
    for value in values:
        if not any(value == known and type(value) is type(known) for known in out):
            out.append(value)
    return out


def _is_pattern(pattern: str) -> bool:
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError):
        return False
    return True
