"""Items that services and servers list: apps with their agents, versions of artifacts, memories."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from greenroom.records.base import JsonObject, Record, empty_map
from greenroom.records.content import Content
from greenroom.records.tool_declaration import Tool


class AgentInfo(Record, kw_only=True, rename=None):
    """`sub_agents` is snake_case on the wire, as ADK writes it.

    name: the agent's name. description: what the agent does. instruction: the agent's instruction for the model. tools:
    the tools that the agent offers its model. sub_agents: names of the agents it can delegate to.
    """

    name: str
    description: str = msgspec.field(default_factory=str)
    instruction: str = msgspec.field(default_factory=str)
    tools: list[Tool] | None = None
    sub_agents: list[str] | None = None


class AppInfo(Record, kw_only=True):
    """An app; `error` is set, and `root_agent_name` empty, when it can't be loaded.

    missing: a sentence for each package, key and file that models of the app lack on this machine, with what mends it.
    name: the app's name. root_agent_name: empty when the app can't be loaded. description: of the root agent. language:
    the programming language of the agents, or `yaml`. is_computer_use: whether an agent controls a computer. agents:
    the agents by name. error: why the app can't be loaded. is_live: whether a model of the app can hold a live
    conversation by voice.
    """

    name: str
    root_agent_name: str = msgspec.field(default_factory=str)
    description: str = msgspec.field(default_factory=str)
    language: str = msgspec.field(default_factory=lambda: "python")
    is_computer_use: bool = msgspec.field(default_factory=bool)
    agents: dict[str, AgentInfo] | None = None
    error: str | None = None
    missing: list[str] | None = None
    is_live: bool = False


class ListAppsResponse(Record, kw_only=True, omit_defaults=False):
    """The apps of the server.

    apps: the apps that the caller may use.
    """

    apps: list[AppInfo]


class ArtifactVersion(Record, kw_only=True):
    """version: from 0, one more with each save. create_time: Unix seconds.

    canonical_uri: the URI of this version. custom_metadata: stored when the version was saved. mime_type: the media
    type of the content.
    """

    version: int
    canonical_uri: str
    custom_metadata: JsonObject = msgspec.field(default_factory=empty_map)
    create_time: float
    mime_type: str | None = None


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
    """timestamp: ISO 8601, when the remembered event happened."""

    content: Content
    author: str | None = None
    timestamp: str | None = None
    id: str | None = None
    custom_metadata: JsonObject | None = None


class LoadMemoryResponse(Record, kw_only=True, omit_defaults=False):
    """The response of the tool `load_memory`: best match first."""

    memories: list[MemoryEntry] = msgspec.field(default_factory=list[MemoryEntry])


class SearchMemoryResponse(Record, kw_only=True, omit_defaults=False):
    """Best match first."""

    memories: list[MemoryEntry] = msgspec.field(default_factory=list[MemoryEntry])
