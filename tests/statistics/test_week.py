"""A small week of runs whose process is killed: see `week.py` for the whole one."""

from __future__ import annotations

from pathlib import Path

from tests.statistics import week


async def test_figures_of_a_week_equal_those_of_its_records(tmp_path: Path) -> None:
    result = await week.main(800, tmp_path)
    assert result["points"] > 1000
