"""The skill that comes with BigQuery's tools."""

from __future__ import annotations

import re

from greenroom import BigQueryToolset, SkillToolset, get_bigquery_skill
from greenroom.records.base import JsonObject
from tests.tools.one_call import call_once


async def test_a_model_can_load_the_skill() -> None:
    skill = get_bigquery_skill()
    assert skill.name == "bigquery-ai-ml"
    loaded = (await call_once(SkillToolset(skills=[skill]), "load_skill", {"skill_name": skill.name})).response
    assert "detect_anomalies" in str(loaded)


async def test_the_skill_names_tools_and_parameters_that_exist() -> None:
    declared: dict[str, JsonObject] = {}
    for tool in await BigQueryToolset().get_tools():
        declaration = tool._get_declaration()  # pyright: ignore[reportPrivateUsage]
        assert declaration is not None
        declared[tool.name] = (declaration.parameters_json_schema or {})["properties"]
    names = set(declared).union(*declared.values())

    text = re.sub(r"```.*?```", "", get_bigquery_skill().instructions, flags=re.DOTALL)
    mentioned = set(re.findall(r"`([a-z]+(?:_[a-z]+)+)`", text))
    assert mentioned - names == {"result_is_likely_truncated"}
