"""Reads OpenAPI documents, resolves their references, and converts their schemas to JSON Schema."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, ClassVar, Literal, cast
from urllib.parse import unquote

import msgspec

from greenroom.errors import AgentConfigError
from greenroom.records.base import JsonObject, JsonValue
from greenroom.tools.value_types.type_schema import REF


class ApiDocument:
    """An OpenAPI document, with its references resolved.

    url: the document's own, which relative server URLs are resolved against.

    Raises AgentConfigError for anything but an OpenAPI 3 document.
    """

    def __init__(self, root: JsonObject, *, url: str | None = None) -> None:
        version = root.get("openapi")
        if not str(version).startswith("3"):
            if "swagger" in root:
                version_text = "Swagger 2"
            else:
                version_text = f"openapi: {version!r}"
            raise AgentConfigError(f"Only OpenAPI 3 documents can be made into tools; this one says {version_text}")

        self.root = root
        self.url = url

    def resolve(self, node: JsonValue, *, followed: tuple[str, ...] = ()) -> JsonObject:
        """Resolves a node to an object. Keys next to a reference override those of its target.

        A cycle of references gives an empty object.

        followed: the references that led here.

        Raises AgentConfigError for a broken reference.
        """
        reference = reference_of(node)
        if reference is None:
            if isinstance(node, dict):
                return cast("JsonObject", node)
            return {}

        if reference in followed:
            target: JsonObject = {}
        else:
            target = self.resolve(self._look_up(reference), followed=(*followed, reference))

        return {**target, **{key: value for key, value in node.items() if key != "$ref"}}

    def _look_up(self, reference: str) -> JsonValue:
        if not reference.startswith("#"):
            raise AgentConfigError(
                f"The OpenAPI document refers to {reference!r}; only references within the document are supported"
            )

        node: Any = self.root
        for step in unquote(reference[1:]).split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            if isinstance(node, list) and step.isdecimal() and int(step) < len(cast("list[Any]", node)):
                node = cast("list[Any]", node)[int(step)]
            elif isinstance(node, dict) and step in node:
                node = cast("JsonObject", node)[step]
            else:
                raise AgentConfigError(f"The OpenAPI document refers to {reference!r}, which does not exist")

        return node


def reference_of(node: JsonValue) -> str | None:
    """A node's reference. A property may be named `$ref` too, but its value is no text then."""
    if isinstance(node, dict):
        reference = cast("JsonObject", node).get("$ref")
    else:
        reference = None
    return reference if isinstance(reference, str) else None


def read_document(text: str | bytes, kind: Literal["json", "yaml"]) -> JsonObject:
    """Parses a document. Raises AgentConfigError when it is not a JSON or YAML object."""
    if kind not in ("json", "yaml"):
        raise AgentConfigError(f"Unknown type of an OpenAPI document: {kind!r}; known: json, yaml")

    if isinstance(text, str):
        text = text.removeprefix("\ufeff")

    if kind == "json":
        try:
            root = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise AgentConfigError(f"The OpenAPI document is not valid JSON: {error}") from None
    else:
        root = read_yaml(text)

    if not isinstance(root, dict):
        raise AgentConfigError("The OpenAPI document is not an object")

    return cast("JsonObject", root)


def read_yaml(text: str | bytes) -> JsonValue:
    """Parses YAML as JSON values: keys are text, and dates stay text. Raises AgentConfigError."""
    import yaml  # imported here because most documents are JSON

    class Loader(yaml.SafeLoader):
        """Builds plain data only, without dates, which JSON lacks, and with text as keys."""

        yaml_implicit_resolvers: ClassVar[Any] = {
            first: [rule for rule in rules if rule[0] != "tag:yaml.org,2002:timestamp"]
            for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            found = super().construct_mapping(node, deep)
            return {str(key).lower() if isinstance(key, bool) else str(key): value for key, value in found.items()}

    try:
        return yaml.load(text, Loader)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise AgentConfigError(f"Not valid YAML: {' '.join(str(error).split())}") from None


MAX_NODES = 3_000
"""Limit of schema nodes per operation, since a model's prompt must hold them; deeper parts are only
named.
"""

_ONE = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames")
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
_MAPS = ("properties", "patternProperties", "dependentSchemas")
_BESIDE_REFERENCES = frozenset({"title", "description", "default"})
"""Keys beside a reference that leave its target as it is. Others, such as `nullable`, make another
schema of it.
"""
_DROPPED = frozenset({"xml", "externalDocs", "example", "discriminator", "nullable", "readOnly", "writeOnly", "$defs"})


class SchemaReader:
    """Converts the schemas of one operation.

    A schema with one reference is inlined. A schema with several references, or one that refers to itself, is written
    once, into the `$defs` of the result:

        {"from": {"$ref": "#/components/schemas/Address"}, "to": {"$ref": "#/components/schemas/Address"}}

    becomes `{"from": {"$ref": "#/$defs/Address"}, …}`. Small schemas, without properties and parts, are always inlined.
    """

    def __init__(self, document: ApiDocument) -> None:
        self._document = document
        self._nodes_left = MAX_NODES
        self._definitions: dict[str, JsonObject] = {}
        self._names: dict[str, str] = {}
        self._uses: Counter[str] = Counter()

    def read(self, schema: JsonValue) -> JsonObject:
        self._definitions = {}
        self._names = {}
        self._uses = Counter()
        root = self._convert(self._document.resolve(schema) if reference_of(schema) else schema)

        inlined: JsonObject = self._inline(root)
        kept = {name: self._inline(body) for name, body in self._definitions.items() if self._uses[name] > 1}

        return {**inlined, "$defs": kept} if kept else inlined

    def _read(self, schema: JsonValue) -> JsonObject:
        """A schema below the root: a reference into `$defs`, or the converted schema."""
        reference = reference_of(schema)
        if reference is None:
            return self._convert(schema)

        target = self._document.resolve({"$ref": reference})
        beside = {key: value for key, value in cast("JsonObject", schema).items() if key != "$ref"}
        if not _has_parts(target) or beside.keys() - _BESIDE_REFERENCES:
            return self._convert(self._document.resolve(schema))
        if self._nodes_left <= 0:
            return _named(target, reference)

        name = self._names.get(reference)
        if name is None:
            name = self._free_name(reference)
            self._names[reference] = name
            self._definitions[name] = {}
            self._definitions[name] = self._convert(target)

        self._uses[name] += 1

        return {"$ref": REF + name, **beside}

    def _convert(self, schema: JsonValue) -> JsonObject:
        if not isinstance(schema, dict):
            return {"not": {}} if schema is False else {}

        source = cast("JsonObject", schema)

        if self._nodes_left <= 0:
            return _named(source, None)

        self._nodes_left -= 1
        out: JsonObject = {
            key: self._value(key, value)
            for key, value in source.items()
            if key not in _DROPPED and not key.startswith("x-")
        }
        _from_openapi_3_0(out, source)

        return out

    def _free_name(self, reference: str) -> str:
        wanted = re.sub(r"[^\w.-]", "_", reference.rpartition("/")[2]) or "schema"
        name = wanted
        number = 1
        while name in self._definitions:
            number += 1
            name = f"{wanted}_{number}"
        return name

    def _inline(self, node: JsonValue) -> Any:
        """Inlines definitions that are used once. They form no cycle: a cycle would use them twice."""
        if isinstance(node, list):
            return [self._inline(item) for item in cast("list[JsonValue]", node)]
        if not isinstance(node, dict):
            return node

        reference = reference_of(cast("JsonObject", node)) or ""
        name = reference.removeprefix(REF)
        if reference.startswith(REF) and self._uses[name] == 1:
            beside = {key: value for key, value in cast("JsonObject", node).items() if key != "$ref"}
            return {**self._inline(self._definitions[name]), **beside}

        return {key: self._inline(value) for key, value in cast("JsonObject", node).items()}

    def _value(self, key: str, value: JsonValue) -> JsonValue:
        if key in _ONE and isinstance(value, dict):
            return self._read(value)
        if key == "items" and isinstance(value, list):  # a tuple, as in older drafts; models support one type only
            return {"anyOf": [self._read(item) for item in cast("list[JsonValue]", value)]}
        if key in _LISTS and isinstance(value, list):
            return [self._read(item) for item in cast("list[JsonValue]", value)]

        if key in _MAPS and isinstance(value, dict):
            entries = cast("JsonObject", value).items()
            return {name: self._read(entry) for name, entry in entries if not self._is_read_only(entry)}

        return value

    def _is_read_only(self, schema: JsonValue) -> bool:
        return isinstance(schema, dict) and self._document.resolve(cast("JsonObject", schema)).get("readOnly") is True


def _has_parts(schema: JsonObject) -> bool:
    return any(key in schema for key in (*_ONE, *_LISTS, *_MAPS))


def _named(schema: JsonObject, reference: str | None) -> JsonObject:
    title = schema.get("title") or (reference or "").rpartition("/")[2]
    named = {"type": schema.get("type"), "title": title, "description": schema.get("description")}
    return {key: value for key, value in named.items() if value}


def _from_openapi_3_0(out: JsonObject, source: JsonObject) -> None:
    """Converts keywords that differ in 3.0: `nullable` and exclusive limits. Read-only properties become optional."""
    if source.get("nullable") is True and isinstance(out.get("type"), str):
        out["type"] = [out["type"], "null"]
        options: Any = out.get("enum")
        if isinstance(options, list) and None not in options:
            out["enum"] = [*cast("list[JsonValue]", options), None]

    for limit, flag in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if isinstance(out.get(flag), bool):
            excluded = out.pop(flag)
            if excluded and limit in out:
                out[flag] = out.pop(limit)

    declared: JsonObject = source.get("properties") or {}
    shown: JsonObject = out.get("properties") or {}
    read_only = declared.keys() - shown.keys()
    if read_only and isinstance(source.get("required"), list):
        out["required"] = [name for name in source["required"] if name not in read_only]
