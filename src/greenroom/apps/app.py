"""An app: a root agent under a name, and the plugins that watch over its runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from greenroom.agents.agent import BaseAgent
from greenroom.errors import AgentConfigError
from greenroom.plugins.plugin import BasePlugin

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*(\.[A-Za-z_][A-Za-z0-9_-]*)*")


@dataclass(kw_only=True, eq=False)
class App:
    """name: letters, digits, `_` and `-`, no digit first; not "user". Of an app in a folder of apps, several of these
    with dots between them: `team.bots`. plugins: asked in this order."""

    name: str
    root_agent: BaseAgent
    plugins: Sequence[BasePlugin] = ()

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or self.name == "user":
            raise AgentConfigError(
                f"App name {self.name!r} must start with a letter or '_', hold only letters, digits, '_' and '-' (and "
                "'.' between such names), and not be 'user'"
            )
