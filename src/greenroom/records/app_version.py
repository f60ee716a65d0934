"""Published versions of apps, their comparison, and their shares of an app's sessions."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from greenroom.records.base import JsonObject, JsonValue, Record, empty_map
from greenroom.records.tool_declaration import FunctionDeclaration

SOURCE = "source"
"""The name of the code in the served folder, among the names of versions."""

VERSION_NAME = r"^v[1-9][0-9]{0,8}$"
MAX_MESSAGE_LENGTH = 2000

Change: TypeAlias = Literal["added", "removed", "changed"]

Shares: TypeAlias = dict[str, Annotated[int, Meta(ge=0, le=100)]]
"""Percentages by version name. An empty map is the same as 100 for `source`."""


class AgentDescription(Record, kw_only=True):
    """An agent of an app, as it was when a version was published."""

    name: str
    """The agent's name."""
    kind: str
    """The name of its class."""
    description: str = ""
    """A description of the agent."""
    instruction: str = ""
    """The instruction for its model; of a computed one, the name of the function."""
    global_instruction: str = ""
    """The instruction for all agents of the tree."""
    model: str | None = None
    """The name of its model; none for agents without one."""
    settings: JsonObject = msgspec.field(default_factory=empty_map)
    """Other settings that differ from their defaults: those of the model calls, schemas, names of callbacks."""
    tools: list[FunctionDeclaration] = msgspec.field(default_factory=list[FunctionDeclaration])
    """The declarations of its tools."""
    sub_agents: list[str] = msgspec.field(default_factory=list[str])
    """Names of the agents below it, in their order."""


class VersionFile(Record, kw_only=True):
    """A file of a published version."""

    path: str
    """Relative to the served folder."""
    size_bytes: int
    """The size of the file."""


class PublishVersionRequest(Record, kw_only=True):
    """A request to publish the present code of an app."""

    message: Annotated[str, Meta(max_length=MAX_MESSAGE_LENGTH, pattern=r"^[^\x00]*$")] = ""
    """A description of the change."""


class PublishedVersion(Record, kw_only=True):
    """An immutable copy of an app's files."""

    app_name: str
    """The app."""
    name: str
    """`v1` for the first one of the app, `v2` for the next one. Names are not used again."""
    version: str
    """A hash of the files, which is `appVersion` of its runs."""
    message: str = ""
    """A description of the change, by the one who published it."""
    published_at: float
    """Unix seconds."""
    published_by: str | None = None
    """The caller who published it; none without authentication."""
    agents: list[AgentDescription] | None = None
    """Its agents; left out in lists."""
    files: list[VersionFile] | None = None
    """Its files; left out in lists."""


class Traffic(Record, kw_only=True, omit_defaults=False):
    """The shares of an app's sessions that each version serves."""

    shares: Shares
    """Percentages of new sessions by the name of a version, `source` for the present code; their sum is 100. A version
    with 0 gets no new sessions and keeps those it has; one that is missing serves no session. Empty: the present code
    serves all sessions."""


class ListVersionsResponse(Record, kw_only=True, omit_defaults=False):
    """The published versions of an app."""

    versions: list[PublishedVersion]
    """Newest first."""
    shares: Shares
    """See `Traffic`."""
    source_version: str | None
    """The version of the present code, which is `appVersion` of its runs; none if it can't be loaded."""


class FieldChange(Record, kw_only=True, omit_defaults=False):
    """A field of an agent with two values."""

    field: str
    """The name of the field; of a setting `settings.` and its name."""
    before: JsonValue
    """The value in the first version."""
    after: JsonValue
    """The value in the second version."""
    diff: str | None = None
    """A unified diff of texts with several lines."""


class ToolChange(Record, kw_only=True, omit_defaults=False):
    """A tool that an agent has in one version only, or with another declaration."""

    name: str
    """The tool's name."""
    change: Change
    """The kind of the difference."""
    before: FunctionDeclaration | None
    """The declaration in the first version."""
    after: FunctionDeclaration | None
    """The declaration in the second version."""


class AgentChange(Record, kw_only=True, omit_defaults=False):
    """An agent that is in one version only, or differs."""

    name: str
    """The agent's name."""
    change: Change
    """The kind of the difference."""
    fields: list[FieldChange]
    """Fields with other values, but tools: instruction, model, settings, sub-agents."""
    tools: list[ToolChange]
    """Tools that differ."""


class FileChange(Record, kw_only=True, omit_defaults=False):
    """A file that is in one version only, or has another content."""

    path: str
    """Relative to the served folder."""
    change: Change
    """The kind of the difference."""
    diff: str | None
    """A unified diff; none for files that are no text or too long."""


class VersionComparison(Record, kw_only=True, omit_defaults=False):
    """The differences between two versions of an app."""

    first: str
    """The name of the first version."""
    second: str
    """The name of the second version."""
    agents: list[AgentChange]
    """Agents that differ, by name. Empty if a model would see the same."""
    files: list[FileChange]
    """Files that differ, by path."""


class MeanComparison(Record, kw_only=True, omit_defaults=False):
    """The difference of a mean between the sessions of two versions."""

    difference: float
    """The mean of the version minus that of the baseline."""
    low: float
    """The lower end of the difference's 95 % interval."""
    high: float
    """The upper end of the interval."""
    is_significant: bool
    """Whether the difference is more than chance."""
    text: str
    """The comparison in words."""


class FeedbackScores(Record, kw_only=True, omit_defaults=False):
    """Feedback of one name on runs of a version."""

    count: int
    """Number of feedback with a score."""
    mean: float
    """The mean score; true counts as 1, and false as 0."""
    comparison: MeanComparison | None
    """With the baseline; none for the baseline itself, and if one of them has no score."""


class VersionScores(Record, kw_only=True, omit_defaults=False):
    """Figures of a version's runs."""

    name: str
    """The version; `source` for all code that isn't published."""
    runs: int
    """Number of runs."""
    sessions: int
    """Number of their sessions."""
    ended: int
    """Number of runs that have succeeded or failed."""
    failed: int
    """Number of failed runs."""
    failures: MeanComparison | None
    """The share of failed runs, compared with the baseline's; none for the baseline itself, and without ended runs."""
    median_seconds: float | None
    """The median time from the start to the end of its succeeded runs."""
    p95_seconds: float | None
    """The time that 95 % of its succeeded runs keep."""
    mean_tokens: float | None
    """The mean number of tokens of its runs with token counts."""
    feedback: dict[str, FeedbackScores]
    """By the name of the feedback."""


class ListVersionScoresResponse(Record, kw_only=True, omit_defaults=False):
    """The figures of an app's versions beside each other."""

    baseline: str | None
    """The version with which the others are compared; none without runs."""
    versions: list[VersionScores]
    """Versions that have runs: newest first, then `source`."""
    runs_from: float | None
    """Unix seconds of the oldest run that was counted."""
    is_limited: bool
    """Whether there are older runs, which were not counted."""
