"""What a server tells about the apps it hosts."""

from __future__ import annotations

import msgspec

from greenroom.records.base import Record
from greenroom.records.tool_declaration import Tool


class AgentInfo(Record, kw_only=True, rename=None):
    """`sub_agents` is snake_case on the wire, as ADK writes it."""

    name: str
    description: str = msgspec.field(default_factory=str)
    instruction: str = msgspec.field(default_factory=str)
    tools: list[Tool] | None = None
    sub_agents: list[str] | None = None


class AppInfo(Record, kw_only=True):
    """An app; `error` is set, and `root_agent_name` empty, when it can't be loaded."""

    name: str
    root_agent_name: str = msgspec.field(default_factory=str)
    description: str = msgspec.field(default_factory=str)
    language: str = msgspec.field(default_factory=lambda: "python")
    is_computer_use: bool = msgspec.field(default_factory=bool)
    agents: dict[str, AgentInfo] | None = None
    error: str | None = None


class ListAppsResponse(Record, kw_only=True, omit_defaults=False):
    apps: list[AppInfo]
