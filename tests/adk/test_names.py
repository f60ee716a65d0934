"""The table of ADK's names is complete: `names.json` lists them, and `make conformance` lists them anew."""

from __future__ import annotations

import json
from pathlib import Path

import greenroom
from greenroom.adk_names import adk_modules, adk_rows, find_adk_name

RECORDED = json.loads((Path(__file__).parent / "names.json").read_text())
NAMES: dict[str, list[str]] = RECORDED["names"]

PRIVATE_IN_ADK = {
    "ArgumentConfig",
    "DynamicNodeFailError",
    "GraphValidationError",
    "WorkflowConfigurationError",
    "WorkflowDataError",
    "WorkflowInvariantError",
}
"""Names of modules with `_` in front, which people import all the same."""


def test_each_public_name_of_adk_has_a_row() -> None:
    without = [(module, name) for module, names in NAMES.items() for name in names if not find_adk_name(module, name)]
    assert not without


def test_each_row_is_a_public_name_of_adk() -> None:
    known = {name for names in NAMES.values() for name in names}
    assert {row.name for row in adk_rows()} - known == PRIVATE_IN_ADK


def test_no_name_has_two_rows_in_one_package() -> None:
    rows = [(row.package, row.name) for row in adk_rows()]
    assert len(rows) == len(set(rows))


def test_a_name_of_two_modules_that_are_not_the_same_has_two_rows() -> None:
    workflow = find_adk_name("google.adk.workflow", "RetryConfig")
    plugin = find_adk_name("google.adk.plugins.bigquery_agent_analytics_plugin", "RetryConfig")
    assert workflow is not None
    assert workflow.missing_because is None
    assert plugin is not None
    assert plugin.missing_because is not None


def test_a_module_of_adk_with_names_that_are_offered_can_be_imported() -> None:
    last_parts = {module.rpartition(".")[2] for module in NAMES}
    assert adk_modules() <= last_parts
    for name in adk_modules():
        assert getattr(greenroom, name) is greenroom, name
    from greenroom import agent_tool, lite_llm

    assert agent_tool.AgentTool is greenroom.AgentTool
    assert lite_llm.LiteLlm is greenroom.LiteLlm


def test_packages_of_greenroom_are_imported_where_adk_has_a_name_like_theirs() -> None:
    from greenroom import client, telemetry

    assert client.__name__ == "greenroom.client"
    assert telemetry.__name__ == "greenroom.telemetry"
