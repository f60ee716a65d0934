"""A runner for trying things out: everything is kept in memory and gone with it."""

from __future__ import annotations

from collections.abc import Sequence

from greenroom.agents.agent import BaseAgent
from greenroom.apps.app import App
from greenroom.artifacts.in_memory import InMemoryArtifactService
from greenroom.memory.in_memory import InMemoryMemoryService
from greenroom.plugins.plugin import BasePlugin
from greenroom.runner.runner import Runner
from greenroom.sessions.in_memory import InMemorySessionService


class InMemoryRunner(Runner):
    """A runner with in-memory services. `app_name` defaults to the app's name or, for an agent without an app, to
    "InMemoryRunner", as in ADK.
    """

    def __init__(
        self,
        agent: BaseAgent | None = None,
        *,
        node: BaseAgent | None = None,
        app_name: str | None = None,
        app: App | None = None,
        plugins: Sequence[BasePlugin] | None = None,
    ) -> None:
        super().__init__(
            app=app,
            agent=agent,
            node=node,
            app_name=app_name or ("InMemoryRunner" if app is None and node is None else None),
            plugins=plugins,
            session_service=InMemorySessionService(),
            artifact_service=InMemoryArtifactService(),
            memory_service=InMemoryMemoryService(),
        )
