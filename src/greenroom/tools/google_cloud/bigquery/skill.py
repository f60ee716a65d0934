"""A skill for analysis with BigQuery's tools."""

from __future__ import annotations

from pathlib import Path

from greenroom.tools.skills.skill import Skill, load_skill_from_dir

_FOLDER = Path(__file__).parent / "skills" / "bigquery-ai-ml"


def get_bigquery_skill() -> Skill:
    """The skill `bigquery-ai-ml`, for a SkillToolset beside a BigQueryToolset."""
    return load_skill_from_dir(_FOLDER)
