"""Rules of Gemini for names, ids and schemas.

Source: https://ai.google.dev/api/caching#FunctionDeclaration,
https://ai.google.dev/gemini-api/docs/structured-output
"""

from __future__ import annotations

from greenroom.models.requests.calls import IdRule
from greenroom.models.requests.rules import RequestRules
from greenroom.models.requests.schemas import Dialect
from greenroom.models.requests.tool_names import NameRule

OWN_IDS = "adk-"
"""Prefix of ids that are not sent."""

SCHEMAS = Dialect(
    keywords=frozenset({
        "type", "format", "title", "description", "default", "example", "enum", "properties", "required",
        "additionalProperties", "propertyOrdering", "minProperties", "maxProperties", "items", "minItems", "maxItems",
        "minimum", "maximum", "minLength", "maxLength", "pattern", "anyOf",
    }),
    bare_references=True,
    acyclic_when_required=True,
)  # fmt: skip

RULES = RequestRules(
    vendor="Gemini",
    names=NameRule("a-zA-Z0-9_.-", max_length=64, first="a-zA-Z_"),
    ids=IdRule(bool, lambda number: f"{OWN_IDS}{number}"),
    dialect=SCHEMAS,
    keeps_gemini_schemas=True,
)
