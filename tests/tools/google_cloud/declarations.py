"""The tools of a toolset as they are declared to a model, to be compared with those of ADK 2.13."""

from __future__ import annotations

import json
from pathlib import Path

from greenroom.tools.toolset import BaseToolset
from tests.tools.google_api.server import Json


def _without_what_says_nothing(schema: Json) -> Json:
    """`additionalProperties: true` is what a schema means without it."""
    return {key: value for key, value in schema.items() if (key, value) != ("additionalProperties", True)}


BY_ADK: Json = json.loads(
    (Path(__file__).parent / "declared_by_adk.json").read_text(), object_hook=_without_what_says_nothing
)
"""The parameters that ADK 2.13 declares, by toolset and tool."""


async def declared_parameters(toolset: BaseToolset) -> Json:
    """By tool, without descriptions; each tool and each parameter must have one."""
    declared: Json = {}
    for tool in await toolset.get_tools():
        declaration = tool._get_declaration()  # pyright: ignore[reportPrivateUsage]
        assert declaration is not None
        assert declaration.description
        schema = declaration.parameters_json_schema or {}
        assert all(one["description"] for one in schema["properties"].values()), tool.name
        properties = {
            name: {key: value for key, value in one.items() if key != "description"}
            for name, one in schema["properties"].items()
        }
        declared[tool.name] = {"properties": properties, "required": schema["required"]}
    return declared
