"""An app: a root agent under a name, with its plugins and policies."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from greenroom.agents.agent import BaseAgent
from greenroom.errors import AgentConfigError
from greenroom.models.model import BaseLlm
from greenroom.plugins.plugin import BasePlugin
from greenroom.records.run import RunConfig

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*(\.[A-Za-z_][A-Za-z0-9_-]*)*")


@dataclass(kw_only=True)
class ResumabilityConfig:
    """Whether a run that was cut off can be continued by its invocation id; workflow agents then write checkpoints."""

    is_resumable: bool = False


@dataclass(kw_only=True)
class EventsCompactionConfig:
    """When older events are replaced by a summary. Accepted as ADK has it; has no effect yet."""

    summarizer: Any = None
    compaction_interval: int | None = None
    overlap_size: int | None = None
    token_threshold: int | None = None
    event_retention_size: int | None = None


@dataclass(kw_only=True)
class ContextCacheConfig:
    """How providers cache prompts. Accepted as ADK has it; no model reads it yet."""

    cache_intervals: int = 10
    ttl_seconds: int = 1800
    min_tokens: int = 0
    create_http_options: Any = None


@dataclass(kw_only=True, eq=False)
class App:
    """name: letters, digits, `_` and `-`, no digit first; not "user". Of an app in a folder of apps, several of these
    with dots between them: `team.bots`. plugins: called in this order. default_model: of agents without a model of
    their own or above them. run_config: of the app's runs, as far as a
    request doesn't say otherwise. version: of the app's code, kept in the records of its runs; loaders fill it with a
    hash of the app's files. on_version_change: whether a run that waited or was cut off under another version is
    continued or refused.
    """

    name: str
    root_agent: BaseAgent
    plugins: Sequence[BasePlugin] = field(default_factory=list[BasePlugin])
    default_model: str | BaseLlm | None = None
    run_config: RunConfig | None = None
    resumability_config: ResumabilityConfig | None = None
    events_compaction_config: EventsCompactionConfig | None = None
    context_cache_config: ContextCacheConfig | None = None
    version: str = ""
    on_version_change: Literal["continue", "refuse"] = "continue"

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or self.name == "user":
            raise AgentConfigError(
                f"App name {self.name!r} must start with a letter or '_', hold only letters, digits, '_' and '-' (and "
                "'.' between such names), and not be 'user'"
            )
