"""Items that services and servers list: apps with their agents, versions of artifacts, memories."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from greenroom.records.base import JsonObject, Record, empty_map
from greenroom.records.content import Content
from greenroom.records.tool_declaration import Tool


class AgentInfo(Record, kw_only=True, rename=None):
    """`sub_agents` is snake_case on the wire, as ADK writes it."""

    name: str
    """The agent's name."""
    description: str = msgspec.field(default_factory=str)
    """A description of the agent."""
    instruction: str = msgspec.field(default_factory=str)
    """The agent's instruction for the model."""
    tools: list[Tool] | None = None
    """The tools that the agent offers its model."""
    sub_agents: list[str] | None = None
    """Names of the agents it can delegate to."""


class AppInfo(Record, kw_only=True):
    """An app of the server."""

    name: str
    """The app's name."""
    root_agent_name: str = msgspec.field(default_factory=str)
    """Empty when the app can't be loaded."""
    description: str = msgspec.field(default_factory=str)
    """The description of the root agent."""
    language: str = msgspec.field(default_factory=lambda: "python")
    """The programming language of the agents, or `yaml`."""
    is_computer_use: bool = msgspec.field(default_factory=bool)
    """Whether an agent controls a computer."""
    agents: dict[str, AgentInfo] | None = None
    """The agents by name."""
    error: str | None = None
    """The error that keeps the app from being loaded."""
    missing: list[str] | None = None
    """A sentence for each package, key and file that the app's models need and this machine lacks,
    with the remedy."""
    is_live: bool = False
    """Whether a model of the app can hold a live conversation by voice."""


class ListAppsResponse(Record, kw_only=True, omit_defaults=False):
    """The apps of the server."""

    apps: list[AppInfo]
    """The apps that the caller may use."""


class ArtifactVersion(Record, kw_only=True):
    """A version of an artifact."""

    version: int
    """Counted from 0, one more with each save."""
    canonical_uri: str
    """The URI of this version."""
    custom_metadata: JsonObject = msgspec.field(default_factory=empty_map)
    """Stored when the version was saved."""
    create_time: float
    """Unix seconds."""
    mime_type: str | None = None
    """The media type of the content."""


class ListArtifactsResponse(list[str]):
    """Names of artifacts: a list, as ADK returns it, which is also read as `filenames`."""

    def __init__(self, filenames: Iterable[str] = ()) -> None:
        super().__init__(filenames)

    @property
    def filenames(self) -> list[str]:
        return self


class ListArtifactVersionsResponse(list[ArtifactVersion]):
    """Descriptions of an artifact's versions, ascending: a list, as ADK returns it, also read as `versions`."""

    def __init__(self, versions: Iterable[ArtifactVersion] = ()) -> None:
        super().__init__(versions)

    @property
    def versions(self) -> list[ArtifactVersion]:
        return self


class MemoryEntry(Record, kw_only=True):
    """A remembered event."""

    content: Content
    """The event's content."""
    author: str | None = None
    """The event's author."""
    timestamp: str | None = None
    """Time of the event, in ISO 8601."""
    id: str | None = None
    """The event's id, or one of its own."""
    custom_metadata: JsonObject | None = None
    """Of the event, or of who has added it."""


class ListMemoriesResponse(Record, kw_only=True, omit_defaults=False):
    """A page of a user's memories."""

    memories: list[MemoryEntry] = msgspec.field(default_factory=list[MemoryEntry])
    """In the order in which they were added; the results of a search, best first."""
    next_page_token: str | None = None
    """`page_token` of the next request; None on the last page."""


class SettingInfo(Record, kw_only=True, omit_defaults=False):
    """A setting of the server."""

    key: str
    """As in `greenroom.toml`: `cors.max_age`."""
    value: str
    """The value in effect as text, without secrets."""
    origin: str
    """The source of the value: a flag, a variable, a line of the file, `default`, `derived` from other settings and the
    folder, or `code`."""
    is_default: bool
    """Whether the value is the default."""
    description: str
    """For people."""
    variable: str
    """The environment variable that sets it."""


class ListSettingsResponse(Record, kw_only=True, omit_defaults=False):
    """The settings in effect."""

    settings: list[SettingInfo] = msgspec.field(default_factory=list[SettingInfo])
    """All of the server's settings."""


class ChangeMemoryRequest(Record, kw_only=True):
    """The new content of a memory."""

    content: Content
    """In place of the earlier one. It has a text."""
    custom_metadata: JsonObject | None = None
    """In place of the earlier ones; without them, these are kept."""


class LoadMemoryResponse(Record, kw_only=True, omit_defaults=False):
    """The response of the tool `load_memory`: best match first."""

    memories: list[MemoryEntry] = msgspec.field(default_factory=list[MemoryEntry])


class SearchMemoryResponse(Record, kw_only=True, omit_defaults=False):
    """Best match first."""

    memories: list[MemoryEntry] = msgspec.field(default_factory=list[MemoryEntry])
