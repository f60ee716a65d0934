from __future__ import annotations

import re
from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.errors import AgentConfigError
from greenroom.tools.openapi.document import ApiDocument, SchemaReader, read_document
from greenroom.tools.openapi.operation import read_operations


def reader(**schemas: Any) -> SchemaReader:
    return SchemaReader(ApiDocument({"openapi": "3.0.3", "components": {"schemas": schemas}}))


def ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def test_references_are_replaced_by_what_they_refer_to() -> None:
    pet = {"type": "object", "properties": {"owner": ref("Owner")}}
    schema = reader(Pet=pet, Owner={"type": "string"}).read({"type": "array", "items": ref("Pet")})
    assert schema == {
        "type": "array",
        "items": {"type": "object", "properties": {"owner": {"type": "string"}}},
    }


def test_a_schema_that_holds_itself_is_a_definition() -> None:
    node = {
        "type": "object",
        "description": "A node.",
        "properties": {"next": ref("Node"), "value": {"type": "integer"}},
    }
    defined = {**node, "properties": {"next": {"$ref": "#/$defs/Node"}, "value": {"type": "integer"}}}
    assert reader(Node=node).read(ref("Node")) == {**defined, "$defs": {"Node": defined}}


def test_references_that_only_lead_to_one_another_mean_anything() -> None:
    assert reader(A=ref("B"), B=ref("A")).read(ref("A")) == {}


def test_a_schema_used_twice_is_written_once() -> None:
    point = {"type": "object", "properties": {"x": {"type": "number"}, "in": ref("Unit")}}
    unit = {"type": "string", "enum": ["m", "km"]}
    schema = reader(Point=point, Unit=unit).read({"properties": {"a": ref("Point"), "b": ref("Point")}})
    to_point = {"$ref": "#/$defs/Point"}
    written = {"type": "object", "properties": {"x": {"type": "number"}, "in": unit}}
    assert schema == {"properties": {"a": to_point, "b": to_point}, "$defs": {"Point": written}}


def test_a_schema_used_once_is_written_in_its_place() -> None:
    point = {"type": "object", "properties": {"x": {"type": "number"}}}
    schema = reader(Point=point).read({"properties": {"a": {**ref("Point"), "description": "Where."}}})
    assert schema == {"properties": {"a": {**point, "description": "Where."}}}


def test_schemas_of_one_name_in_two_places_are_two_definitions() -> None:
    point = {"type": "object", "properties": {"x": {"type": "number"}}}
    other = {"type": "object", "properties": {"y": {"type": "number"}}}
    document = ApiDocument(
        {"openapi": "3.1.0", "components": {"schemas": {"Point": point}, "parameters": {"Point": other}}}
    )
    to_other = {"$ref": "#/components/parameters/Point"}
    pairs = {"a": ref("Point"), "b": ref("Point"), "c": to_other, "d": to_other}
    schema = SchemaReader(document).read({"properties": pairs})
    assert schema["$defs"] == {"Point": point, "Point_2": other}
    assert schema["properties"]["d"] == {"$ref": "#/$defs/Point_2"}


def test_what_stands_beside_a_reference_wins() -> None:
    schema = reader(Name={"type": "string", "description": "Any name."}).read({**ref("Name"), "description": "Yours."})
    assert schema == {"type": "string", "description": "Yours."}


def test_a_property_may_be_called_ref() -> None:
    schema = {"type": "object", "properties": {"$ref": {"type": "string"}}}
    assert reader().read(schema) == schema


def test_pointers_may_be_escaped() -> None:
    document = ApiDocument({"openapi": "3.1.0", "a/b": {"c~d": [{"type": "string"}]}})
    assert document.resolve({"$ref": "#/a~1b/c~0d/0"}) == {"type": "string"}
    assert document.resolve({"$ref": "#/a%7E1b/c~0d/0"}) == {"type": "string"}


@pytest.mark.parametrize(
    "reference", ["other.yaml#/Pet", "https://example.com/x.json", "#/components/schemas/None", "#/openapi/0"]
)
def test_references_that_lead_nowhere_are_refused(reference: str) -> None:
    with pytest.raises(AgentConfigError, match="refers to"):
        reader().read({"$ref": reference})


def test_a_schema_that_doubles_with_each_step_does_not_explode() -> None:
    schemas = {
        f"S{n}": {"type": "object", "properties": {"l": ref(f"S{n + 1}"), "r": ref(f"S{n + 1}")}} for n in range(40)
    }
    schema = reader(**schemas, S40={"type": "string"}).read(ref("S0"))
    assert str(schema).count("properties") == 40


def test_what_openapi_3_0_spells_otherwise_becomes_json_schema() -> None:
    schema = {
        "type": "object",
        "required": ["id", "size"],
        "discriminator": {"propertyName": "kind"},
        "x-internal": True,
        "properties": {
            "id": {"type": "integer", "readOnly": True},
            "size": {"type": "integer", "minimum": 0, "exclusiveMinimum": True, "example": 3},
            "note": {"type": "string", "nullable": True, "enum": ["a"]},
            "top": {"type": "integer", "maximum": 9, "exclusiveMaximum": False},
        },
    }
    assert reader().read(schema) == {
        "type": "object",
        "required": ["size"],
        "properties": {
            "size": {"type": "integer", "exclusiveMinimum": 0},
            "note": {"type": ["string", "null"], "enum": ["a", None]},
            "top": {"type": "integer", "maximum": 9},
        },
    }


NAMES = ["A", "B", "C", "D"]
Schemas = st.SearchStrategy[dict[str, Any]]


def larger(inner: Schemas) -> Schemas:
    properties = st.dictionaries(st.sampled_from("xyz"), inner, max_size=3)
    return st.one_of(
        st.fixed_dictionaries({"type": st.just("array"), "items": inner}),
        st.fixed_dictionaries({"type": st.just("object"), "properties": properties}),
        st.fixed_dictionaries({"oneOf": st.lists(inner, max_size=3)}),
    )


SMALL: Schemas = st.sampled_from([{"type": "string"}, {"type": "integer"}, *map(ref, NAMES)])
SCHEMAS = st.recursive(SMALL, larger, max_leaves=8)


@given(st.fixed_dictionaries(dict.fromkeys(NAMES, SCHEMAS)), SCHEMAS)
def test_every_reference_is_to_a_definition_that_several_places_need(
    schemas: dict[str, Any], schema: dict[str, Any]
) -> None:
    found = reader(**schemas).read(schema)
    definitions = found.get("$defs", {})
    uses = Counter(re.findall(r"'\$ref': '#/\$defs/(\w+)'", str(found)))
    assert uses.keys() == definitions.keys()
    assert all(count > 1 for count in uses.values())
    assert "#/components" not in str(found)


def test_yaml_is_read_as_json_would_have_it() -> None:
    text = "paths:\n  /on:\n    get:\n      responses:\n        200: {description: 2024-01-02}\n        on: {}\n"
    assert read_document(text, "yaml")["paths"]["/on"]["get"]["responses"] == {
        "200": {"description": "2024-01-02"},
        "true": {},
    }


def test_yaml_anchors_are_not_multiplied() -> None:
    lines = ["a0: &a0 [x, x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 60))]
    assert len(read_document("\n".join(lines), "yaml")) == 60


@pytest.mark.parametrize(
    ("text", "kind"), [("{", "json"), ("[]", "json"), ("a: [", "yaml"), ("- a", "yaml"), ("{}", "toml")]
)
def test_what_is_no_document_is_refused(text: str, kind: Any) -> None:
    with pytest.raises(AgentConfigError):
        read_document(text, kind)


def test_swagger_2_is_refused_by_name() -> None:
    with pytest.raises(AgentConfigError, match="Swagger 2"):
        ApiDocument({"swagger": "2.0"})


def test_a_path_may_be_a_reference() -> None:
    item = {"get": {"operationId": "look"}}
    root = {
        "openapi": "3.1.0",
        "paths": {"/a": {"$ref": "#/components/pathItems/A"}},
        "components": {"pathItems": {"A": item}},
    }
    (operation,) = read_operations(ApiDocument(root), base_url="https://x.test")
    assert operation.operation_id == "look"


def test_a_tool_of_a_large_document_repeats_no_schema() -> None:
    """Line items, prices and products that refer to each other, as in the documents of shops and of Kubernetes."""
    schemas: dict[str, Any] = {
        f"S{n}": {
            "type": "object",
            "description": "A long description of what this is. " * 3,
            "properties": {f"p{m}": ref(f"S{(n * 7 + m * 3) % 60}") for m in range(8)},
        }
        for n in range(60)
    }
    body = {"content": {"application/json": {"schema": ref("S0")}}}
    root = {
        "openapi": "3.1.0",
        "servers": [{"url": "https://shop.example"}],
        "components": {"schemas": schemas},
        "paths": {"/orders": {"post": {"operationId": "order", "requestBody": body}}},
    }
    [operation] = read_operations(ApiDocument(root))
    schema = operation.arguments_schema()
    assert len(msgspec.json.encode(schema)) < 40_000
    assert len(schema["$defs"]) <= 60
    assert set(re.findall(r"'#/\$defs/(\w+)'", str(schema))) == set(schema["$defs"])
