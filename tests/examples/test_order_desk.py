"""The order desk: a workflow with routes, a person and a retry."""

from __future__ import annotations

from pathlib import Path

import pytest

from greenroom.agents.workflow.workflow import Workflow
from greenroom.apps.load_directory import DirectoryAppLoader
from tests.agents.workflow.walks import Walk, lines_of

ROOT = Path(__file__).parents[2]


def _loaded(name: str) -> Workflow:
    agent = DirectoryAppLoader(ROOT / "examples" / name).load(name).root_agent
    assert isinstance(agent, Workflow)
    return agent


async def test_a_small_order_is_shipped_with_a_second_attempt() -> None:
    walk = Walk(_loaded("order_desk"))
    events = await walk.go("3 lamps")
    assert [line.partition("@")[0] for line in lines_of(events)] == ["read_order", "ship", "ship", "confirm"]
    assert lines_of(events)[-1] == "confirm@1 'Shipped: 3 lamps, 90.0 EUR.'"


@pytest.mark.parametrize(
    ("approved", "said"), [(True, "Shipped: 20 lamps, 600.0 EUR."), (False, "The order was refused.")]
)
async def test_a_large_order_waits_for_a_person(approved: bool, said: str) -> None:
    walk = Walk(_loaded("order_desk"))
    assert (await walk.go("20 lamps"))[-1].long_running_tool_ids == ["approval"]
    await walk.answer("approval", {"approved": "perhaps"})
    assert walk.error is not None
    events = await walk.answer("approval", {"approved": approved})
    assert events[-1].content is not None
    assert events[-1].content.text() == said


async def test_what_is_not_sold_is_explained() -> None:
    assert lines_of(await Walk(_loaded("order_desk")).go("a house"))[-1].startswith("explain@1 'I sell lamp")
