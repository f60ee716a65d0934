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
    """The Gemini API's subset of OpenAPI schemas; type names are upper case.

    type: STRING, NUMBER, INTEGER, BOOLEAN, ARRAY, OBJECT or NULL. title: a short name. description: what the value is,
    for the model. format: of a string or a number, as `date-time` or `int32`. nullable: whether null is valid, too.
    default: the value that a missing one has. example: one valid value. enum: the valid strings. any_of: the value is
    valid by at least one of these. items: the schema of an array's elements. properties: schemas of an object's
    properties by name. required: names of the properties that must be there. property_ordering: names of the properties
    in the order in which the model writes them. additional_properties: true, false or the schema of other properties.
    minimum: the smallest valid number. maximum: the greatest valid number. min_items: the least elements of an array.
    max_items: the most elements of an array. min_length: the least characters of a string. max_length: the most
    characters of a string. min_properties: the least properties of an object. max_properties: the most properties of an
    object. pattern: regular expression that a string must match. ref: a schema in `defs`, as `#/$defs/name`. defs:
    schemas by name, for `ref`.
    """

    type: str | None = None
    title: str | None = None
    description: str | None = None
    format: str | None = None
    nullable: bool | None = None
    default: JsonValue = None
    example: JsonValue = None
    enum: list[str] | None = None
    any_of: list[Schema] | None = None
    items: Schema | None = None
    properties: dict[str, Schema] | None = None
    required: list[str] | None = None
    property_ordering: list[str] | None = None
    additional_properties: JsonValue = None
    minimum: float | None = None
    maximum: float | None = None
    min_items: int | None = None
    max_items: int | None = None
    min_length: int | None = None
    max_length: int | None = None
    min_properties: int | None = None
    max_properties: int | None = None
    pattern: str | None = None
    ref: str | None = None
    defs: JsonValue = None


class FunctionDeclaration(Record, kw_only=True):
    """Parameters are given either as a Gemini `Schema` or as plain JSON Schema, not both; neither means none.

    name: the function's name. description: what the function does, for the model. parameters: the parameters as a
    Gemini `Schema`. parameters_json_schema: the parameters as JSON Schema. response: the result as a Gemini `Schema`.
    response_json_schema: the result as JSON Schema. behavior: BLOCKING or NON_BLOCKING, for live models.
    """

    name: str | None = None
    description: str | None = None
    parameters: Schema | None = None
    parameters_json_schema: JsonObject | None = None
    response: Schema | None = None
    response_json_schema: JsonObject | None = None
    behavior: str | None = None

    def json_schema(self) -> JsonObject:
        """The parameters as JSON Schema, whichever way they were given."""
        if self.parameters_json_schema is not None:
            return self.parameters_json_schema
        if self.parameters is not None:
            return _to_json_schema(self.parameters)
        return {"type": "object", "properties": {}}


class Tool(Record, kw_only=True):
    """An entry of a request's tool list: function declarations, or one built-in of the model's service.

    function_declarations: functions that the application executes. google_search: options of the built-in Google
    Search. google_search_retrieval: options of the older Google Search. google_maps: options of the built-in Google
    Maps. enterprise_web_search: options of the built-in web search for enterprises. url_context: options of reading web
    pages. code_execution: options of executing code at the provider. retrieval: options of retrieval from the
    provider's data stores. computer_use: options of controlling a computer. file_search: options of searching uploaded
    files. parallel_ai_search: options of the search of Parallel. exa_ai_search: options of the search of Exa.
    """

    function_declarations: list[FunctionDeclaration] | None = None
    google_search: JsonObject | None = None
    google_search_retrieval: JsonObject | None = None
    google_maps: JsonObject | None = None
    enterprise_web_search: JsonObject | None = None
    url_context: JsonObject | None = None
    code_execution: JsonObject | None = None
    retrieval: JsonObject | None = None
    computer_use: JsonObject | None = None
    file_search: JsonObject | None = None
    parallel_ai_search: JsonObject | None = None
    exa_ai_search: JsonObject | None = None


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
