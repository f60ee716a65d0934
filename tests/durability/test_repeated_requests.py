"""Two copies of one forwarded request: the other server sent it again, since its connection was lost."""

from __future__ import annotations

import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.runs.engine import ForwardedRequest
from tests.durability.engines import asking, ended, engine_over, stores_in
from tests.durability.scripts import model_of


@pytest.mark.parametrize("first_is_late", [False, True])
async def test_both_copies_get_one_run(*, first_is_late: bool) -> None:
    """The first copy may also be admitted after the second one has run to its end."""
    agent = LlmAgent(name="desk", model=model_of("Well.", "Well, well."))
    async with stores_in(None) as stores, engine_over(stores, agent) as engine:
        for is_repeated in (first_is_late, not first_is_late):
            run, reader = await engine.start(asking("go"), forwarded=ForwardedRequest("r-1", is_repeated=is_repeated))
            assert run.id == "r-1"
            assert reader is not None
            assert (await ended(reader)).id == "r-1"

        assert [event.author for event in await stores.log()] == ["user", "desk"]
