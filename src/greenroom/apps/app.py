"""An app: a root agent under a name, with its plugins and policies."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

from greenroom.agents.agent import BaseAgent
from greenroom.agents.base_llm_agent import BaseLlmAgent
from greenroom.errors import AgentConfigError, InvalidRequest
from greenroom.invocation.compaction import EventsCompactionConfig
from greenroom.models.model import BaseLlm
from greenroom.plugins.plugin import BasePlugin
from greenroom.records.approval_policy import ApprovalPolicy
from greenroom.records.event import Event
from greenroom.records.model_exchange import ContextCacheConfig
from greenroom.records.run import MAX_PRIORITY, RunConfig, Webhook
from greenroom.records.run_judge import RunJudge
from greenroom.records.schedule import Schedule, with_id_by_definition
from greenroom.records.webhook_delivery import check_webhook, with_default_id
from greenroom.redaction.rules import Redaction
from greenroom.schedules.validation import check_schedule

OnVersionChange: TypeAlias = Literal["continue", "refuse", "pin"]

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*(\.[A-Za-z0-9_][A-Za-z0-9_-]*)*")


@dataclass(kw_only=True)
class ResumabilityConfig:
    """Whether a run that was cut off can be continued by its invocation id; workflow agents then
    write checkpoints.
    """

    is_resumable: bool = False


def _is_remembered(event: Event) -> bool:
    return (event.author == "user" or event.is_final_response()) and bool(event.content and event.content.text())


@dataclass(kw_only=True)
class MemoryPolicy:
    """Additions to the memory service when a run has ended, whether it succeeded or not."""

    selects: Callable[[Event], bool] = _is_remembered
    """Selects some of the run's events; by default, the user's texts and the texts of final responses. Its
    exceptions are logged, and the run is not added.
    """


@dataclass(kw_only=True, eq=False)
class App:
    """An agent with the plugins and settings of its runs."""

    name: str
    """Letters, digits, `_` and `-`, no `-` first; not "user". Of an app in a folder of apps,
    several of these with dots between them: `team.bots`.
    """

    root_agent: BaseAgent
    plugins: Sequence[BasePlugin] = field(default_factory=list[BasePlugin])
    """Called in this order."""

    default_model: str | BaseLlm | None = None
    """Of agents without a model of their own or above them."""

    run_config: RunConfig | None = None
    """Of the app's runs, as far as a request doesn't say otherwise."""

    resumability_config: ResumabilityConfig | None = None
    events_compaction_config: EventsCompactionConfig | None = None
    context_cache_config: ContextCacheConfig | None = None
    version: str = ""
    """Of the app's code, kept in the records of its runs; loaders fill it with a hash of the app's
    files.
    """

    on_version_change: OnVersionChange = "continue"
    """Policy for a run that waited or was cut off under another version: continue it with this one; or continue it only
    if a replay of its log is equal, and otherwise refuse the answer, or use the earlier version where it is loaded.
    """

    priority: int = 0
    """Of runs whose request sets none, from -10 to 10: see `limits.max_running_runs` of the server."""

    session_ttl_seconds: float | None = None
    """Time without an update after which a server deletes a session, with all that belongs to it; None: as the server's
    setting says, by default never; `math.inf`: never.
    """

    expires_waiting_runs: bool = False
    """Whether expired sessions are deleted although a run of them waits for a person, a signal or a time."""

    memory_policy: MemoryPolicy | None = None
    """None: nothing is added to memory automatically."""

    judges: Sequence[RunJudge] = ()
    """Score a sample of the app's runs in the background."""

    webhooks: Sequence[Webhook] = ()
    """Receivers of the states of all runs of the app. A run keeps those that the app has when it begins."""

    approvals: ApprovalPolicy | None = None
    """The people who approve the calls of tools, where a tool doesn't say; None: the session's user."""

    redaction: Redaction | None = None
    """Rules for what is replaced before it is stored, and before models and tools see it."""

    schedules: Sequence[Schedule] = ()
    """Runs that the server starts by the clock. They can be paused over HTTP, but only be changed here."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or self.name == "user":
            raise AgentConfigError(
                f"App name {self.name!r} must hold only letters, digits, '_' and '-' (and '.' between such "
                "names), with no '-' first, and not be 'user'"
            )

        if self.on_version_change not in get_args(OnVersionChange):
            raise AgentConfigError(
                f"App {self.name!r}: on_version_change is one of {', '.join(get_args(OnVersionChange))}, not "
                f"{self.on_version_change!r}"
            )

        if not -MAX_PRIORITY <= self.priority <= MAX_PRIORITY:
            raise AgentConfigError(f"App {self.name!r}: priority is from -{MAX_PRIORITY} to {MAX_PRIORITY}")

        if self.session_ttl_seconds is not None and not self.session_ttl_seconds > 0:
            raise AgentConfigError(f"App {self.name!r}: session_ttl_seconds must be more than 0")

        self.webhooks = [with_default_id(webhook) for webhook in self.webhooks]
        try:
            for webhook in self.webhooks:
                check_webhook(webhook)
        except InvalidRequest as error:
            raise AgentConfigError(f"App {self.name!r}: {error.detail}") from None
        if len({webhook.id for webhook in self.webhooks}) < len(self.webhooks):
            raise AgentConfigError(f"App {self.name!r}: two webhooks have the same id or URL")

        self._check_schedules()

        if len({judge.name for judge in self.judges}) < len(self.judges):
            raise AgentConfigError(f"App {self.name!r}: two judges have the same name")

        compaction = self.events_compaction_config
        if compaction is not None and compaction.summarizer is None and not isinstance(self.root_agent, BaseLlmAgent):
            raise AgentConfigError(
                f"The root agent of app {self.name!r} has no model to summarize events: give EventsCompactionConfig a "
                "summarizer"
            )

    def _check_schedules(self) -> None:
        """Fills in ids. Raises AgentConfigError."""
        self.schedules = [with_id_by_definition(schedule) for schedule in self.schedules]
        try:
            for schedule in self.schedules:
                check_schedule(schedule)
        except InvalidRequest as error:
            raise AgentConfigError(f"App {self.name!r}: {error.detail}") from None
        if len({schedule.id for schedule in self.schedules}) < len(self.schedules):
            raise AgentConfigError(f"App {self.name!r}: two schedules have the same id or definition")
