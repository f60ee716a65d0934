"""What an app may be named."""

from __future__ import annotations

import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.apps.app import App
from greenroom.errors import AgentConfigError


@pytest.mark.parametrize("name", ["shop", "_shop", "Shop2", "my-shop", "a", "team.shop", "a.user", "a.b-c.d2"])
def test_words_are_good_names(name: str) -> None:
    assert App(name=name, root_agent=LlmAgent(name="root")).name == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "2shop",
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
        "a.2b",
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
