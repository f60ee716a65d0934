"""Histories as several vendors, clients and interrupted runs leave them, and schemas as they are found in the wild."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from greenroom.records.content import (
    Blob,
    CodeExecutionResult,
    Content,
    ExecutableCode,
    FileData,
    FunctionCall,
    FunctionResponse,
    FunctionResponsePart,
    Part,
)
from greenroom.records.tool_declaration import FunctionDeclaration

Json = dict[str, Any]

NAMES = (
    "look", "calendar.list", "calendar_list", "a/b", "a_b", "9lives", "über", "x" * 90, "x" * 91, "say hello", "-", "b.c"
)  # fmt: skip
IDS = (
    "c1", "c2", "toolu_01", "call_1", "call_2", "call_fallback_1", "c00000001", "toolu_fallback_1", "adk-3", "a.b:c",
    "call_" + "7" * 60, "abcdefghi", "", None,
)  # fmt: skip
TEXTS = ("Hello", "", " ", "\n\t", "Ünï", "a" * 50)

names = st.sampled_from(NAMES)
ids = st.sampled_from(IDS)
texts = st.sampled_from(TEXTS)
arguments = st.dictionaries(st.sampled_from(("a", "$filter", "x y")), st.integers(0, 3) | texts, max_size=2)


def _media() -> st.SearchStrategy[Blob]:
    kinds = st.sampled_from(("image/png", "application/pdf", "text/plain", "audio/wav", "video/mp4"))
    return st.builds(Blob, data=st.just(b"data"), mime_type=kinds)


def _own_parts() -> st.SearchStrategy[Part]:
    """Parts with what one vendor alone understands, whole and cut off."""
    use: Json = {"type": "server_tool_use", "id": "srv1", "name": "web_search", "input": {"query": "q"}}
    result: Json = {"type": "web_search_tool_result", "tool_use_id": "srv1", "content": []}
    reasoning: Json = {"id": "rs_1", "type": "reasoning", "summary": []}
    message: Json = {"id": "m1", "type": "message", "role": "assistant", "status": "completed"}
    kinds: list[Json] = [
        {"text": "hm", "thought": True, "thought_signature": b"s", "part_metadata": {"anthropic": {"type": "thinking"}}},
        {"text": "hm", "thought": True, "part_metadata": {"anthropic": {"type": "thinking"}}},
        {"text": "", "thought": True, "thought_signature": b"s", "part_metadata": {"anthropic": {"type": "redacted_thinking"}}},
        {"text": " ", "part_metadata": {"anthropic": {"citations": []}}},
        {"part_metadata": {"anthropic": use}},
        {"part_metadata": {"anthropic": result}},
        {"text": "hm", "thought": True, "thought_signature": b"s", "part_metadata": {"openai": reasoning}},
        {"text": "said", "part_metadata": {"openai": message}},
        {"text": "hm", "thought": True, "part_metadata": {"openai_chat": {"name": "reasoning_content"}}},
        {"text": "hm", "thought": True},
        {"text": "", "thought_signature": b"gemini"},
    ]  # fmt: skip
    return st.sampled_from(kinds).map(lambda fields: Part(**fields))


def _calls() -> st.SearchStrategy[Part]:
    return st.builds(FunctionCall, id=ids, name=names, args=arguments).map(lambda call: Part(function_call=call))


def _responses() -> st.SearchStrategy[Part]:
    media = st.lists(st.builds(FunctionResponsePart, inline_data=_media()), max_size=1) | st.none()
    response = st.sampled_from(
        ({"result": "ok"}, {"result": " "}, {"error": "no"}, {}, {"content": [{"type": "text", "text": ""}]})
    )
    made = st.builds(FunctionResponse, id=ids, name=names, response=response, parts=media)
    return made.map(lambda one: Part(function_response=one))


def _parts() -> st.SearchStrategy[Part]:
    files = st.sampled_from(("https://a.example/x.png", "gs://b/x", "file-1", "file_1"))
    return st.one_of(
        _calls(),
        _responses(),
        texts.map(lambda text: Part(text=text)),
        _own_parts(),
        _media().map(lambda blob: Part(inline_data=blob)),
        files.map(lambda uri: Part(file_data=FileData(file_uri=uri, mime_type="image/png"))),
        st.just(Part(executable_code=ExecutableCode(code="1", language="PYTHON"))),
        st.just(Part(code_execution_result=CodeExecutionResult(outcome="OUTCOME_OK", output="1"))),
    )


def _turn() -> st.SearchStrategy[Content]:
    role = st.sampled_from(("user", "model", "assistant"))
    return st.builds(Content, role=role, parts=st.lists(_parts(), max_size=4) | st.none())


@st.composite
def _exchange(draw: st.DrawFn) -> list[Content]:
    """A model's parallel calls and their results, of which some may be missing, late, or there twice."""
    calls = draw(st.lists(_calls(), min_size=1, max_size=3))
    made = [part.function_call for part in calls if part.function_call is not None]
    results = [
        Part(function_response=FunctionResponse(id=one.id, name=one.name, response={"result": index}))
        for index, one in enumerate(made)
    ]
    results = draw(st.lists(st.sampled_from(results), max_size=4) | st.permutations(results))
    between = draw(st.lists(_turn(), max_size=1))
    before = draw(st.lists(texts.map(lambda text: Part(text=text)), max_size=1))
    return [Content(role="model", parts=[*before, *calls]), *between, Content(role="user", parts=list(results))]


histories: st.SearchStrategy[list[Content]] = st.lists(_turn().map(lambda turn: [turn]) | _exchange(), max_size=5).map(
    lambda groups: [content for group in groups for content in group]
)


# Schemas

FOUND: tuple[Json, ...] = (
    {},
    {"type": "object"},
    {"type": "array"},
    {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "properties": {"p": {"type": "array"}}},
    {"$ref": "#/definitions/A", "definitions": {"A": {"type": "object", "properties": {"b": {"$ref": "#/definitions/B"}}}, "B": {"type": "string"}}},
    {"type": "object", "properties": {"a": {"type": "object", "properties": {"x": {"type": "integer"}}}, "b": {"$ref": "#/properties/a"}, "c": {"$ref": "#/properties/a/properties/x", "description": "the same"}}},
    {"anyOf": [{"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}, {"type": "object", "properties": {"name": {"type": "string"}, "id": {"type": "integer"}}, "required": ["name"]}, {"type": "null"}]},
    {"oneOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}], "$defs": {"A": {"properties": {"kind": {"const": "a"}}, "required": ["kind"]}, "B": {"properties": {"kind": {"const": "b"}, "next": {"$ref": "#"}}, "required": ["kind", "next"]}}},
    {"type": "object", "properties": {"q": {"type": "string"}}, "anyOf": [{"required": ["q"]}, {"required": ["r"]}]},
    {"allOf": [{"$ref": "#/$defs/Base"}, {"properties": {"extra": {"type": "boolean"}}, "required": ["extra"]}], "$defs": {"Base": {"type": "object", "properties": {"extra": {"type": ["boolean", "null"]}}}}},
    {"type": "object", "properties": {"node": {"$ref": "#/$defs/Node"}}, "required": ["node"], "$defs": {"Node": {"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#/$defs/Node"}}, "twin": {"$ref": "#/$defs/Twin"}}, "required": ["children", "twin"]}, "Twin": {"type": "object", "properties": {"node": {"$ref": "#/$defs/Node"}}, "required": ["node"]}}},
    {"type": "object", "properties": {"any": True, "none": False, "n": {"type": "string", "nullable": True}, "f": {"type": "file"}, "w": {"type": "any"}}, "required": ["any", "none", "ghost"]},
    {"type": "OBJECT", "properties": {"x": {"type": "STRING", "enum": ["A", "B"]}, "y": {"type": "NUMBER"}}},
    {"type": "object", "properties": {"t": {"type": "array", "items": [{"type": "number"}, {"type": "string"}], "additionalItems": False}, "u": {"type": "array", "prefixItems": [{"type": "integer"}], "items": False}}},
    {"type": "object", "properties": {"v": {"type": ["string", "number", "array", "null"]}, "e": {"enum": ["a", 1, None, True]}, "e2": {"enum": [None]}, "e3": {"type": "integer", "enum": [1, 2]}}},
    {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0, "exclusiveMinimum": True}, "b": {"type": "string", "required": True, "pattern": "^\\p{L}+$"}, "c": {"exclusiveMaximum": 3, "type": "integer"}}},
    {"type": "object", "properties": {"$filter": {"type": "string"}, "filter[name]": {"type": "string"}, "_filter": {"type": "string"}, "@id": {"type": "object", "properties": {"x:y": {}}}}, "required": ["$filter"]},
    {"type": "object", "properties": {"remote": {"$ref": "https://example.com/schema.json"}, "lost": {"$ref": "#/$defs/Lost"}, "loop": {"$ref": "#/properties/loop"}}},
    {"$id": "https://x.example/s", "type": "object", "properties": {"a": {"$ref": "https://x.example/s#/$defs/A"}, "b": {"$ref": "#anchored"}}, "$defs": {"A": {"type": "string"}, "B": {"$anchor": "anchored", "type": "integer"}}},
    {"type": "object", "properties": {"o": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None, "description": "d", "title": "O"}}},
    {"type": "object", "if": {"properties": {"a": {"const": 1}}}, "then": {"required": ["b"]}, "dependencies": {"a": ["b"]}, "patternProperties": {"^x": {"type": "string"}}},
    {"type": "object", "properties": {"properties": {"type": "object", "properties": {"$ref": {"type": "string"}, "type": {"type": "string"}}}}},
    {"type": "object", "properties": {"d": {"description": ["not", "text"], "title": 1, "enum": [], "minLength": -1, "type": "string"}}},
    {"type": ["object", "null"], "properties": None, "required": "name", "additionalProperties": None},
    {"type": "string"},
)  # fmt: skip

_QUIRKS = st.sampled_from([
    {"type": "array"}, {"type": "string", "format": "uuid"}, {"nullable": True, "type": "integer"}, {"$ref": "#"}, True,
    {"$ref": "#/definitions/D"}, {"$ref": "#/$defs/E"}, {"$ref": "#/properties/a", "description": "as a"}, {"const": None},
    {"enum": ["a", None]}, {"enum": [1, "b", False]}, {"type": ["string", "array"]}, {"type": "any"}, {}, False,
    {"$ref": "#/$defs/D", "properties": {"more": {"type": "array"}}, "required": ["more"]}, {"not": {"type": "string"}},
    {"type": "object", "patternProperties": {"x": {}}, "propertyNames": {"pattern": "x"}}, {"exclusiveMinimum": 0},
])  # fmt: skip


def _composed(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    some = st.lists(inner, min_size=1, max_size=3)
    names_of_properties = st.sampled_from(("a", "b", "c d", "$e", "required", "items"))
    properties = st.dictionaries(names_of_properties, inner, max_size=3)
    required = st.lists(names_of_properties, max_size=2)
    return st.one_of(
        st.fixed_dictionaries({"type": st.just("object"), "properties": properties, "required": required}),
        st.fixed_dictionaries({"properties": properties}, optional={"additionalProperties": inner}),
        st.fixed_dictionaries({"type": st.just("array"), "items": inner | some}),
        st.fixed_dictionaries({"prefixItems": some}, optional={"items": inner}),
        st.fixed_dictionaries(
            {},
            optional={
                "anyOf": some, "oneOf": some, "allOf": some, "not": inner, "if": inner, "then": inner,
                "type": st.sampled_from(["object", ["object", "null"], "string"]), "description": texts,
            },
        ),
    )  # fmt: skip


_nodes: st.SearchStrategy[Any] = st.recursive(_QUIRKS, _composed, max_leaves=8)
schemas: st.SearchStrategy[Json] = st.sampled_from(FOUND) | st.builds(
    lambda root, definitions, legacy: {**root, "$defs": definitions, "definitions": legacy},
    _nodes.filter(lambda node: isinstance(node, dict)),
    st.dictionaries(st.sampled_from(("D", "E")), _nodes.filter(lambda node: isinstance(node, dict)), max_size=2),
    st.dictionaries(st.just("D"), _nodes, max_size=1),
)

declarations = st.lists(
    st.builds(
        FunctionDeclaration,
        name=names,
        description=texts | st.just("long. " * 300) | st.none(),
        parameters_json_schema=schemas | st.none(),
    ),
    max_size=3,
)
