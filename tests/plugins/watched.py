"""Talking to an agent of an app with plugins."""

from __future__ import annotations

from greenroom.agents.agent import BaseAgent
from greenroom.apps.app import App, ResumabilityConfig
from greenroom.plugins.plugin import BasePlugin
from greenroom.records.base import JsonObject
from greenroom.runner.in_memory import InMemoryRunner
from tests.agents.talk import Talk


class WatchedTalk(Talk):
    def __init__(self, agent: BaseAgent, *plugins: BasePlugin, state: JsonObject | None = None) -> None:
        super().__init__(agent, state=state)
        resumability = ResumabilityConfig(is_resumable=True)  # so that checkpoints are seen
        self.runner = InMemoryRunner(
            app=App(name="app", root_agent=agent, plugins=plugins, resumability_config=resumability)
        )
