"""Talking to an agent of an app with plugins."""

from __future__ import annotations

from greenroom.agents.agent import BaseAgent
from greenroom.apps.app import App, ResumabilityConfig
from greenroom.plugins.plugin import BasePlugin
from greenroom.records.base import JsonObject
from greenroom.runner.in_memory import InMemoryRunner
from greenroom.runner.runner import Runner
from greenroom.sessions.service import BaseSessionService
from tests.agents.talk import Talk


class WatchedTalk(Talk):
    def __init__(
        self,
        agent: BaseAgent,
        *plugins: BasePlugin,
        state: JsonObject | None = None,
        sessions: BaseSessionService | None = None,
    ) -> None:
        super().__init__(agent, state=state)
        resumability = ResumabilityConfig(is_resumable=True)  # so that checkpoints are seen
        app = App(name="app", root_agent=agent, plugins=plugins, resumability_config=resumability)
        self.runner = InMemoryRunner(app=app) if sessions is None else Runner(app=app, session_service=sessions)
