"""The declarations of tools in a request to a model."""

from __future__ import annotations

from enum import StrEnum

from greenroom.records.base import JsonObject, JsonValue, Record


class Type(StrEnum):
    TYPE_UNSPECIFIED = "TYPE_UNSPECIFIED"
    STRING = "STRING"
    NUMBER = "NUMBER"
    INTEGER = "INTEGER"
    BOOLEAN = "BOOLEAN"
    ARRAY = "ARRAY"
    OBJECT = "OBJECT"
    NULL = "NULL"


class Schema(Record, kw_only=True):
    """The Gemini API's subset of OpenAPI schemas; type names are upper case."""

    type: str | None = None
    """STRING, NUMBER, INTEGER, BOOLEAN, ARRAY, OBJECT or NULL."""
    title: str | None = None
    """A short name."""
    description: str | None = None
    """A description of the value for the model."""
    format: str | None = None
    """The format of a string or a number, such as `date-time` or `int32`."""
    nullable: bool | None = None
    """Whether null is valid as well."""
    default: JsonValue = None
    """The value used when none is given."""
    example: JsonValue = None
    """One valid value."""
    enum: list[str] | None = None
    """The valid strings."""
    any_of: list[Schema] | None = None
    """The value is valid if one of these accepts it."""
    items: Schema | None = None
    """The schema of an array's elements."""
    properties: dict[str, Schema] | None = None
    """Schemas of an object's properties by name."""
    required: list[str] | None = None
    """Names of the required properties."""
    property_ordering: list[str] | None = None
    """Names of the properties in the order in which the model writes them."""
    additional_properties: JsonValue = None
    """True, false or the schema of other properties."""
    minimum: float | None = None
    """The smallest valid number."""
    maximum: float | None = None
    """The largest valid number."""
    min_items: int | None = None
    """The smallest length of an array."""
    max_items: int | None = None
    """The greatest length of an array."""
    min_length: int | None = None
    """The smallest length of a string, in characters."""
    max_length: int | None = None
    """The greatest length of a string, in characters."""
    min_properties: int | None = None
    """The smallest number of properties of an object."""
    max_properties: int | None = None
    """The greatest number of properties of an object."""
    pattern: str | None = None
    """Regular expression that a string must match."""
    ref: str | None = None
    """A schema in `defs`, as `#/$defs/name`."""
    defs: JsonValue = None
    """Schemas by name, for `ref`."""


class FunctionDeclaration(Record, kw_only=True):
    """Parameters are given either as a Gemini `Schema` or as plain JSON Schema, not both; neither
    means none.
    """

    name: str | None = None
    """The function's name."""
    description: str | None = None
    """A description of the function for the model."""
    parameters: Schema | None = None
    """The parameters as a Gemini `Schema`."""
    parameters_json_schema: JsonObject | None = None
    """The parameters as JSON Schema."""
    response: Schema | None = None
    """The result as a Gemini `Schema`."""
    response_json_schema: JsonObject | None = None
    """The result as JSON Schema."""
    behavior: str | None = None
    """BLOCKING or NON_BLOCKING, for live models."""

    def json_schema(self) -> JsonObject:
        """The parameters as JSON Schema, from whichever field declares them."""
        if self.parameters_json_schema is not None:
            return self.parameters_json_schema
        if self.parameters is not None:
            return _to_json_schema(self.parameters)
        return {"type": "object", "properties": {}}


class Tool(Record, kw_only=True):
    """An entry of a request's tool list: function declarations, or one built-in of the model's service."""

    function_declarations: list[FunctionDeclaration] | None = None
    """Functions that the application executes."""
    google_search: JsonObject | None = None
    """Options of the built-in Google Search."""
    google_search_retrieval: JsonObject | None = None
    """Options of the older Google Search."""
    google_maps: JsonObject | None = None
    """Options of the built-in Google Maps."""
    enterprise_web_search: JsonObject | None = None
    """Options of the built-in web search for enterprises."""
    url_context: JsonObject | None = None
    """Options of reading web pages."""
    code_execution: JsonObject | None = None
    """Options of executing code at the provider."""
    retrieval: JsonObject | None = None
    """Options of retrieval from the provider's data stores."""
    computer_use: JsonObject | None = None
    """Options of controlling a computer."""
    file_search: JsonObject | None = None
    """Options of searching uploaded files."""
    parallel_ai_search: JsonObject | None = None
    """Options of the search of Parallel."""
    exa_ai_search: JsonObject | None = None
    """Options of the search of Exa."""


_SAME_IN_JSON_SCHEMA = (
    "title", "description", "format", "default", "enum", "required", "minimum", "maximum", "pattern",
)  # fmt: skip
_RENAMED_IN_JSON_SCHEMA = {
    "min_items": "minItems",
    "max_items": "maxItems",
    "min_length": "minLength",
    "max_length": "maxLength",
    "min_properties": "minProperties",
    "max_properties": "maxProperties",
    "additional_properties": "additionalProperties",
}


def _to_json_schema(schema: Schema) -> JsonObject:
    out: JsonObject = {}
    if schema.type is not None and schema.type != Type.TYPE_UNSPECIFIED:
        name = schema.type.lower()
        out["type"] = [name, "null"] if schema.nullable else name

    for field in _SAME_IN_JSON_SCHEMA:
        value = getattr(schema, field)
        if value is not None:
            out[field] = value

    for field, name in _RENAMED_IN_JSON_SCHEMA.items():
        value = getattr(schema, field)
        if value is not None:
            out[name] = value

    if schema.any_of is not None:
        out["anyOf"] = [_to_json_schema(option) for option in schema.any_of]
    if schema.items is not None:
        out["items"] = _to_json_schema(schema.items)
    if schema.properties is not None:
        out["properties"] = {name: _to_json_schema(value) for name, value in schema.properties.items()}
    return out
