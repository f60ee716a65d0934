"""Apps that are given in code."""

from __future__ import annotations

import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.apps.app import App
from greenroom.apps.loader import StaticAppLoader
from greenroom.errors import AgentConfigError, AppNotFound


def test_apps_and_agents_are_listed_by_name() -> None:
    shop = App(name="shop", root_agent=LlmAgent(name="seller"))
    desk = LlmAgent(name="desk")
    loader = StaticAppLoader([shop, desk])
    assert loader.list_apps() == ["desk", "shop"]
    assert loader.load("shop") is shop
    assert (loader.load("desk").name, loader.load("desk").root_agent) == ("desk", desk)
    assert loader.load("desk") is loader.load("desk")


def test_two_apps_of_one_name_are_refused() -> None:
    shop = App(name="shop", root_agent=LlmAgent(name="seller"))
    with pytest.raises(AgentConfigError, match="Two apps are named 'shop'"):
        StaticAppLoader([shop, LlmAgent(name="shop")])


def test_a_missing_app_is_reported_with_those_that_exist() -> None:
    loader = StaticAppLoader([LlmAgent(name="shop"), LlmAgent(name="desk")])
    with pytest.raises(AppNotFound, match=r"shopp.*desk.*shop"):
        loader.load("shopp")
