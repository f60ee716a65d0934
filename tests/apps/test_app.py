"""Names of apps, and their policies."""

from __future__ import annotations

import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.apps.app import App, ResumabilityConfig
from greenroom.errors import AgentConfigError
from greenroom.invocation.compaction import EventsCompactionConfig
from greenroom.records.model_exchange import ContextCacheConfig
from greenroom.records.run import RunConfig


@pytest.mark.parametrize(
    "name", ["shop", "_shop", "Shop2", "my-shop", "a", "2shop", "a.2b", "team.shop", "a.user", "a.b-c.d2"]
)
def test_words_are_good_names(name: str) -> None:
    assert App(name=name, root_agent=LlmAgent(name="root")).name == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "-shop",
        "my shop",
        "shop!",
        "shop\n",
        "a/b",
        "café",
        "user",
        ".shop",
        "shop.",
        "a..b",
        "a.-b",
        ".",
        "..",
        "a./b",
        "a.\n",
    ],
)
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(AgentConfigError, match="App name"):
        App(name=name, root_agent=LlmAgent(name="root"))


def test_an_app_takes_adks_policies() -> None:
    """Rows 3.3 (that its config is accepted) and 12.2."""
    app = App(
        name="shop",
        root_agent=LlmAgent(name="root"),
        resumability_config=ResumabilityConfig(is_resumable=True),
        events_compaction_config=EventsCompactionConfig(compaction_interval=5, overlap_size=1),
        context_cache_config=ContextCacheConfig(ttl_seconds=600),
        run_config=RunConfig(max_llm_calls=7),
    )
    assert app.resumability_config is not None
    assert app.resumability_config.is_resumable
    assert app.run_config is not None
    assert app.run_config.max_llm_calls == 7
    with pytest.raises(TypeError, match="unknown"):
        App(name="shop", root_agent=LlmAgent(name="root"), unknown=1)  # type: ignore[call-arg]
